"""A temperature divides logits: probabilities, losses and entropies at it, and temperatures that hold one of them."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional

Temperature = float | Float[Tensor, ""]  # a tensor where it moves on the device; it is then taken to be above 0


def softmax(logits: Float[Tensor, "*shape"], *, temperature: Temperature, dim: int = -1) -> Float[Tensor, "*shape"]:
    """Probabilities of logits at a temperature: T -> 0 picks the largest, T -> infinity is uniform.

        softmax_T(e)_k = exp(e_k / T) / sum_j exp(e_j / T)                    [masarczyk2025softmax, Sec. 2]

    >>> softmax(torch.tensor([1.0, 3.0, 2.0]), temperature=1e-3)
    tensor([0., 1., 0.])
    """
    return torch.softmax(_shifted(logits, temperature, dim), dim)


def tempered_cross_entropy(
    logits: Float[Tensor, "n c"], labels: Integer[Tensor, "n"], *, temperature: Temperature, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Mean negative log-probability of the labels at a temperature, in nats.

        L = -(1/n) sum_i log softmax_T(e_i)_{y_i}                             [masarczyk2025softmax, Sec. 2]

    `label_smoothing` s makes the target (1 - s) onehot(y) + s / c [szegedy2016rethinking, Sec. 7].

    >>> tempered_cross_entropy(torch.zeros(3, 100), torch.tensor([0, 1, 2]), temperature=50.0)  # log 100
    tensor(4.6052)
    """
    return functional.cross_entropy(tempered(logits, temperature), _indices(labels), label_smoothing=label_smoothing)


def tempered_mse(
    logits: Float[Tensor, "n c"], labels: Integer[Tensor, "n"], *, temperature: Temperature, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Mean squared distance of the probabilities at a temperature from the labels, summed over classes: the Brier score.

        L = (1/n) sum_i ||softmax_T(e_i) - q_i||^2,   q = (1 - s) onehot(y) + s / c   [brier1950verification]

    >>> tempered_mse(torch.zeros(3, 4), torch.tensor([0, 1, 2]), temperature=50.0)  # 1 - 1 / 4
    tensor(0.7500)
    """
    if labels.shape != logits.shape[:1]:
        raise ValueError(f"there must be a label for each row of logits, got {tuple(labels.shape)} for {tuple(logits.shape)}")
    probabilities = softmax(logits, temperature=temperature)
    labelled = functional.one_hot(_indices(labels), logits.shape[1]).to(probabilities)
    target = labelled * (1 - label_smoothing) + label_smoothing / logits.shape[1]
    return (probabilities - target).square().sum(1).mean()


def logit_norm_cross_entropy(
    logits: Float[Tensor, "n c"], labels: Integer[Tensor, "n"], *, temperature: Temperature, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Cross-entropy of logits brought to unit norm: no net can lower it by growing them.

        L = -(1/n) sum_i log softmax_T(e_i / ||e_i||)_{y_i}                   [wei2022logitnorm]

    >>> scores = torch.tensor([[3.0, 4.0]])
    >>> [round(logit_norm_cross_entropy(s * scores, torch.tensor([1]), temperature=1.0).item(), 4) for s in (1, 100)]
    [0.5981, 0.5981]
    """
    # The constant of the authors' code, which keeps a zero vector a zero vector.
    wide = widened(logits)
    unit = wide / (wide.norm(dim=1, keepdim=True) + 1e-7)
    return tempered_cross_entropy(unit, labels, temperature=temperature, label_smoothing=label_smoothing)


def temperature_for_norm(logits: Float[Tensor, "n c"], target: float) -> Float[Tensor, ""]:
    """The temperature at which the softmax sees logits of a wanted size.

        T = ||M||_F / (sqrt(n) target)                                        [masarczyk2025softmax, Fig. 2]

    >>> temperature_for_norm(torch.tensor([[3.0, 4.0], [0.0, 5.0]]), 0.5)
    tensor(10.)
    """
    wide = widened(logits)
    return (wide.norm() / (len(logits) ** 0.5 * target)).clamp(min=torch.finfo(wide.dtype).tiny)


def temperature_for_entropy(logits: Float[Tensor, "n c"], target: float) -> Float[Tensor, ""]:
    """The temperature at which the mean entropy of the softmax, which rises with T, has a wanted value in nats.

        mean_i H(softmax_T(e_i)) = target,   dH/dT = mean_i Var_p(e_i) / T^3 >= 0   [velickovic2024softmax]

    Found by halving an interval of log T, a fixed number of times, so that a GPU can replay it: to a millionth of T,
    between 1e-6 and 1e6 of the spread of the logits.

    >>> logits = torch.tensor([[1.0, 2.0, 4.0]])
    >>> round(entropy(logits, temperature=temperature_for_entropy(logits, 0.7)).item(), 5)
    0.7
    """
    if not 0 < target < math.log(logits.shape[1]):
        raise ValueError(f"the entropy over {logits.shape[1]} classes lies between 0 and {math.log(logits.shape[1]):.4g}")
    wide = widened(logits)
    with torch.no_grad():
        spread = (wide.amax(1) - wide.amin(1)).mean().clamp(min=torch.finfo(torch.float32).tiny)
        low, high = spread.log() - math.log(1e6), spread.log() + math.log(1e6)
        for _ in range(26):
            middle = (low + high) / 2
            hot = entropy(wide, temperature=middle.exp()).mean() > target
            low, high = torch.where(hot, low, middle), torch.where(hot, middle, high)
        found = ((low + high) / 2).exp()
        z = _shifted(wide, found, 1)
        p = torch.softmax(z, 1)
        slope = (p * (z - (p * z).sum(1, keepdim=True)).square()).sum(1).mean()
    # H(e, T(e)) = target for all e, so d log T / de = -(dH/de) / (dH / d log T), the latter being mean_i Var_p(e_i / T): what
    # follows is T, with that gradient.
    here = entropy(wide, temperature=found).mean()
    return found * (1 - (here - here.detach()) / slope.clamp(min=torch.finfo(wide.dtype).tiny))


def entropy(logits: Float[Tensor, "*shape"], *, temperature: Temperature = 1.0, dim: int = -1) -> Float[Tensor, "*rest"]:
    """Entropy of softmax_T in nats, from shifted logits so that no T overflows and near-certainty is not rounded to 0.

        H = log sum_j exp(z_j) - sum_j p_j z_j,   z = (e - max(e)) / T        [velickovic2024softmax]

    >>> entropy(torch.zeros(2, 8)) / torch.tensor(8.0).log()
    tensor([1., 1.])
    """
    z = _shifted(logits, temperature, dim)
    p = torch.softmax(z, dim)
    # p = 0 where z is -inf (a mask) or far below the maximum: such entries add nothing, but 0 * inf would add NaN.
    return torch.logsumexp(z, dim) - (p * z.masked_fill(p == 0, 0)).sum(dim)


def tempered(logits: Float[Tensor, "*shape"], temperature: Temperature) -> Float[Tensor, "*shape"]:
    """The logits that a softmax sees, in float32 or wider.

        e / T                                                                 [masarczyk2025softmax, Sec. 2]

    >>> tempered(torch.tensor([10.0, 30.0]), 10.0)
    tensor([1., 3.])
    """
    # To look at a tensor is to wait for its device.
    if not isinstance(temperature, Tensor) and not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    return widened(logits) / temperature


def widened(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The same in float32 or wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _shifted(logits: Tensor, temperature: Temperature, dim: int) -> Tensor:
    """`tempered` logits of which the largest is 0: a T near 0 then takes the others to -inf, and that one nowhere."""
    wide = widened(logits)
    return tempered(wide - wide.detach().amax(dim, keepdim=True), temperature)


def _indices(labels: Tensor) -> Tensor:
    """Class indices in the one type that losses take; what is not whole is left for them to refuse."""
    return labels if labels.is_floating_point() else labels.long()
