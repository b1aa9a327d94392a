"""Means over seeds, and how far they can be trusted."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from scipy.special import stdtrit

# What a number can be; no mean of it, and so no interval, reaches beyond.
RANGES = dict.fromkeys(("accuracy", "effective_depth", "ood_drop", "auroc", "fpr", "ece"), (0.0, 1.0)) | {"brier": (0.0, 2.0)}
RANGES |= dict.fromkeys(
    ("solution_rank", "entropy_rank", "stable_rank", "fitted_temperature", "logit_norm", "tempered_logit_norm"), (0.0, math.inf)
)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with what is known of its spread: nothing (1), the range (2), a 95 % t-interval (3 or more).

    `cut`: the interval reached beyond what the number can be, and ends there.
    """

    mean: float
    low: float
    high: float
    count: int
    cut: bool = False

    def map(self, rising: Callable[[float], float]) -> Estimate:
        """The same by a rising function of the number."""
        return replace(self, mean=rising(self.mean), low=rising(self.low), high=rising(self.high))

    @property
    def kind(self) -> str:
        return {1: "one seed", 2: "range of 2 seeds"}.get(self.count, f"95 % t-interval, {self.count} seeds")


def student(count: int, *, among: int = 1) -> float:
    """How many standard errors the 95 % interval of a mean over so many seeds reaches to either side.

        t_{1 - 0.025 / m, n - 1}                                              [student1908mean] [dunn1961multiple]

    `among` is m, how many comparisons share the 5 % that may miss.

    >>> round(student(3), 3), round(student(10**9), 3)
    (4.303, 1.96)
    """
    return float(stdtrit(count - 1, 1 - 0.025 / among))


def estimate(values: Iterable[float], *, of: str = "") -> Estimate | None:
    """Mean and spread of one number over seeds; `of`: which measure it is, so that the spread ends where the number does.

    >>> estimate([1.0, 3.0])
    Estimate(mean=2.0, low=1.0, high=3.0, count=2, cut=False)
    >>> estimate([0.5, 1.0, 0.9], of="auroc").high
    1.0
    """
    values = list(values)
    if not values:
        return None
    mean, count = statistics.fmean(values), len(values)
    if count < 3:
        return Estimate(mean, min(values), max(values), count)
    half = student(count) * statistics.stdev(values) / math.sqrt(count)
    least, most = RANGES.get(of, (-math.inf, math.inf))
    cut = mean - half < least or mean + half > most
    return Estimate(mean, max(mean - half, least), min(mean + half, most), count, cut)


def plural(count: int, what: str) -> str:
    """So many of a thing.

    >>> plural(1, "seed"), plural(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def meet(one: Estimate, other: Estimate, paired: Estimate | None) -> bool:
    """Whether two means may be the same: the interval of their difference seed by seed has 0 in it or, where too few seeds are
    shared, their own intervals overlap.
    """
    return paired.low <= 0 <= paired.high if paired else one.low <= other.high and other.low <= one.high
