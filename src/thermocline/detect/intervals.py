"""How far a metric of scores may be from that of all samples the scores stand for.

Both intervals are over samples of one net: nets trained from other seeds differ by more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Real
from torch import Tensor

from thermocline.detect.metrics import comparable, placements

Metric = Callable[[Tensor, Tensor], Tensor]


class Interval(NamedTuple):
    """A metric, and two numbers that it lies between."""

    value: Float[Tensor, ""]
    low: Float[Tensor, ""]
    high: Float[Tensor, ""]


def auroc_interval(id_scores: Real[Tensor, "n"], ood_scores: Real[Tensor, "m"], *, level: float) -> Interval:
    """A confidence interval of the AUROC from the variance of placements, in the time of two sorts.

        V_i = P(s_ood < s_id,i) + P(s_ood = s_id,i) / 2,   W_j likewise,   A = mean V
        logit A +- z sqrt(var(V) / n + var(W) / m) / (A (1 - A))              [delong1988roc] [sun2014delong]

    Symmetric in the logit of A, not in A, which stays between 0 and 1 and covers better near them [qin2008comparison].
    Variances have ddof = 1. Where A is 1 (or 0) they are 0 and say nothing: then min(n, m) separate pairs were all in
    order, and the limit is that of so many trials without a failure, ((1 - level) / 2)^(1 / min(n, m))
    [clopper1934fiducial].

    >>> inside, outside = torch.tensor([3.0, 2.0, 4.0, 1.5]), torch.tensor([1.0, 2.5, 0.0])
    >>> [round(float(x), 3) for x in auroc_interval(inside, outside, level=0.95)]  # logit(5/6) +- 1.96 * 0.19 / (5/36)
    [0.833, 0.249, 0.987]
    """
    _require_level(level)
    inside, outside = comparable(id_scores, ood_scores)
    count = min(len(inside), len(outside))
    if count < 2:
        raise ValueError(f"a variance needs two scores a side, got {len(inside)} ID and {len(outside)} OOD")
    of_inside = placements(inside, outside).double() / (2 * len(outside))
    of_outside = placements(outside, inside).double() / (2 * len(inside))
    value = 1 - of_outside.mean()
    variance = of_inside.var(correction=1) / len(inside) + of_outside.var(correction=1) / len(outside)
    z = math.sqrt(2) * torch.erfinv(torch.tensor(level, dtype=torch.float64, device="cpu")).item()
    reach = z * variance.sqrt() / (value * (1 - value))
    low, high = torch.sigmoid(value.logit() - reach), torch.sigmoid(value.logit() + reach)
    limit = ((1 - level) / 2) ** (1 / count)
    low = low.where(value < 1, limit).where(value > 0, 0.0)
    high = high.where(value > 0, 1 - limit).where(value < 1, 1.0)
    return Interval(value, low, high)


def bootstrap(
    metric: Metric, id_scores: Real[Tensor, "n"], ood_scores: Real[Tensor, "m"], *, resamples: int, level: float, seed: int
) -> Interval:
    """A confidence interval of any metric of two sets of scores, by drawing both again from themselves.

        the quantiles (1 - level) / 2 and (1 + level) / 2 of metric(id*, ood*)  [efron1993bootstrap, Ch. 13]

    Each side keeps its size. What is drawn depends on the seed and the sizes alone, not on the device; scores reach the
    metric sorted. Give a metric its options by functools.partial.

    >>> from thermocline.detect import auroc
    >>> inside, outside = torch.arange(50.0) + 20, torch.arange(50.0)
    >>> bootstrap(auroc, inside, outside, resamples=500, level=0.9, seed=0).value
    tensor(0.8200, dtype=torch.float64)
    """
    _require_level(level)
    if resamples * (1 - level) < 2:
        raise ValueError(f"fewer than one of {resamples} resamples lies beyond each end of a {level:.4g} interval: take more")
    inside, outside = (side.sort().values for side in comparable(id_scores, ood_scores))
    gen = torch.Generator().manual_seed(seed)
    values = [metric(_drawn(inside, gen), _drawn(outside, gen)) for _ in range(resamples)]
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64, device=inside.device)
    low, high = torch.stack(values).double().quantile(tails)
    return Interval(metric(inside, outside), low, high)


def _drawn(ordered: Tensor, gen: torch.Generator) -> Tensor:
    """As many as there are, with replacement, and still in order, so that a metric that sorts them has little to do."""
    times = torch.bincount(
        torch.randint(len(ordered), (len(ordered),), generator=gen, device=gen.device), minlength=len(ordered)
    )
    return ordered.repeat_interleave(times.to(ordered.device), output_size=len(ordered))


def _require_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level is the chance to cover the truth, above 0 and below 1, got {level}")
