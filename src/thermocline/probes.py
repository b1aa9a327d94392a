"""Linear read-outs of frozen features, and what their accuracies by layer say about depth."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thermocline.moments import ClassMoments


class Probe(NamedTuple):
    """An affine read-out: class scores are x W^T + b."""

    weight: Float[Tensor, "c d"]
    bias: Float[Tensor, "c"]

    def predict(self, x: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
        """The class of the largest score."""
        return torch.addmm(self.bias, x.to(self.weight.dtype), self.weight.T).argmax(1)


def ridge_probe(moments: ClassMoments, *, alpha: float) -> Probe:
    """The linear probe that best fits one-hot labels under an L2 penalty, in closed form from class moments.

        W = (S + alpha I)^-1 X^T Y,   S = X^T X   (X, Y centred; Y one-hot)   [hoerl1970ridge, Eq. 2.1]

    The penalty is on the sum of squared errors, as in scikit-learn's Ridge; the intercept is not penalised.
    """
    every = moments.all
    cross = moments.counts[:, None] * (moments.means - every.mean)
    regular = every.scatter + alpha * torch.eye(len(every.mean), dtype=torch.float64, device=every.mean.device)
    weight = torch.cholesky_solve(cross.T, torch.linalg.cholesky(regular)).T
    return Probe(weight, moments.counts / every.count - weight @ every.mean)


def effective_depth(accuracy: Float[Tensor, "layers"], threshold: float = 0.99) -> Float[Tensor, ""]:
    """The share of layers after which a probe is as good as at the last layer.

        kappa = min{l : a_l >= threshold * a_L} / L                           [masarczyk2025softmax, Sec. 2.1]

    >>> effective_depth(torch.tensor([0.2, 0.995, 0.9, 1.0]))
    tensor(0.5000)
    """
    good = accuracy >= threshold * accuracy[-1]
    return (good.int().argmax() + 1) / torch.tensor(float(len(accuracy)), device=accuracy.device)


def ood_drop(accuracy: Float[Tensor, "layers"]) -> Float[Tensor, ""]:
    """How much of the best layer's OOD probe accuracy the last layer has lost.

        rho = (max_l a_l - a_L) / max_l a_l                                   [masarczyk2025softmax, Sec. 2.1]

    >>> ood_drop(torch.tensor([0.2, 0.8, 0.4]))
    tensor(0.5000)
    """
    best = accuracy.max()
    # Where no layer gets anything right there is nothing to lose: 0, not 0 / 0.
    return (best - accuracy[-1]) / best.clamp(min=torch.finfo(best.dtype).tiny)
