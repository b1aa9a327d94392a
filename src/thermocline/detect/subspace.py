"""Detectors that ask how much of a feature lies in the main subspace of the training features."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thermocline.moments import Moments, require_finite, slices


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
