"""How two numbers of the same settings go together. Standard library only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEAST = 4  # pairs: with three, Fisher's interval is all of -1 to 1


@dataclass(frozen=True)
class Correlation:
    """A coefficient with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def pearson(x: Sequence[float], y: Sequence[float]) -> Correlation | None:
    """Linear correlation with Fisher's 95 % interval; None of fewer than 4 pairs, or where one side is constant.

        r = cov(x, y) / (std x std y),   tanh(atanh r +- 1.96 / sqrt(n - 3))  [fisher1921error]

    Pairs are taken for independent, so give one a setting, not one a seed. Not a bootstrap: it resamples the same few, and at
    the 4 to 9 settings of a sweep its intervals are too narrow.

    >>> print(pearson([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]))
    0.80 [-0.28, 0.99]
    """
    r = _coefficient(x, y)
    return None if r is None else Correlation(r, *_fisher(r, 1 / (len(x) - 3)))


def spearman(x: Sequence[float], y: Sequence[float]) -> Correlation | None:
    """Correlation of the ranks, equal values sharing their mean rank; None where `pearson` is.

        tanh(atanh r +- 1.96 sqrt((1 + r^2 / 2) / (n - 3)))                   [bonett2000sample]

    A few ranks agree perfectly by chance, yet atanh 1 is infinite: the far end is then that of the next value which n ranks
    can have, 1 - 12 / (n^3 - n).

    >>> print(spearman([1, 2, 3, 4], [1, 10, 100, 1000]))
    1.00 [-0.82, 1.00]
    """
    r = _coefficient(_ranks(x), _ranks(y))
    if r is None:
        return None
    n, limit = len(x), 1 - 12 / (len(x) ** 3 - len(x))
    within = min(max(r, -limit), limit)
    low, high = _fisher(within, (1 + within**2 / 2) / (n - 3))
    return Correlation(r, -1.0 if r < -limit else low, 1.0 if r > limit else high)


def _coefficient(x: Sequence[float], y: Sequence[float]) -> float | None:
    if len(x) < LEAST or len(set(x)) == 1 or len(set(y)) == 1:
        return None
    try:
        return min(max(statistics.correlation(x, y), -1.0), 1.0)
    except statistics.StatisticsError:  # squares of differences that are too small for a float
        return None


def _fisher(r: float, variance: float) -> tuple[float, float]:
    if abs(r) == 1:
        return r, r
    half = statistics.NormalDist().inv_cdf(0.975) * math.sqrt(variance)
    return math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def _ranks(values: Sequence[float]) -> list[float]:
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [statistics.fmean(places[value]) for value in values]
