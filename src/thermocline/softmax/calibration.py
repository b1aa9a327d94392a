"""Do probabilities say how often a prediction is right, and at which temperature do they?

Everything is summed in float64, some rows at a time, on the device of the input. It carries no gradients: the losses do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional

from thermocline.softmax.temperature import Temperature, softmax, tempered

# Tensors, or arrays of numpy's.
Rows = Float[Tensor | np.ndarray, "n c"]
Labels = Integer[Tensor | np.ndarray, "n"]

REACH = math.log(10)  # the longest step of log T: beyond it, a parabola says little about the likelihood
DRIFT = 1e-4  # how far from 1 a row of probabilities may sum, unless its number format is coarser still


class Reliability(NamedTuple):
    """The samples by confidence, from the least confident bin up; a bin without samples has count, means and all 0."""

    counts: Float[Tensor, "bins"]
    confidence: Float[Tensor, "bins"]
    accuracy: Float[Tensor, "bins"]


def fit_temperature(logits: Rows, labels: Labels) -> float:
    """The temperature at which the labels are likeliest: temperature scaling.

        T = argmin_T -(1/n) sum_i log softmax_T(e_i)_{y_i}                    [guo2017calibration, Sec. 4.2]

    In b = 1/T the loss is convex, with slope mean_i(E_p[e_i] - e_{i,y}) and curvature mean_i Var_p(e_i): the one zero of
    the slope is found by Newton steps in log T, kept within a bracket, to a relative 1e-10, whatever its size. Give the
    logits as the net puts them out: one trained at temperature T is calibrated where the answer is T.

    There is none, which is an error, where every label has the largest logit (the likelihood grows as T -> 0), where
    labels have on average no more than the mean logit (T -> infinity), and where all logits of every sample are equal.

    >>> logits = torch.tensor([[3.0, 0.0]]).expand(4, 2)  # right three times of four: exp(3 / T) = 3
    >>> round(fit_temperature(logits, torch.tensor([0, 0, 0, 1])), 6), round(3 / math.log(3), 6)
    (2.730718, 2.730718)
    """
    logits, labels = _logits(logits, labels)
    spread = _bounded(logits, labels)
    where, low, high = -math.log(spread), -math.inf, math.inf
    while True:
        slope, curvature = _derivatives(logits, labels, math.exp(where))
        low, high = (where, high) if slope < 0 else (low, where)
        # d slope / d log b = b curvature; where that is 0, or next to it, the step is as long as may be.
        bend = math.exp(where) * curvature
        step = -slope / bend if abs(slope) < REACH * bend else math.copysign(REACH, -slope)
        if abs(step) < 1e-10 or high - low < 1e-12:
            return math.exp(-where)
        where = where + step if low < where + step < high else (low + high) / 2


def negative_log_likelihood(
    labels: Labels,
    *,
    logits: Rows | None = None,
    probabilities: Rows | None = None,
    temperature: Temperature | None = None,
) -> Float[Tensor, ""]:
    """Mean negative log-probability of the labels, in nats; infinite where a label has probability 0.

        -(1/n) sum_i log p_i(y_i),   p = softmax_T(e)                         [guo2017calibration, Sec. 2]

    >>> negative_log_likelihood(torch.tensor([0, 1]), probabilities=torch.tensor([[0.5, 0.5], [0.0, 1.0]]))  # log(2) / 2
    tensor(0.3466, dtype=torch.float64)
    """
    rows, labels = _given(labels, logits, probabilities, temperature)
    total = torch.zeros((), dtype=torch.float64, device=rows.device)
    for wide, names in _parts(rows, labels):
        # Not the logarithm of the softmax, which is 0 at 750 below the largest logit.
        log_p = wide.log() if temperature is None else functional.log_softmax(tempered(wide, temperature), 1)
        total -= log_p.gather(1, names[:, None]).sum()
    return total / len(labels)


def brier_score(
    labels: Labels,
    *,
    logits: Rows | None = None,
    probabilities: Rows | None = None,
    temperature: Temperature | None = None,
) -> Float[Tensor, ""]:
    """Mean squared distance of the probabilities from the labels, summed over classes: from 0 to 2.

        (1/n) sum_i ||p_i - onehot(y_i)||^2,   p = softmax_T(e)               [brier1950verification]

    With two classes it is twice the score of the libraries that look at one of them alone.

    >>> brier_score(torch.tensor([0, 1]), probabilities=torch.tensor([[0.5, 0.5], [1.0, 0.0]]))  # (1/2 + 2) / 2
    tensor(1.2500, dtype=torch.float64)
    """
    rows, labels = _given(labels, logits, probabilities, temperature)
    total = torch.zeros((), dtype=torch.float64, device=rows.device)
    for wide, names in _parts(rows, labels):
        p = wide if temperature is None else softmax(wide, temperature=temperature)
        # The square of p_y - 1 in place of that of p_y; as p_y^2 - 2 p_y + 1 it would cancel where p_y is near 1.
        at_label = p.gather(1, names[:, None])
        total += p.scatter(1, names[:, None], at_label - 1).square().sum()
    return total / len(labels)


def expected_calibration_error(
    labels: Labels,
    *,
    logits: Rows | None = None,
    probabilities: Rows | None = None,
    temperature: Temperature | None = None,
    bins: int = 15,
    scheme: Literal["equal-width", "adaptive"],
) -> Float[Tensor, ""]:
    """How far confidence is from accuracy, bin by bin of `reliability`, whose conventions it has.

        ECE = sum_b (n_b / n) |accuracy_b - confidence_b|                     [guo2017calibration, Sec. 2]

    >>> sure = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    >>> expected_calibration_error(torch.tensor([0, 0, 0, 1]), probabilities=sure, scheme="equal-width")
    tensor(0.2500, dtype=torch.float64)
    """
    read = reliability(labels, logits=logits, probabilities=probabilities, temperature=temperature, bins=bins, scheme=scheme)
    return (read.counts * (read.accuracy - read.confidence).abs()).sum() / len(labels)


def reliability(
    labels: Labels,
    *,
    logits: Rows | None = None,
    probabilities: Rows | None = None,
    temperature: Temperature | None = None,
    bins: int = 15,
    scheme: Literal["equal-width", "adaptive"],
) -> Reliability:
    """The count, mean confidence and accuracy of samples of about the same confidence: a reliability diagram.

        confidence = max_k p_k,   right where argmax_k p_k = y                [guo2017calibration, Sec. 2]

    Give logits with the temperature that makes them probabilities, or probabilities; which is never guessed. Bin b of B is
    "equal-width": (b / B, (b + 1) / B]; "adaptive": B #{less confident samples} // n = b, as many samples in each
    [nguyen2015posterior], but for those of equal confidence, which stay together. Of equal probabilities, the first class
    is predicted.

    >>> p = torch.tensor([[0.6, 0.4], [0.3, 0.7], [0.9, 0.1], [0.0, 1.0]])
    >>> reliability(torch.tensor([0, 0, 0, 1]), probabilities=p, bins=2, scheme="adaptive").accuracy
    tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    if scheme not in ("equal-width", "adaptive"):
        raise ValueError(f"scheme must be 'equal-width' or 'adaptive', got {scheme!r}")
    if bins < 1:
        raise ValueError(f"bins is how many groups of confidence there are, at least 1, got {bins}")
    (rows, labels), confidences, rights = _given(labels, logits, probabilities, temperature), [], []
    for wide, names in _parts(rows, labels):
        confidence, prediction = (wide if temperature is None else softmax(wide, temperature=temperature)).max(1)
        confidences.append(confidence)
        rights.append(prediction == names)
    confidence, right = torch.cat(confidences), torch.cat(rights).double()
    index = _equal_width(confidence, bins) if scheme == "equal-width" else _adaptive(confidence, bins)
    counts, *sums = (
        torch.zeros(bins, dtype=torch.float64, device=rows.device).index_add_(0, index, x)
        for x in (torch.ones_like(right), confidence, right)
    )
    return Reliability(counts, *(total / counts.clamp(min=1) for total in sums))


def _equal_width(confidence: Tensor, bins: int) -> Tensor:
    # By comparison with the edges: 0.55 * 100 is a little more than 55.
    return torch.bucketize(confidence, torch.arange(1, bins, dtype=torch.float64, device=confidence.device) / bins)


def _adaptive(confidence: Tensor, bins: int) -> Tensor:
    return torch.searchsorted(confidence.sort().values, confidence) * bins // len(confidence)


def _bounded(logits: Tensor, labels: Tensor) -> float:
    """The spread of the logits, if the likelihood of the labels has its maximum at a temperature above 0 and below infinity.

    The slope of the loss in 1/T rises from mean(mean_k e_k - e_y) at T = infinity to mean(max_k e_k - e_y) at T = 0.
    """
    hot, cold = (torch.zeros((), dtype=torch.float64, device=logits.device) for _ in range(2))
    for gaps in _gaps(logits, labels):
        hot += gaps.mean(1).sum()
        cold += gaps.amax(1).sum()
    hottest, coldest = (torch.stack([hot, cold]) / len(labels)).tolist()
    none = "the labels have no likeliest temperature: "
    if (spread := coldest - hottest) <= 0:
        raise ValueError(none + "all logits of a sample are equal, so that they say the same at any")
    if coldest <= 0:
        raise ValueError(none + "each has the largest logit, so that colder is likelier; fit to samples the net can get wrong")
    # 1e-12 of the spread is rounding, and a temperature that does not tell probabilities from uniform ones.
    if hottest >= -1e-12 * spread:
        raise ValueError(none + "their logits are on average no larger than the others, so that hotter is likelier")
    return spread


def _derivatives(logits: Tensor, labels: Tensor, beta: float) -> tuple[float, float]:
    """The slope and the curvature of the mean negative log-likelihood in beta = 1 / T."""
    total = torch.zeros(2, dtype=torch.float64, device=logits.device)
    for gaps in _gaps(logits, labels):
        p = torch.softmax(gaps * beta, 1)
        mean = torch.linalg.vecdot(p, gaps)
        square = torch.linalg.vecdot(p.mul_(gaps), gaps)
        total += torch.stack([mean.sum(), (square - mean.square()).clamp(min=0).sum()])
    slope, curvature = (total / len(labels)).tolist()
    return slope, curvature


def _gaps(logits: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """How far every logit lies above that of the label, in float64: what a softmax sees, whatever was added to a row."""
    for wide, names in _parts(logits, labels):
        yield wide - wide.gather(1, names[:, None])


def _parts(rows: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Some rows at a time in float64, with their labels: on a CPU as many as its cache holds."""
    step = max(2 ** (17 if rows.device.type == "cpu" else 24) // rows.shape[1], 1)
    for part, names in zip(rows.detach().split(step), labels.split(step)):
        yield part.double(), names.to(rows.device, torch.int64)


def _given(
    labels: Labels, logits: Rows | None, probabilities: Rows | None, temperature: Temperature | None
) -> tuple[Tensor, Tensor]:
    """Whichever of the two was given, if it is what its name says, and the labels."""
    if logits is not None and probabilities is None:
        if temperature is None:
            raise ValueError("logits are probabilities at a temperature: give the one of training, or the fitted one")
        return _logits(logits, labels)
    if probabilities is None or logits is not None:
        raise ValueError(f"give either logits or probabilities, got {'neither' if logits is None else 'both'}")
    if temperature is not None:
        raise ValueError("a temperature divides logits, and probabilities are given")
    rows, labels = _rows(probabilities, labels, "probabilities")
    drift = max(DRIFT, 4 * torch.finfo(rows.dtype).eps)
    for wide, _ in _parts(rows, labels):
        if not ((wide >= 0).all() and ((wide.sum(1) - 1).abs() <= drift).all()):
            raise ValueError(f"probabilities must be at least 0 and sum to 1 (to {drift:.2g}) over classes: are they logits?")
    return rows, labels


def _logits(logits: Rows, labels: Labels) -> tuple[Tensor, Tensor]:
    rows, labels = _rows(logits, labels, "logits")
    # The least and the largest are NaN where any value is.
    if not torch.stack(rows.detach().aminmax()).isfinite().all():
        raise ValueError("logits must not be NaN or infinite")
    return rows, labels


def _rows(given: Rows, indices: Labels, what: str) -> tuple[Tensor, Tensor]:
    """Rows of floats and their labels, as tensors; raise unless they fit."""
    rows, labels = _tensor(given), _tensor(indices)
    if rows.ndim != 2 or not rows.numel() or not rows.is_floating_point():
        raise ValueError(f"{what} must be floats, samples by classes, got {rows.dtype} of shape {tuple(rows.shape)}")
    if labels.shape != rows.shape[:1] or labels.is_floating_point():
        raise ValueError(f"labels must be {len(rows)} class indices, got {labels.dtype} of shape {tuple(labels.shape)}")
    labels = labels.long()
    least, largest = labels.min(), labels.max()
    if least < 0 or largest >= rows.shape[1]:
        raise ValueError(f"labels must lie in 0..{rows.shape[1] - 1}, got {least}..{largest}")
    return rows, labels


def _tensor(x: Tensor | np.ndarray) -> Tensor:
    """As it is, or without a copy where torch can have the memory of an array as it lies there."""
    if isinstance(x, Tensor):
        if x.layout != torch.strided:
            raise TypeError(f"rows and labels must be dense, got {x.layout}: call to_dense() first")
        return x
    array = np.require(x, requirements=["C", "W"])
    if np.ma.is_masked(array):
        raise ValueError("every sample needs its numbers, and some are masked: leave those samples out")
    # Files may have the other byte order, and to numpy an axis of length 1 is in order even if it runs backwards.
    other = not array.dtype.isnative or min(array.strides, default=0) < 0
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")) if other else array)
