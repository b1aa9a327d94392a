"""Temperature maths on logits. A temperature divides logits; nothing here guesses what it was given."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def softmax(logits: Float[Tensor, "*shape"], *, temperature: float, dim: int = -1) -> Float[Tensor, "*shape"]:
    """Probabilities of logits at a temperature: T -> 0 picks the largest, T -> infinity is uniform.

        softmax_T(e)_k = exp(e_k / T) / sum_j exp(e_j / T)                    [masarczyk2025softmax, Sec. 2]

    >>> softmax(torch.tensor([1.0, 3.0, 2.0]), temperature=1e-3)
    tensor([0., 1., 0.])
    """
    return torch.softmax(_tempered(logits, temperature), dim)


def tempered_cross_entropy(logits: Float[Tensor, "n c"], labels: Int[Tensor, "n"], *, temperature: float) -> Float[Tensor, ""]:
    """Mean negative log-probability of the labels at a temperature, in nats.

        L = -(1/n) sum_i log softmax_T(e_i)_{y_i}                             [masarczyk2025softmax, Sec. 2]

    >>> tempered_cross_entropy(torch.zeros(3, 100), torch.tensor([0, 1, 2]), temperature=50.0)  # log 100
    tensor(4.6052)
    """
    return torch.nn.functional.cross_entropy(_tempered(logits, temperature), labels)


def entropy(logits: Float[Tensor, "*shape"], *, temperature: float = 1.0, dim: int = -1) -> Float[Tensor, "*rest"]:
    """Entropy of softmax_T in nats, from shifted logits so that no T overflows and near-certainty is not rounded to 0.

        H = log sum_j exp(z_j) - sum_j p_j z_j,   z = e / T - max(e / T)      [velickovic2024softmax]

    >>> entropy(torch.zeros(2, 8)) / torch.tensor(8.0).log()
    tensor([1., 1.])
    """
    z = _tempered(logits, temperature)
    z = z - z.amax(dim, keepdim=True)
    p = torch.softmax(z, dim)
    # p = 0 where z is -inf (a mask) or far below the maximum: such entries add nothing, but 0 * inf would add NaN.
    return torch.logsumexp(z, dim) - (p * z.masked_fill(p == 0, 0)).sum(dim)


def _tempered(logits: Tensor, temperature: float) -> Tensor:
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    return logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
