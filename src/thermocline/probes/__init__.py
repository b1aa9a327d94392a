"""Linear read-outs of frozen features, and what their accuracies by layer say about depth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int, Integer, Real
from torch import Tensor

from thermocline.moments import Array, ClassMoments, matrix, reals, require_finite, unrounded
from thermocline.probes.bank import Settings
from thermocline.probes.learner import Learner

K = TypeVar("K", bound=Hashable)
Accuracies = Real[Array, "layers"] | Sequence[int | float]
Stream = Iterable[tuple[Mapping[K, Real[Array, "b d"]], Integer[Array, "b"]]]  # features by tap, and labels, in batches


class Probe(NamedTuple):
    """An affine read-out: class scores are x W^T + b."""

    weight: Float[Tensor, "c d"]
    bias: Float[Tensor, "c"]

    def predict(self, x: Real[Array, "n d"]) -> Int[Tensor, "n"]:
        """The class of the largest score."""
        with unrounded(self.weight):
            return torch.addmm(self.bias, matrix(x, "x").to(self.weight.dtype), self.weight.T).argmax(1)


def ridge_probe(moments: ClassMoments, *, alpha: float) -> Probe:
    """The linear probe that best fits one-hot labels under an L2 penalty, in closed form from class moments.

        W = (S + alpha I)^-1 X^T Y,   S = X^T X   (X, Y centred; Y one-hot)   [hoerl1970ridge, Eq. 2.1]

    The penalty is on the sum of squared errors, as in scikit-learn's Ridge; the intercept is not penalised.
    """
    if not 0 <= alpha < math.inf:
        raise ValueError(f"alpha is a penalty of at least 0, got {alpha}")
    every = moments.all
    if not every.count:
        raise ValueError("a probe needs samples, and these moments have seen none")
    require_finite(every.scatter, "the scatter of features that a probe is fitted to")
    cross = moments.counts[:, None] * (moments.means - every.mean)
    regular = every.scatter + alpha * torch.eye(len(every.mean), dtype=torch.float64, device=every.mean.device)
    factor, failed = torch.linalg.cholesky_ex(regular)
    # Where features are constant, or depend on each other, rounding may leave a factor, but next to nothing on its diagonal.
    eps = torch.finfo(torch.float64).eps
    rounding = len(regular) * eps * regular.diagonal() + every.count * (every.count * eps * every.mean).square()
    if failed or (not alpha and (factor.diagonal().square() <= rounding).any()):
        raise ValueError(f"features that are constant, or depend on each other, need alpha above 0, got {alpha}")
    weight = torch.cholesky_solve(cross.T, factor).T
    return Probe(weight, moments.counts / every.count - weight @ every.mean)


class Fit(NamedTuple):
    """A trained probe, the grid point it was trained at, and its accuracy on the validation split, if there was one."""

    probe: Probe
    lr: float
    weight_decay: float
    validation_accuracy: float | None


def fit_probes(
    epochs: Callable[[], Stream[K]],
    *,
    classes: int,
    passes: int = 30,
    batch: int = 512,
    lr: Sequence[float] = (1e-3,),
    weight_decay: Sequence[float] = (0.0,),
    validation: Callable[[], Stream[K]] | None = None,
    label_smoothing: float = 0.0,
) -> dict[K, Fit]:
    """Softmax regressions on all taps at once: one pass over the frozen net serves every tap and every grid point.

        p = softmax(W x + b),   loss = -sum_k q_k log p_k                     [alain2017probes]
        q = (1 - s) onehot(label) + s / c,   s = label_smoothing              [szegedy2016rethinking, Sec. 7]

    Adam [kingma2015adam, Alg. 1] for a fixed number of passes; the defaults are those of [masarczyk2023tunnel], and
    smoothing of 0.1 is that of [harun2024variables]. Weight decay is decoupled, W <- (1 - lr * weight_decay) W at
    each step [loshchilov2019decoupled, Alg. 2], and spares the intercept, as `ridge_probe` does.

    Each call of `epochs` gives one pass: features by tap, used as they are, and labels. Rows are taken in the order
    given (shuffle there) and re-cut to `batch` rows, so the sizes they come in do not matter; the last batch of a
    pass may be short. The loss is convex, so W and b start at zero and nothing is random. Float32, or float64
    where a tap's features are. Of several (lr, weight_decay) each tap takes the most accurate on `validation`, the
    first among equals. Memory is O(grid * c * d) a tap: no features are kept beyond a batch.

    >>> x, labels = torch.tensor([[-1.0], [1.0], [2.0]]), torch.tensor([0, 1, 1])
    >>> fit_probes(lambda: [({"head": x}, labels)], classes=2)["head"].probe.predict(x)
    tensor([0, 1, 1])
    """
    grid = _grid(lr, weight_decay, validated=validation is not None)
    _check_settings(classes, passes, batch, label_smoothing)
    learner = Learner[K](Settings(classes, batch, grid, label_smoothing))
    for index in range(passes):
        learner.read(epochs(), where := f"pass {index + 1} of {passes}", learner.step)
        learner.check(where)
    if validation is None:
        return {tap: _fit(learner, tap, 0, None) for tap in learner.widths}
    learner.read(validation(), where := "the validation split", learner.score)
    scores = learner.accuracy(where)
    return {tap: _fit(learner, tap, score.index(max(score)), max(score)) for tap, score in scores.items()}


def effective_depth(accuracy: Accuracies, threshold: float = 0.99) -> Float[Tensor, ""]:
    """The share of layers after which a probe is as good as at the last layer.

        kappa = min{l : a_l >= threshold * a_L} / L                           [masarczyk2025softmax, Sec. 2.1]

    >>> effective_depth(torch.tensor([0.2, 0.995, 0.9, 1.0]))
    tensor(0.5000)
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold is a share of the last layer's accuracy, in (0, 1], got {threshold}")
    by_layer = _by_layer(accuracy)
    # Accuracies are rounded quotients of counts: 0.9207 is 0.99 of 0.93.
    slack = max(1e-9, torch.finfo(by_layer.dtype).eps)
    good = by_layer >= (threshold - slack) * by_layer[-1]
    return (good.int().argmax() + 1).to(by_layer.dtype) / len(by_layer)


def ood_drop(accuracy: Accuracies) -> Float[Tensor, ""]:
    """How much of the best layer's OOD probe accuracy the last layer has lost.

        rho = (max_l a_l - a_L) / max_l a_l                                   [masarczyk2025softmax, Sec. 2.1]

    >>> ood_drop(torch.tensor([0.2, 0.8, 0.4]))
    tensor(0.5000)
    """
    by_layer = _by_layer(accuracy)
    best = by_layer.max()
    if not best > 0:
        raise ValueError("a drop is a share of the best layer's accuracy, and no layer got anything right")
    return (best - by_layer[-1]) / best


def _by_layer(accuracy: Accuracies) -> Tensor:
    values = reals(accuracy, "accuracy")
    if values.ndim != 1 or not len(values):
        raise ValueError(f"accuracy must be a vector with one value a layer, got shape {tuple(values.shape)}")
    require_finite(values, "accuracy")
    if (values < 0).any():
        raise ValueError(f"accuracy must be at least 0, got {values.min():g}")
    return values


def _fit(learner: Learner[K], tap: K, index: int, accuracy: float | None) -> Fit:
    return Fit(Probe(*learner.probe(tap, index)), *learner.settings.grid[index], accuracy)


def _grid(lr: Sequence[float], weight_decay: Sequence[float], *, validated: bool) -> list[tuple[float, float]]:
    if not lr or not all(0 < rate < math.inf for rate in lr):
        raise ValueError(f"lr must be learning rates above 0, got {lr}")
    if not weight_decay or not all(0 <= decay < math.inf for decay in weight_decay):
        raise ValueError(f"weight_decay must be numbers of at least 0, got {weight_decay}")
    grid = list(itertools.product(map(float, lr), map(float, weight_decay)))
    rate, decay = max(grid, key=math.prod)
    if rate * decay >= 1:
        raise ValueError(
            f"weight_decay {decay} at lr {rate} leaves nothing of W at each step: lr * weight_decay must be below 1"
        )
    if len(grid) > 1 and not validated:
        raise ValueError(
            f"one of {len(grid)} (lr, weight_decay) is chosen on a validation split: pass validation=, or one of each"
        )
    return grid


def _check_settings(classes: int, passes: int, batch: int, label_smoothing: float) -> None:
    for name, value, least in (("classes", classes, 2), ("passes", passes, 1), ("batch", batch, 1)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be at least 0 and below 1, got {label_smoothing}")
