"""What every detector is, and what it asks of what it is given."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int, Integer, Real
from torch import Tensor

from thermocline.moments import MOST, Array, matrix, require_labels

# What a detector may be given: tensors, arrays or lists, and None for what it does not read.
Features = Real[Array, "n d"] | Sequence[Sequence[int | float]] | None
Logits = Real[Array, "n c"] | Sequence[Sequence[int | float]] | None
Labels = Integer[Array, "n"] | Sequence[int] | None


@runtime_checkable
class Detector(Protocol):
    """Anything that learns from in-distribution samples and then scores others, higher for what looks like them."""

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> Any:
        """Learn from in-distribution samples."""
        ...

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        ...


def learned(detector: Any) -> list[str]:
    """What a detector learns: those of its fields that are no arguments.

    >>> from thermocline.detect import MSP, NECO
    >>> learned(MSP()), learned(NECO())
    ([], ['mean', 'std', 'axes', 'others'])
    """
    return [field.name for field in dataclasses.fields(detector) if not field.init]


def require_fitted(detector: Any) -> None:
    """Raise unless a detector has learned all that it scores with."""
    if not set(learned(detector)) <= vars(detector).keys():
        raise ValueError(f"{type(detector).__name__} has not been fitted: call fit first")


def samples(
    detector: Any,
    features: Features,
    logits: Logits,
    *,
    reads: Sequence[str],
    width: int | None = None,
    classes: int | None = None,
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n c"]]:
    """What a detector scores, as matrices of as many rows; what it does not read may be missing, and then has no columns.

    >>> from thermocline.detect import MSP
    >>> samples(MSP(), None, [[1, 2]], reads=("logits",))
    (tensor([], size=(1, 0), dtype=torch.float64), tensor([[1., 2.]], dtype=torch.float64))
    >>> samples(MSP(), [[1, 2]], None, reads=("logits",))
    Traceback (most recent call last):
    ValueError: MSP scores samples by their logits, and got no logits
    """
    _require_read(f"{type(detector).__name__} scores samples by their", reads, features=features, logits=logits)
    return _matrices(features, logits, reads, {"features": width, "logits": classes})


class Training(NamedTuple):
    """What a detector learns from."""

    features: Float[Tensor, "n d"]
    logits: Float[Tensor, "n c"]
    labels: Int[Tensor, "n"] | None
    classes: int


def training(
    detector: Any, features: Features, logits: Logits, labels: Labels, *, reads: Sequence[str], width: int | None = None
) -> Training:
    """What a detector is fitted to, as tensors; there are as many classes as logits, or without those, by the labels.

    >>> from thermocline.detect import KNN
    >>> training(KNN(k=1), torch.zeros(2, 3), torch.zeros(2, 4), torch.tensor([0, 5]), reads=("features",))
    Traceback (most recent call last):
    ValueError: labels must lie in 0..3, as there are 4 logits, got 0..5
    """
    _require_read(f"{type(detector).__name__} is fitted to", reads, features=features, logits=logits, labels=labels)
    features, logits = _matrices(features, logits, reads, {"features": width})
    if labels is not None:
        labels = require_labels(len(features), labels).to(features.device)
    if not len(features):
        raise ValueError("a detector needs samples to learn from, got none")
    low, high = (0, 0) if labels is None else (int(value) for value in torch.stack(labels.aminmax()).tolist())
    classes = logits.shape[1] or high + 1
    if low < 0 or high >= classes:
        raise ValueError(f"labels must lie in 0..{classes - 1}, as there are {logits.shape[1]} logits, got {low}..{high}")
    if classes > MOST:
        raise ValueError(f"labels must number classes from 0 on, and be below {MOST}, got {high}")
    return Training(features, logits, labels, classes)


def _require_read(how: str, reads: Sequence[str], **given: Any) -> None:
    if missing := [what for what in reads if given[what] is None]:
        raise ValueError(f"{how} {' and '.join(reads)}, and got no {missing[0]}")


def _matrices(
    features: Features, logits: Logits, reads: Sequence[str], columns: Mapping[str, int | None]
) -> tuple[Tensor, Tensor]:
    given = {"features": features, "logits": logits}
    found = {what: matrix(x, what) for what, x in given.items() if x is not None}
    for what, x in found.items():
        wanted = columns.get(what)
        if wanted not in (None, x.shape[1]) or (what in reads and not x.shape[1]):
            raise ValueError(f"{what} must have {wanted or 'some'} columns, got {x.shape[1]}")
    some = found[reads[0]]
    features, logits = (found.get(what, some.new_empty(len(some), 0)) for what in given)
    if len(features) != len(logits):
        raise ValueError(f"every sample needs its features and logits: there are {len(features)} and {len(logits)} of them")
    return features, logits


def require_temperature(temperature: float) -> None:
    """Raise unless it can divide logits."""
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be above 0 and finite, got {temperature}")


def natural(what: str, value: Any) -> int:
    """A number of things, 1 at least, as an int; raise unless it is one.

    >>> import numpy as np; natural("k", np.int64(50))
    50
    """
    if not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{what} must be a whole number of at least 1, got {value!r}")
    return int(value)
