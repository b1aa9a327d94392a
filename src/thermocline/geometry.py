"""The shape of a cloud of vectors.

Wherever `x` appears it is a matrix with samples in rows, the `Moments` of one, or its singular values
already computed (a vector): the count of a tolerance sweep then costs one decomposition.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thermocline.moments import Moments

Cloud = Float[Tensor, "n d"] | Float[Tensor, "k"] | Moments


def singular_values(x: Cloud, *, centered: bool = True) -> Float[Tensor, "k"]:
    """Singular values of the (centred) sample matrix, largest first, in float64.

        sigma_i(x - mean(x)) = sqrt(lambda_i(scatter(x)))

    From moments the eigenvalues of the float64 scatter resolve sigma_i / sigma_1 down to about 1e-7.

    >>> singular_values(torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    tensor([4.2426, 1.4142], dtype=torch.float64)
    """
    if isinstance(x, Moments):
        gram = x.scatter if centered else x.second_moment()
        return torch.linalg.eigvalsh(gram).flip(0).clamp(min=0).sqrt()[: max(x.count, 1)]
    if x.ndim == 1:
        return x.double()
    wide = x.double()
    return torch.linalg.svdvals(wide - wide.mean(0) if centered else wide)


def numerical_rank(x: Cloud, *, of: Literal["features", "covariance"], rtol: float, centered: bool = True) -> Int[Tensor, ""]:
    """How many singular values exceed a fraction of the largest, of the features or of their covariance.

        #{i : sigma_i > rtol * sigma_1}                                       [masarczyk2023tunnel]

    A covariance has eigenvalues sigma_i^2 / n: rtol = 1e-3 on it is rtol = 0.0316 on features.

    >>> x = torch.diag(torch.tensor([1.0, 0.1, 0.01]))
    >>> [int(numerical_rank(x, of=of, rtol=0.05, centered=False)) for of in ("features", "covariance")]
    [2, 1]
    """
    if of not in ("features", "covariance"):
        raise ValueError(f"of must be 'features' or 'covariance', got {of!r}")
    sigma = singular_values(x, centered=centered)
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
