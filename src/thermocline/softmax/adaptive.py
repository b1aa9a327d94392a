"""A temperature that follows the entropy of what it sharpens: where a softmax has dispersed, it is made colder."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from thermocline.softmax.temperature import entropy, widened

PUBLISHED = (-0.037, 0.481, -2.3, 4.917, -1.791)  # highest power first
GATE = 0.5  # nats; at or below it a row is left alone


def adaptive_beta(entropy: Float[Tensor, "*shape"], coefficients: Sequence[float] = PUBLISHED) -> Float[Tensor, "*shape"]:
    """The inverse temperature for rows of an entropy in nats: never below 1, so that no row is made flatter.

        beta = max(polyval(coefficients, H), 1)   if H > 0.5, else 1          [velickovic2024softmax]

    The published polynomial exceeds 1 for 0.849 < H < 5.945 nats only: beyond some 382 effective items it does nothing.
    In float32 or wider.

    >>> adaptive_beta(torch.tensor([0.5, 0.8, 2.0, 4.41, 6.0]))
    tensor([1.0000, 1.0000, 2.0990, 2.4214, 1.0000])
    """
    wide = widened(entropy)
    value = torch.zeros_like(wide)
    for coefficient in coefficients:
        value = value * wide + coefficient
    return torch.where(wide <= GATE, 1.0, value.clamp(min=1))  # NaN is neither, and stays


def adaptive_softmax(
    logits: Float[Tensor, "*shape"], dim: int = -1, *, coefficients: Sequence[float] = PUBLISHED
) -> Float[Tensor, "*shape"]:
    """Probabilities at the inverse temperature that the entropy of each row asks for.

        softmax(beta e),   beta = adaptive_beta(H(softmax(e)))                [velickovic2024softmax]

    The entropy is exact; the published -sum p log(p + 1e-9) lies below it by n 1e-9 at most. Logits of -inf are masks;
    a row of nothing else gives zeros. In float32 or wider.

    >>> adaptive_softmax(torch.tensor([[3.0, 0.0, -torch.inf], [-torch.inf, -torch.inf, -torch.inf]]))
    tensor([[0.9526, 0.0474, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    beta = adaptive_beta(masked_entropy(logits, dim), coefficients)
    return sharpened(logits, beta, dim)


def masked_entropy(logits: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*rest"]:
    """Entropy in nats of the softmax of logits of which some, or all, are masked by -inf; 0 where all are.

        H = log sum_j exp(e_j) - sum_j p_j e_j                                [velickovic2024softmax]

    >>> masked_entropy(torch.tensor([[1.0, 1.0, -torch.inf], [-torch.inf, -torch.inf, -torch.inf]]))
    tensor([0.6931, 0.0000])
    """
    nothing = _nothing(logits, dim)
    return entropy(logits.masked_fill(nothing, 0), dim=dim).masked_fill(nothing.squeeze(dim), 0)


def sharpened(logits: Float[Tensor, "*shape"], beta: Float[Tensor, "*rest"], dim: int = -1) -> Float[Tensor, "*shape"]:
    """Probabilities of logits at an inverse temperature of every row; a row masked throughout gives zeros.

        softmax(beta e)_k = exp(beta e_k) / sum_j exp(beta e_j)               [velickovic2024softmax]

    >>> sharpened(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0.0, 1e3]))
    tensor([[0.5000, 0.5000],
            [1.0000, 0.0000]])
    """
    e, nothing = widened(logits), _nothing(logits, dim)
    # Masked logits are set aside while beta multiplies: the gradient of beta would otherwise be 0 * inf.
    masked = e == -math.inf
    top = e.detach().masked_fill(nothing, 0).amax(dim, keepdim=True)
    scaled = beta.unsqueeze(dim) * (e.masked_fill(masked, 0) - top)
    return torch.softmax(scaled.masked_fill(masked & ~nothing, -math.inf), dim).masked_fill(nothing, 0)


def _nothing(logits: Tensor, dim: int) -> Bool[Tensor, "*shape"]:
    return (logits == -math.inf).all(dim, keepdim=True)
