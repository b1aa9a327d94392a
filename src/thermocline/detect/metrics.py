"""How well scores tell in-distribution samples from others.

A score may be infinite; NaN, or a side without samples, is an error. Nothing but the order of scores counts. `positive`
is the side to be found: libraries disagree on it, and the answers differ a lot. With "ood", scores are negated.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor
from torch.nn import functional

from thermocline.moments import reals

Side = Literal["id", "ood"]


class Roc(NamedTuple):
    """The vertices of a ROC curve, from (0, 0) to (1, 1), and the score from which on each takes a sample for positive."""

    fpr: Float[Tensor, "points"]
    tpr: Float[Tensor, "points"]
    thresholds: Float[Tensor, "points"]


def auroc(id_scores: Real[Tensor, "n"], ood_scores: Real[Tensor, "m"]) -> Float[Tensor, ""]:
    """The chance that a random ID sample scores above a random OOD sample, ties counting half.

        P(s_id > s_ood) + P(s_id = s_ood) / 2                                 [fawcett2006roc, Sec. 7]

    It is the same for either positive side.

    >>> auroc(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0]))
    tensor(0.8750, dtype=torch.float64)
    """
    inside, outside = comparable(id_scores, ood_scores)
    return 1 - placements(outside, inside).double().mean() / (2 * len(inside))


def aupr(id_scores: Real[Tensor, "n"], ood_scores: Real[Tensor, "m"], *, positive: Side) -> Float[Tensor, ""]:
    """Average precision: of the samples that score at least as high as a random positive, the share that is positive.

        (1 / n_pos) sum_{i positive} #{s_pos >= s_i} / #{s >= s_i}            [boyd2013area]

    The area under steps, not under a line between them, which would be too large. By chance it is the share of
    positives, so it depends on the sizes of the two sets.

    >>> aupr(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]), positive="id")  # (1 / 1 + 2 / 3) / 2
    tensor(0.8333, dtype=torch.float64)
    """
    kept, other = (side.sort().values for side in sides(id_scores, ood_scores, positive))
    true, false = (len(side) - torch.searchsorted(side, kept) for side in (kept, other))
    return (true / (true + false).double()).mean()


def fpr_at_tpr(id_scores: Real[Tensor, "n"], ood_scores: Real[Tensor, "m"], *, tpr: float, positive: Side) -> Float[Tensor, ""]:
    """The share of negatives let through at the threshold that keeps a share `tpr` of the positives.

        FPR = mean(s_neg >= t),   t = the floor(tpr * n_pos)-th largest s_pos    [liang2018odin, Sec. 4]

    >>> fpr_at_tpr(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0.0, 2.5]), tpr=0.75, positive="id")
    tensor(0.5000, dtype=torch.float64)
    """
    kept, other = sides(id_scores, ood_scores, positive)
    threshold = kept.sort(descending=True).values[passing(tpr, len(kept)) - 1]
    return (other >= threshold).double().mean()


def roc(id_scores: Real[Tensor, "n"], ood_scores: Real[Tensor, "m"], *, points: int, positive: Side) -> Roc:
    """True against false positives at every threshold, in at most `points` vertices.

        (mean(s_neg >= t), mean(s_pos >= t))  for t from infinity down        [fawcett2006roc, Sec. 5]

    Every vertex lies on the exact curve. With more corners than `points`, those between the first and the last in each of
    points // 2 equal stretches of fpr + tpr are left out: in one of length l a monotone curve has at most l^2 / 8 on
    either side of its chord, so that the area changes by at most 1 / (points - 1), and a smooth curve's by far less.
    With "ood", a threshold is the score up to which a sample is taken for OOD.

    >>> roc(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0]), points=100, positive="id").fpr
    tensor([0.0000, 0.0000, 0.5000, 1.0000], dtype=torch.float64)
    """
    if points < 2:
        raise ValueError(f"a curve has at least 2 points, its ends, got points={points}")
    kept, other = (side.sort().values for side in sides(id_scores, ood_scores, positive))
    above = torch.full_like(kept[:1], torch.inf)
    thresholds = torch.cat([above, torch.cat([kept, other]).unique().flip(0)])
    true, false = (len(side) - torch.searchsorted(side, thresholds) for side in (kept, other))
    # Nothing reaches a threshold above all, though a score may be infinite.
    true[0] = false[0] = 0
    turns = true.diff()[:-1] * false.diff()[1:] != true.diff()[1:] * false.diff()[:-1]
    corner = functional.pad(turns, (1, 1), value=True)
    tpr, fpr, thresholds = true[corner].double() / len(kept), false[corner].double() / len(other), thresholds[corner]
    if len(tpr) > points:
        stretch = ((tpr + fpr) * (points // 2 / 2)).long().clamp(max=points // 2 - 1)
        steps = functional.pad(stretch.diff(), (1, 1), value=1)
        ends = (steps[:-1] > 0) | (steps[1:] > 0)
        tpr, fpr, thresholds = tpr[ends], fpr[ends], thresholds[ends]
    return Roc(fpr, tpr, thresholds if positive == "id" else -thresholds)


def placements(scores: Float[Tensor, "n"], others: Float[Tensor, "m"]) -> Int[Tensor, "n"]:
    """Twice the number of others below each score, those equal to it counting half.

    >>> placements(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0]))
    tensor([4, 3])
    """
    ordered = others.sort().values
    return torch.searchsorted(ordered, scores, right=True) + torch.searchsorted(ordered, scores, right=False)


def passing(tpr: float, positives: int) -> int:
    """How many positives a share of them is, one at least.

    >>> passing(0.95, 20), passing(0.95, 39), passing(0.01, 3)
    (19, 37, 1)
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr is the share of positives to keep, in (0, 1], got {tpr}")
    # 1e-9 absorbs the rounding of tpr * n (0.95 * 20 may fall just under 19).
    return max(math.floor(tpr * positives + 1e-9), 1)


def require_side(positive: str) -> None:
    """Raise unless it names one of the two sides."""
    if positive not in ("id", "ood"):
        raise ValueError(f"positive must be 'id' or 'ood', got {positive!r}")


def sides(id_scores: Real[Tensor, "n"], ood_scores: Real[Tensor, "m"], positive: Side) -> tuple[Tensor, Tensor]:
    """The positives and the negatives, higher the more positive."""
    require_side(positive)
    inside, outside = comparable(id_scores, ood_scores)
    return (inside, outside) if positive == "id" else (-outside, -inside)


def comparable(id_scores: Real[Tensor, "n"], ood_scores: Real[Tensor, "m"]) -> tuple[Tensor, Tensor]:
    """Both sides in the wider of their types, each with a score, and none of them NaN: it has no place in an order."""
    inside, outside = reals(id_scores, "id_scores"), reals(ood_scores, "ood_scores")
    wide = torch.promote_types(inside.dtype, outside.dtype)
    for name, scores in (("id_scores", inside), ("ood_scores", outside)):
        if scores.ndim != 1 or not len(scores):
            raise ValueError(f"{name} must be a vector of at least one score, got shape {tuple(scores.shape)}")
        if scores.max().isnan():
            raise ValueError(f"{name} must not be NaN: how such a sample compares is not known")
    return inside.to(wide).contiguous(), outside.to(wide).contiguous()
