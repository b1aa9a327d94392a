"""Singular values of a cloud, and the counts made of them."""

from __future__ import annotations

import math
import warnings
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int, Real
from torch import Tensor

from thermocline.moments import ClassMoments, Moments, reals, require_finite

Cloud = Real[Tensor, "n d"] | Real[Tensor, "k"] | Real[np.ndarray, "n d"] | Real[np.ndarray, "k"] | Moments | ClassMoments

# The rounding of a float64 Gram shows up at about 4e-8 of the largest singular value (sqrt of a few eps); from 1e-6 up
# a count made from it can differ from that of an SVD only if a singular value lies within 0.1 % of the tolerance.
GRAM_REACH = 1e-6


def singular_values(x: Cloud, *, centered: bool = True) -> Float[Tensor, "k"]:
    """Singular values of the (centred) sample matrix, largest first, in float64.

        sigma_i(x - mean(x)) = sqrt(lambda_i(scatter(x)))                     [masarczyk2025softmax, Fig. 3]

    A matrix is decomposed directly, to full precision; from moments the eigenvalues of the float64 scatter are several
    times faster and resolve sigma_i / sigma_1 down to about 1e-7. Values that centring itself could leave behind by
    rounding are 0, so a constant cloud has none. A vector is taken for singular values, and sorted.

    >>> singular_values(torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    tensor([4.2426, 1.4142], dtype=torch.float64)
    """
    cloud = _cloud(x)
    if isinstance(cloud, Moments):
        sigma = _gram_values(cloud.scatter if centered else cloud.second_moment())[: cloud.count]
        return _above_rounding(sigma, cloud.mean, cloud.count) if centered else sigma
    if cloud.ndim == 1:
        return _spectrum(cloud)
    wide, mean = _prepared(cloud, centered)
    require_finite(wide, "the cloud")
    return _above_rounding(torch.linalg.svdvals(wide), mean, len(wide))


def numerical_rank(x: Cloud, *, of: Literal["features", "covariance"], rtol: float, centered: bool = True) -> Int[Tensor, ""]:
    """How many singular values exceed a fraction of the largest, of the features or of their covariance.

        #{i : sigma_i > rtol * sigma_1}                                       [masarczyk2023tunnel]

    A covariance has eigenvalues sigma_i^2 / n: rtol = 1e-3 on it is rtol = 0.0316 on features. A matrix at least four
    times longer than wide (or wider than long) is counted from its float64 Gram where that is as good as an SVD
    (rtol >= 1e-6 on features). Warns when rtol asks for more than the number format of x can carry. For several tolerances give
    `singular_values`, decomposed once.

    >>> x = torch.diag(torch.tensor([1.0, 0.1, 0.01]))
    >>> [int(numerical_rank(x, of=of, rtol=0.05, centered=False)) for of in ("features", "covariance")]
    [2, 1]
    """
    if of not in ("features", "covariance"):
        raise ValueError(f"of must be 'features' or 'covariance', got {of!r}")
    if not 0 < rtol < 1:
        raise ValueError(f"rtol is a fraction of the largest singular value, above 0 and below 1, got {rtol}")
    finest = math.sqrt(rtol) if of == "covariance" else rtol
    cloud = _cloud(x)
    if isinstance(cloud, Moments) or cloud.ndim == 2:
        _warn_below_reach(finest, GRAM_REACH if isinstance(cloud, Moments) else torch.finfo(cloud.dtype).eps)
    sigma = _countable_values(cloud, finest, centered)
    if of == "covariance":
        sigma = sigma.square()
    return (sigma > rtol * sigma[0]).sum()


def stable_rank(x: Cloud, *, centered: bool = True) -> Float[Tensor, ""]:
    """Energy in units of the largest direction: blind to small singular values, needs no tolerance.

        sum_i sigma_i^2 / sigma_1^2                                           [rudelson2007sampling, Sec. 1]

    >>> stable_rank(torch.eye(5), centered=False)
    tensor(5., dtype=torch.float64)
    """
    energy = singular_values(x, centered=centered).square()
    return torch.where(energy[0] > 0, energy.sum() / energy[0].clamp(min=torch.finfo(energy.dtype).tiny), 0.0)


def entropy_rank(x: Cloud, *, centered: bool = True) -> Float[Tensor, ""]:
    """Effective rank: the exponential of the entropy of the normalised singular values.

        exp(-sum_i p_i log p_i),   p_i = sigma_i / sum_j sigma_j              [roy2007effective, Sec. 2]

    >>> entropy_rank(torch.eye(5), centered=False)
    tensor(5.0000, dtype=torch.float64)
    """
    sigma = singular_values(x, centered=centered)
    share = sigma / sigma.sum().clamp(min=torch.finfo(sigma.dtype).tiny)
    return torch.where(sigma[0] > 0, torch.special.entr(share).sum().exp(), 0.0)


def _warn_below_reach(rtol: float, reach: float) -> None:
    # 0.999: the square root of a covariance tolerance may round to just under the reach it stands for.
    if rtol < 0.999 * reach:
        advice = f"count at {reach:.1g} or above on features ({reach**2:.1g} on a covariance), or keep x in a wider format"
        message = f"a tolerance of {rtol:.1g} on singular values is under the reach of this input: it counts rounding; {advice}"
        warnings.warn(message, stacklevel=3)


def _cloud(x: Cloud) -> Tensor | Moments:
    """A matrix or a vector of floats, or moments, with something in it."""
    if isinstance(x, ClassMoments):
        x = x.all
    cloud = x if isinstance(x, Moments) else reals(x, "a cloud")
    shape = (cloud.count, len(cloud.mean)) if isinstance(cloud, Moments) else tuple(cloud.shape)
    if len(shape) not in (1, 2):
        raise ValueError(f"a cloud is a matrix with samples in rows, or a vector of singular values, got shape {shape}")
    if 0 in shape:
        raise ValueError(f"a spectrum needs at least one sample and one feature, got shape {shape}")
    return cloud


def _spectrum(sigma: Tensor) -> Tensor:
    sigma = sigma.double().sort(descending=True).values
    require_finite(sigma, "singular values")
    if sigma[-1] < 0:
        raise ValueError(f"a vector is taken for singular values, which are at least 0, got {sigma[-1]:g}")
    return sigma


def _countable_values(x: Tensor | Moments, finest: float, centered: bool) -> Tensor:
    """Singular values good enough to count at a tolerance, the fast way where it is one."""
    if isinstance(x, Tensor) and x.ndim == 2 and max(x.shape) >= 4 * min(x.shape) and finest >= 0.999 * GRAM_REACH:
        wide, mean = _prepared(x, centered)
        sigma = _gram_values(wide.T @ wide if len(x) > x.shape[1] else wide @ wide.T)
        return _above_rounding(sigma, mean, len(x))
    return singular_values(x, centered=centered)


def _prepared(x: Tensor, centered: bool) -> tuple[Tensor, Tensor]:
    wide = x.double()
    mean = wide.mean(0) if centered else torch.zeros_like(wide[0])
    return wide - mean, mean


def _gram_values(gram: Tensor) -> Tensor:
    require_finite(gram, "the cloud, and its squares,")
    return torch.linalg.eigvalsh(gram).flip(0).clamp(min=0).sqrt()


def _above_rounding(sigma: Tensor, mean: Tensor, count: int) -> Tensor:
    # A mean is known to a few eps; subtracting it from n samples leaves at most eps * ||mean|| * sqrt(n) a piece.
    floor = 8 * torch.finfo(torch.float64).eps * mean.norm() * count**0.5
    return torch.where(sigma > floor, sigma, 0.0)
