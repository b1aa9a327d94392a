"""Attention whose temperature follows its entropy, and how far attention disperses without.

Letters of shapes: b batch, h heads of q, g heads of k and v, q queries, s keys, d width of q and k, e width of v.
"""

from thermocline.attention.dispatch import BACKENDS as BACKENDS
from thermocline.attention.dispatch import Choice as Choice
from thermocline.attention.dispatch import Stats as Stats
from thermocline.attention.dispatch import adaptive_attention as adaptive_attention
from thermocline.attention.dispatch import backend_for as backend_for
from thermocline.attention.dispersing import Dispersion as Dispersion
from thermocline.attention.dispersing import dispersion as dispersion
from thermocline.attention.fitting import FittedBeta as FittedBeta
from thermocline.attention.fitting import best_beta as best_beta
from thermocline.attention.fitting import fit_beta as fit_beta
from thermocline.attention.rules import PLAIN as PLAIN
from thermocline.attention.rules import PUBLISHED as PUBLISHED
from thermocline.attention.rules import EffectiveItems as EffectiveItems
from thermocline.attention.rules import Fixed as Fixed
from thermocline.attention.rules import LogLength as LogLength
from thermocline.attention.rules import Polynomial as Polynomial
from thermocline.attention.rules import Rule as Rule
from thermocline.attention.rules import Surface as Surface
