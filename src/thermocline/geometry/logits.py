"""What a softmax does to rank: how many directions logits need, have, and have afterwards."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int, Integer, Real
from torch import Tensor

from thermocline.geometry.collapse import bias_column
from thermocline.geometry.spectra import numerical_rank
from thermocline.moments import Array, matrix, require_finite, require_labels
from thermocline.softmax import softmax


class SoftmaxRank(NamedTuple):
    """Numerical rank of logits, and of the probabilities made of them."""

    before: Int[Tensor, ""]
    after: Int[Tensor, ""]


def functional_rank(
    logits: Real[Array, "n c"], labels: Integer[Array, "n"], *, keep: float = 0.99, centered: bool = True
) -> Int[Tensor, ""]:
    """How many singular directions of the logits the accuracy needs.

        min{k : acc(mean + (M - mean)_k) >= keep * acc(M)},   (.)_k the best rank-k fit   [eckart1936approximation]

    0 means that one constant guess is as good. `centered=False` truncates M itself, with no mean to add back.

    >>> functional_rank(torch.diag(torch.tensor([3.0, 2.0, 1.0])), torch.arange(3), keep=0.6, centered=False)
    tensor(2)
    """
    logits = matrix(logits, "logits")
    labels = _known(logits, labels, classes=logits.shape[1])
    require_finite(logits, "logits")
    wide = logits.detach().double()
    mean = wide.mean(0) if centered else torch.zeros_like(wide[0])
    axes = _principal_axes(wide - mean)
    needed = _needed(mean, (wide - mean) @ axes, axes, labels, wide, keep=keep)
    return torch.tensor(needed, device=logits.device)


class HeadSubspace(NamedTuple):
    """The first principal directions of a head's inputs, as many as its accuracy needs; `dim` of all the columns of `axes`."""

    dim: Int[Tensor, ""]
    mean: Float[Tensor, "d"]
    axes: Float[Tensor, "d d"]

    def project(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The features as the subspace has them: mean + P_k (h - mean)."""
        if features.shape[1:] != self.mean.shape:
            raise ValueError(f"the subspace is of {len(self.mean)} features, and these are {tuple(features.shape)}")
        axes = self.axes[:, : int(self.dim)]
        return self.mean + (features.double() - self.mean) @ axes @ axes.T

    def on(
        self,
        features: Real[Array, "n d"],
        labels: Integer[Array, "n"],
        weight: Real[Array, "c d"],
        bias: Real[Array, "c"] | None,
        *,
        keep: float,
    ) -> HeadSubspace:
        """The same directions, as many of them as these samples need."""
        wide, known, read = _readable(features, labels, weight)
        return _subspace(self.mean, self.axes, wide, known, read, bias, keep=keep)


def head_subspace(
    features: Real[Array, "n d"],
    labels: Integer[Array, "n"],
    weight: Real[Array, "c d"],
    bias: Real[Array, "c"] | None,
    *,
    keep: float,
) -> HeadSubspace:
    """How many principal directions of its inputs a linear head needs to keep its accuracy.

        min{k : acc(W (mean + P_k (h - mean)) + b) >= keep * acc(W h + b)}    [masarczyk2025softmax]

    P_k projects onto the first k principal axes of these features. 0 means that one constant guess is as good.

    >>> turn = torch.tensor([[2.0, 0.0, 0.1], [-2.0, 0.0, 0.1], [0.0, 0.2, -0.2]])
    >>> int(head_subspace(turn, torch.tensor([0, 1, 1]), torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]]), None, keep=1.0).dim)
    1
    """
    wide, known, read = _readable(features, labels, weight)
    mean = wide.mean(0)
    return _subspace(mean, _principal_axes(wide - mean), wide, known, read, bias, keep=keep)


def _subspace(
    mean: Tensor, axes: Tensor, features: Tensor, labels: Tensor, weight: Tensor, bias: Array | None, *, keep: float
) -> HeadSubspace:
    scores, directions = (features - mean) @ axes, weight @ axes
    start = (weight @ mean[:, None] + bias_column(bias, len(weight)))[:, 0]
    needed = _needed(start, scores, directions, labels, scores @ directions.T + start, keep=keep)
    return HeadSubspace(torch.tensor(needed, device=mean.device), mean, axes)


def _readable(features: Array, labels: Array, weight: Array) -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels and the weight of the head that reads them, as numbers and of one size."""
    features, weight = matrix(features, "features"), matrix(weight, "the weight of the head")
    labels = _known(features, labels, classes=len(weight))
    if weight.shape[1] != features.shape[1]:
        raise ValueError(f"the head reads {weight.shape[1]} features, and there are {features.shape[1]}")
    require_finite(features, "features")
    require_finite(weight, "the weight of the head")
    return features.detach().double(), labels, weight.detach().double()


def _principal_axes(centred: Tensor) -> Tensor:
    return torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)


def _needed(start: Tensor, scores: Tensor, directions: Tensor, labels: Tensor, whole: Tensor, *, keep: float) -> int:
    """The least k at which start + sum_{j < k} scores_j directions_j^T keeps a share of the accuracy of the whole logits."""
    if not 0 < keep <= 1:
        raise ValueError(f"keep is the share of the accuracy to keep, in (0, 1], got {keep}")
    # 1e-9 absorbs the rounding of keep * count; as a tensor that would be of the default type, float32 as a rule.
    enough = keep * int((whole.argmax(1) == labels).sum()) - 1e-9
    logits = start.repeat(len(scores), 1)
    for k in range(scores.shape[1]):
        if (logits.argmax(1) == labels).sum() >= enough:
            return k
        logits.addr_(scores[:, k], directions[:, k])
    return scores.shape[1]


def _known(samples: Tensor, labels: Array, *, classes: int) -> Tensor:
    """The labels of some samples at least, of these classes all; or an accuracy would be 0, or 0 / 0."""
    found = require_labels(len(samples), labels)
    if not len(found):
        raise ValueError("an accuracy needs samples, got none")
    if found.min() < 0 or found.max() >= classes:
        raise ValueError(f"labels must lie in 0..{classes - 1}, got {found.min()}..{found.max()}")
    return found


def softmax_rank(
    logits: Float[Tensor, "n c"],
    *,
    temperature: float,
    of: Literal["features", "covariance"],
    rtol: float,
    centered: bool = False,
) -> SoftmaxRank:
    """Numerical rank of logits before and after the softmax: it can give back far more than it was given.

        rank(M),  rank(softmax_T(M))                                          [masarczyk2025softmax, Fig. 6]

    A row is a sample and the softmax runs along it; uncentred, as in the figure, where uniform probabilities have rank 1.

    >>> softmax_rank(torch.outer(torch.arange(3.0), torch.arange(4.0)), temperature=1.0, of="features", rtol=1e-3)
    SoftmaxRank(before=tensor(1), after=tensor(3))
    """
    given = logits.detach()
    probabilities = softmax(given.double(), temperature=temperature)
    before, after = (numerical_rank(x, of=of, rtol=rtol, centered=centered) for x in (given, probabilities))
    return SoftmaxRank(before, after)


def softmax_gap_bound(probabilities: Real[Array, "c n"], *, sharp: bool) -> Float[Tensor, ""]:
    """An upper bound on sigma_1 - sigma_n of a softmax output, from how much its columns overlap.

        sqrt(1 + r) - sqrt(max(1/c - r, 0)),   r = max_i r_i,  r_i = sum_{j != i} <s_i, s_j>   [masarczyk2025softmax, Prop. 3.1]
        sharp: sqrt(max_i(||s_i||^2 + r_i)) - sqrt(max(min_i(||s_i||^2 - r_i), 0))

    COLUMNS s_i are probability vectors over c classes, as in the paper (transpose what has samples in rows); its S is
    square, so its 1/n is this 1/c. Both are Gershgorin discs of S^T S; sigma_n is 0 when c < n.

    >>> softmax_gap_bound(torch.eye(2), sharp=False), softmax_gap_bound(torch.eye(2), sharp=True)
    (tensor(0.2929, dtype=torch.float64), tensor(0., dtype=torch.float64))
    """
    probabilities = matrix(probabilities, "probabilities")
    if not probabilities.numel():
        raise ValueError(f"a gap needs classes and columns, got shape {tuple(probabilities.shape)}")
    s = probabilities.double()
    off, least = float((s.sum(0) - 1).abs().max()), float(s.min())
    coarse = max(torch.finfo(dtype).eps for dtype in (probabilities.dtype, torch.float32))  # float64 may hold what float32 made
    if not (off <= coarse**0.5 and least >= 0):  # NaN is neither
        problem = f"an entry is {least:.2g}" if least < 0 else f"a column sum is off by {off:.2g}"
        raise ValueError(f"columns must be probability vectors (if yours are in rows, transpose); {problem}")
    gram = s.T @ s
    energy = gram.diagonal()
    overlap = gram.sum(1) - energy
    high, low = (energy + overlap).max(), (energy - overlap).min()
    if not sharp:
        high, low = 1 + overlap.max(), 1 / len(s) - overlap.max()
    return high.sqrt() - low.clamp(min=0).sqrt()


def circle_code(classes: int) -> Float[Tensor, "c 2"]:
    """Classes as points on a circle: a head of rank 2 that gets every class right.

        u_k = (cos theta_k, sin theta_k),  theta_k = 2 pi k / c               [masarczyk2025softmax, Prop. 3.2]

    Logits of samples with labels y are s * code[y] @ code.T: entry (i, k) is s cos(theta_k - theta_{y_i}).

    >>> (circle_code(4) @ circle_code(4).T).round().int()[0]
    tensor([ 1,  0, -1,  0], dtype=torch.int32)
    """
    theta = 2 * math.pi * torch.arange(classes, dtype=torch.float64) / classes
    return torch.stack([theta.cos(), theta.sin()], dim=1)


def circle_scale(classes: int, probability: float) -> float:
    """The scale at which the circle code gives the right class a wanted probability; it grows as c^2.

        s such that 1 / sum_k exp(-s (1 - cos(2 pi k / c))) = p               [masarczyk2025softmax, Prop. 3.2]

    By bisection of that sum, which falls in s.

    >>> round(circle_scale(10, 0.9), 1), round(circle_scale(2, 0.5 + 1e-12), 6)
    (15.1, 0.0)
    """
    high = circle_scale_bound(classes, probability)
    # 1 - cos(x) = 2 sin(x/2)^2, without the cancellation at many classes.
    gaps = 2 * (math.pi * torch.arange(classes, dtype=torch.float64, device="cpu") / classes).sin().square()
    low = 0.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if float((-middle * gaps).exp().sum()) > 1 / probability else (low, middle)
    return high


def circle_scale_bound(classes: int, probability: float) -> float:
    """A scale that is enough for `circle_scale`, in closed form: all wrong classes are taken as close as the nearest.

        s >= ln((c - 1) p / (1 - p)) / (1 - cos(2 pi / c))                    [masarczyk2025softmax, Prop. 3.2]

    >>> round(circle_scale_bound(10, 0.9))
    23
    """
    if classes < 2:
        raise ValueError(f"a circle code needs two classes or more, got {classes}")
    if not 1 / classes < probability < 1:
        raise ValueError(f"the probability must be above chance, 1/{classes}, and below 1, got {probability}")
    return math.log((classes - 1) * probability / (1 - probability)) / (2 * math.sin(math.pi / classes) ** 2)
