"""What every detector is, and what it asks of what it is given."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thermocline.moments import require_labels


@runtime_checkable
class Detector(Protocol):
    """Anything that learns from in-distribution samples and then scores others, higher for what looks like them."""

    def fit(self, features: Float[Tensor, "n d"], logits: Float[Tensor, "n c"], labels: Int[Tensor, "n"]) -> Any:
        """Learn from in-distribution samples."""
        ...

    def score(self, features: Float[Tensor, "n d"], logits: Float[Tensor, "n c"]) -> Float[Tensor, "n"]:
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


def require_samples(features: Tensor, logits: Tensor, *, width: int | None = None, classes: int | None = None) -> None:
    """Raise unless both are matrices of as many rows, and of a wanted width where one is given; `classes=0`: of any above 0.

    >>> require_samples(torch.zeros(3, 2), torch.zeros(4, 2))
    Traceback (most recent call last):
    ValueError: every sample needs its features and logits: there are 3 and 4 of them
    """
    for what, x, wanted in (("features", features, width), ("logits", logits, classes)):
        if x.ndim != 2 or not x.is_floating_point():
            raise ValueError(f"{what} must be a matrix of floats with samples in rows, got {x.dtype} of shape {tuple(x.shape)}")
        if not x.shape[1] if wanted == 0 else wanted not in (None, x.shape[1]):
            raise ValueError(f"{what} must have {wanted or 'some'} columns, got {x.shape[1]}")
    if len(features) != len(logits):
        raise ValueError(f"every sample needs its features and logits: there are {len(features)} and {len(logits)} of them")


def require_training(features: Tensor, logits: Tensor, labels: Tensor, *, logits_read: bool = False) -> int:
    """Raise unless these can be learned from; how many classes there are: as many as logits, or without those, by the labels.

    >>> require_training(torch.zeros(2, 3), torch.zeros(2, 4), torch.tensor([0, 5]))
    Traceback (most recent call last):
    ValueError: labels must lie in 0..3, as there are 4 logits, got 0..5
    """
    require_samples(features, logits, classes=0 if logits_read else None)
    require_labels(len(features), labels)
    if not len(features):
        raise ValueError("a detector needs samples to learn from, got none")
    low, high = (int(value) for value in torch.stack(labels.aminmax()).tolist())
    classes = logits.shape[1] or high + 1
    if low < 0 or high >= classes:
        raise ValueError(f"labels must lie in 0..{classes - 1}, as there are {logits.shape[1]} logits, got {low}..{high}")
    return classes


def require_temperature(temperature: float) -> None:
    """Raise unless it can divide logits."""
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be above 0 and finite, got {temperature}")


def require_count(what: str, value: int | None) -> None:
    """Raise unless it is a number of things, 1 at least; `None` where all are meant."""
    if value is not None and (not isinstance(value, int) or value < 1):
        raise ValueError(f"{what} must be a whole number of at least 1, got {value!r}")
