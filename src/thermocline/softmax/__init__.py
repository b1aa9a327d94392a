"""Temperature maths on logits. A temperature divides logits; nothing here guesses what it was given."""

from thermocline.softmax.adaptive import adaptive_beta as adaptive_beta
from thermocline.softmax.adaptive import adaptive_softmax as adaptive_softmax
from thermocline.softmax.adaptive import masked_entropy as masked_entropy
from thermocline.softmax.adaptive import sharpened as sharpened
from thermocline.softmax.calibration import Reliability as Reliability
from thermocline.softmax.calibration import brier_score as brier_score
from thermocline.softmax.calibration import expected_calibration_error as expected_calibration_error
from thermocline.softmax.calibration import fit_temperature as fit_temperature
from thermocline.softmax.calibration import negative_log_likelihood as negative_log_likelihood
from thermocline.softmax.calibration import reliability as reliability
from thermocline.softmax.temperature import Temperature as Temperature
from thermocline.softmax.temperature import entropy as entropy
from thermocline.softmax.temperature import logit_norm_cross_entropy as logit_norm_cross_entropy
from thermocline.softmax.temperature import softmax as softmax
from thermocline.softmax.temperature import temperature_for_entropy as temperature_for_entropy
from thermocline.softmax.temperature import temperature_for_norm as temperature_for_norm
from thermocline.softmax.temperature import tempered_cross_entropy as tempered_cross_entropy
from thermocline.softmax.temperature import tempered_mse as tempered_mse
