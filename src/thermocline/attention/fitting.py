"""Refit the rule: the temperature that would have served each row best, as a function of what a rule may know of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thermocline import softmax
from thermocline.attention.rules import Polynomial, Surface, powers

Labelled = tuple[Float[Tensor, "_ _"], Int[Tensor, "_"]]  # logits of rows, -inf where masked, and the true item of each


class FittedBeta(NamedTuple):
    """The rule that was fitted, and of every row what it was fitted to, in float64."""

    rule: Polynomial | Surface
    beta: Float[Tensor, "rows"]
    entropy: Float[Tensor, "rows"]
    n: Float[Tensor, "rows"]


def best_beta(logits: Float[Tensor, "b n"], best: Int[Tensor, "b"], *, bounds: tuple[float, float]) -> Float[Tensor, "b"]:
    """The inverse temperature, within bounds, at which the true item of each row weighs most.

        argmax_beta log softmax(beta e)_y,   slope e_y - E_beta[e], falling in beta

    An item of the largest logit wants beta without end and gets the upper bound, so that the bounds are part of the answer;
    one below the mean of the row, or any where all logits are equal, gets the lower. Halvings of log beta, to 1e-12 of it.

    >>> e = torch.tensor([[0.0, 2.0, 1.5], [0.0, 2.0, 1.0]])
    >>> best_beta(e, torch.tensor([1, 0]), bounds=(0.5, 10.0))
    tensor([10.0000,  0.5000], dtype=torch.float64)
    """
    low, high = bounds
    if not 0 < low < high < math.inf:
        raise ValueError(f"bounds are the least and the largest beta, above 0 and finite, got {bounds}")
    if best.shape != logits.shape[:1]:
        raise ValueError(f"every row has one true item, got {tuple(best.shape)} of them for logits {tuple(logits.shape)}")
    e = logits.detach().double()
    wanted = e.gather(1, best[:, None])
    if not wanted.isfinite().all():
        raise ValueError("the true item of every row must have a finite logit: some are masked, or NaN")
    masked = e == -math.inf
    gaps = (e - wanted).masked_fill(masked, 0)
    # Said outright: by its mean, a row whose other weights have underflown would seem to rise no further.
    endless = (gaps.amax(1, keepdim=True) == 0) & (gaps.amin(1, keepdim=True) < 0)
    least, most = (torch.full_like(wanted, math.log(bound)) for bound in bounds)
    for _ in range(max(math.ceil(math.log2(math.log(high / low) * 1e12)), 1)):
        middle = (least + most) / 2
        p = torch.softmax((gaps * middle.exp()).masked_fill(masked, -math.inf), 1)
        rising = endless | ((p * gaps).sum(1, keepdim=True) < 0)
        least, most = torch.where(rising, middle, least), torch.where(rising, most, middle)
    return ((least + most) / 2).exp().squeeze(1)


def fit_beta(rows: Sequence[Labelled], *, degree: int, bounds: tuple[float, float], length: bool) -> FittedBeta:
    """A rule by least squares on the best beta of labelled rows: a polynomial of H, or with `length` of H and log n.

        beta_i ~ sum_k c_k H_i^k   or   sum_{k + l <= degree} c_kl H_i^k (log n_i)^l    [velickovic2024softmax, Fig. 5]

    H is that of softmax(e); `rows` holds one matrix of logits for each length, or any number of them.

    >>> e = torch.tensor([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]])
    >>> fitted = fit_beta([(e, torch.tensor([0, 0]))], degree=1, bounds=(1.0, 3.0), length=False)
    >>> [round(float(beta), 4) for beta in fitted.beta], len(fitted.rule.coefficients)
    ([1.0, 3.0], 2)
    """
    if degree < 1:
        raise ValueError(f"degree must be at least 1, got {degree}")
    beta = torch.cat([best_beta(e, best, bounds=bounds) for e, best in rows])
    entropy = torch.cat([softmax.masked_entropy(e.detach().double()) for e, _ in rows])
    n = torch.cat([(e > -math.inf).sum(1).double() for e, _ in rows])
    if length and len(n.unique()) <= degree:
        raise ValueError(f"a polynomial of degree {degree} in log n needs rows of {degree + 1} lengths, got {len(n.unique())}")
    if length:
        terms = [entropy**i * n.log() ** j for i, j in powers(degree)]
        rule = Surface(_least_squares(terms, beta), degree, bounds[1], name="refitted surface")
    else:
        terms = [entropy**i for i in range(degree, -1, -1)]
        rule = Polynomial(_least_squares(terms, beta), name="refitted polynomial")
    return FittedBeta(rule, beta, entropy, n)


def _least_squares(terms: list[Tensor], wanted: Tensor) -> tuple[float, ...]:
    # The pseudo-inverse gives the smallest coefficients where rows cannot tell terms apart.
    return tuple((torch.linalg.pinv(torch.stack(terms, 1)) @ wanted).tolist())
