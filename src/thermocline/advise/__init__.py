"""Runs -> which temperature for which goal.

`advise` compares the best at the usual temperature with the best of all others, for accuracy, depth, transfer, detection and
calibration. `tradeoff` is about two of these: high temperature is said to give up OOD generalisation for OOD detection
[masarczyk2025softmax, App. M]. There each run is a point, 1 - rho of another data set across, the AUROC of a detector on it
up, and what is correlated are the means of settings over their seeds. Reads records; never imports torch.
"""

from thermocline.advise.association import Correlation, pearson, spearman
from thermocline.advise.choosing import Advice, Change, Choice, Goal, Option, advise
from thermocline.advise.output import save, suffix, terminal
from thermocline.advise.relation import Point, Relation, Tradeoff, tradeoff
from thermocline.advise.telling import besides, told
from thermocline.report.trading import Setting, pareto_front

__all__ = [
    "Advice", "Change", "Choice", "Correlation", "Goal", "Option", "Point", "Relation", "Setting", "Tradeoff", "advise",
    "besides", "pareto_front", "pearson", "save", "spearman", "suffix", "terminal", "told", "tradeoff",
]  # fmt: skip
