"""Out-of-distribution detectors. A score is higher the more in-distribution a sample looks.

Every detector is `.fit(features, logits, labels)` on in-distribution training data, then
`.score(features, logits)`; it reads what it needs and ignores the rest.
"""

from thermocline.detect.confidence import MSP
from thermocline.detect.metrics import auroc, fpr_at_tpr
from thermocline.detect.subspace import NECO

__all__ = ["MSP", "NECO", "auroc", "fpr_at_tpr"]
