"""How well scores tell in-distribution samples from others."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float, Real
from torch import Tensor

from thermocline.moments import reals


def auroc(id_scores: Real[Tensor, "n"], ood_scores: Real[Tensor, "m"]) -> Float[Tensor, ""]:
    """The chance that a random ID sample scores above a random OOD sample, ties counting half.

        P(s_id > s_ood) + P(s_id = s_ood) / 2                                 [fawcett2006roc, Sec. 7]

    A score may be infinite; NaN, or a side without samples, is an error.

    >>> auroc(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0]))
    tensor(0.8750, dtype=torch.float64)
    """
    inside, scores = _comparable(id_scores, ood_scores)
    ordered = inside.sort().values
    below_or_equal = torch.searchsorted(ordered, scores, right=True)
    below = torch.searchsorted(ordered, scores, right=False)
    return 1 - (below_or_equal + below).double().mean() / (2 * len(ordered))


def fpr_at_tpr(
    id_scores: Real[Tensor, "n"], ood_scores: Real[Tensor, "m"], *, tpr: float, positive: Literal["id", "ood"]
) -> Float[Tensor, ""]:
    """The share of negatives let through at the threshold that keeps a share `tpr` of the positives.

        FPR = mean(s_neg >= t),   t = the floor(tpr * n_pos)-th largest s_pos    [liang2018odin, Sec. 4]

    Libraries disagree on which side is positive, and the answers differ a lot: with "ood", scores are negated.
    A score may be infinite; NaN, or a side without samples, is an error.

    >>> fpr_at_tpr(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0.0, 2.5]), tpr=0.75, positive="id")
    tensor(0.5000, dtype=torch.float64)
    """
    if positive not in ("id", "ood"):
        raise ValueError(f"positive must be 'id' or 'ood', got {positive!r}")
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr is the share of positives to keep, in (0, 1], got {tpr}")
    inside, outside = _comparable(id_scores, ood_scores)
    kept, other = (inside, outside) if positive == "id" else (-outside, -inside)
    # 1e-9 absorbs the rounding of tpr * n (0.95 * 20 may fall just under 19).
    count = max(math.floor(tpr * len(kept) + 1e-9), 1)
    threshold = kept.topk(count).values[-1]
    return (other >= threshold).double().mean()


def _comparable(id_scores: Tensor, ood_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Both sides in the wider of their types, each with a score, and none of them NaN: it has no place in an order."""
    inside, outside = reals(id_scores, "id_scores"), reals(ood_scores, "ood_scores")
    wide = torch.promote_types(inside.dtype, outside.dtype)
    for name, scores in (("id_scores", inside), ("ood_scores", outside)):
        if scores.ndim != 1 or not len(scores):
            raise ValueError(f"{name} must be a vector of at least one score, got shape {tuple(scores.shape)}")
        if scores.max().isnan():
            raise ValueError(f"{name} must not be NaN: how such a sample compares is not known")
    return inside.to(wide).contiguous(), outside.to(wide).contiguous()
