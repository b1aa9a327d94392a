"""Runs -> which temperature for which goal: what a net keeps for other data, against how well it notices them.

High temperature is said to give up OOD generalisation for OOD detection [masarczyk2025softmax, App. M]. Here each run is
a point, 1 - rho of another data set across, the AUROC of a detector on it up, and what is correlated are the means of
settings over their seeds. Reads records; never imports torch.
"""

from thermocline.advise.association import Correlation, pearson, spearman
from thermocline.advise.output import save, suffix, terminal
from thermocline.advise.relation import Point, Relation, Setting, Tradeoff, tradeoff
from thermocline.report.curves import pareto_front

__all__ = [
    "Correlation", "Point", "Relation", "Setting", "Tradeoff", "pareto_front", "pearson", "save", "spearman", "suffix",
    "terminal", "tradeoff",
]  # fmt: skip
