"""Out-of-distribution detectors. A score is higher the more in-distribution a sample looks.

Every detector is `.fit(features, logits, labels)` on in-distribution training data, then
`.score(features, logits)`; it reads what it needs and ignores the rest.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor

from thermocline import softmax
from thermocline.moments import Moments, reals, require_finite, slices


class MSP:
    """Maximum softmax probability: a confident net is taken to be at home.

        s(x) = max_k softmax_T(e(x))_k                                        [hendrycks2017baseline, Sec. 3]

    A net trained at temperature T means its probabilities at that T.
    """

    def __init__(self, *, temperature: float = 1.0) -> None:
        self.temperature = temperature

    def fit(self, features: Float[Tensor, "n d"], logits: Float[Tensor, "n c"], labels: Int[Tensor, "n"]) -> MSP:
        """Nothing to learn."""
        return self

    def score(self, features: Float[Tensor, "n d"], logits: Float[Tensor, "n c"]) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        return softmax.softmax(logits, temperature=self.temperature).amax(1)


class NECO:
    """Neural-collapse detector: the share of a feature's norm inside the main subspace of the training features.

        s(x) = ||P z|| / ||z||,   z = (h - mean) / std,   P = first k principal axes of z  [benammar2024neco, Sec. 4]

    `dim` is k, or the fraction of training variance the k axes must reach. `logit_factor` multiplies by the
    largest logit, which the authors do for every architecture but ResNets.
    """

    def __init__(self, dim: int | float = 0.9, *, logit_factor: bool = False) -> None:
        if not (dim >= 1 if isinstance(dim, int) else 0 < dim <= 1):
            raise ValueError(f"dim is a number of axes (an int) or a variance fraction in (0, 1], got {dim!r}")
        self.dim, self.logit_factor = dim, logit_factor

    def fit(self, features: Float[Tensor, "n d"], logits: Float[Tensor, "n c"], labels: Int[Tensor, "n"]) -> NECO:
        """Learn the scaling and the principal axes from in-distribution features."""
        return self.fit_moments(Moments.of(features))

    def fit_moments(self, moments: Moments) -> NECO:
        """`fit` to a stream, whose features are not kept.

        >>> x = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
        >>> NECO(dim=2).fit_moments(Moments.of(x)).score(x, torch.empty(4, 0))
        tensor([1., 1., 1., 1.], dtype=torch.float64)
        """
        covariance = moments.covariance(ddof=0)
        require_finite(covariance, "the covariance of features that NECO is fitted to")
        variance, rounding = covariance.diagonal(), moments.count * torch.finfo(covariance.dtype).eps
        # scikit-learn's rule for a constant feature, one whose variance may be all rounding: leave its scale alone.
        constant = variance <= rounding * variance + (rounding * moments.mean).square()
        self.mean, self.std = moments.mean.clone(), variance.sqrt().where(~constant, 1.0)
        variance, axes = torch.linalg.eigh(covariance / torch.outer(self.std, self.std))
        variance, axes = variance.flip(0).clamp(min=0), axes.flip(1)
        self.axes, self.others = axes.tensor_split([self._count(variance)], 1)
        return self

    def score(self, features: Float[Tensor, "n d"], logits: Float[Tensor, "n c"]) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        share = torch.cat([self._share(z) for (z,) in slices(features)])
        return share * logits.amax(1) if self.logit_factor else share

    def _share(self, z: Tensor) -> Tensor:
        """||P z|| / ||z|| of features in float64, which are overwritten with z."""
        z.sub_(self.mean).div_(self.std)
        main = self.axes.shape[1] <= self.others.shape[1]
        # ||P z||^2 = ||z||^2 - ||(1 - P) z||^2, and the side with fewer axes takes less work. A difference leaves an
        # error of 1e-16 on the square of a share, but only where the main subspace is the larger one.
        side = (self.axes if main else self.others).T @ z.T
        part, whole = side.square_().sum(0), z.square_().sum(1)
        inside = part if main else (whole - part).clamp(min=0)
        return (inside / whole.clamp(min=torch.finfo(z.dtype).tiny)).sqrt()

    def _count(self, variance: Tensor) -> int:
        if isinstance(self.dim, int):
            return min(self.dim, len(variance))
        explained = variance.cumsum(0) / variance.sum().clamp(min=torch.finfo(variance.dtype).tiny)
        return min(int((explained < self.dim).sum()) + 1, len(variance))


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
