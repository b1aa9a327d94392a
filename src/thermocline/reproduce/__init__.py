"""Experiments and committed rows -> ours beside the published numbers, with seeds, intervals and a verdict in words.

    experiments (claims as data) + results (rows) -> quantities -> verdict -> pages and figures

Reading, judging and rendering never import torch; only what computes rows (`computed`) and trains (`run`) does.
"""

from thermocline.reproduce.catalogue import Experiment, homes, load, modules, names, select
from thermocline.reproduce.console import glance, terminal
from thermocline.reproduce.output import write
from thermocline.reproduce.sources import Shelf
from thermocline.reproduce.study import Study, study
from thermocline.reproduce.verdict import Finding, Verdict, judge

__all__ = [
    "Experiment", "Finding", "Shelf", "Study", "Verdict", "glance", "homes", "judge", "load", "modules", "names",
    "select", "study", "terminal", "write",
]  # fmt: skip
