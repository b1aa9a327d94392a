"""Detectors that reshape features, let the head read them again, and leave the scoring to another detector."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from thermocline.detect import axes as shape
from thermocline.detect.inputs import Detector, Features, Labels, Logits, learned, require_fitted, samples, training
from thermocline.moments import require_finite, slices

PIECE = 2**22  # values looked at at a time


@dataclass(eq=False)
class ReAct:
    """Features clipped at a value that few training features reach, which tames the huge ones of other data.

        h <- min(h, t),   t = the percentile of all training features, of all dimensions together   [sun2021react]

    `inner` is fitted to and scores what the head `weight`, `bias` makes of that; the authors' is `Energy`, their percentile 90.

    >>> from thermocline.detect import MaxLogit
    >>> x = torch.arange(11.0)[:, None]
    >>> ReAct(MaxLogit(), torch.ones(1, 1), percentile=90).fit(x).score(x[8:])
    tensor([8., 9., 9.], dtype=torch.float64)
    """

    inner: Detector
    weight: Float[Tensor, "c d"] = dataclasses.field(repr=False)
    bias: Float[Tensor, "c"] | None = dataclasses.field(default=None, repr=False)
    _: dataclasses.KW_ONLY
    percentile: int | float
    threshold: Float[Tensor, ""] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.weight, self.bias = shape.head(self.weight, self.bias)
        _require_percentile(self.percentile)

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> ReAct:
        """Learn the height, and let the inner detector learn from features cut off there."""
        features, _, labels, _ = training(self, features, logits, labels, reads=("features",), width=self.weight.shape[1])
        require_finite(features, "features that ReAct is fitted to")
        self.threshold = percentile_of(features, self.percentile)
        _fit(self, features, labels)
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution. The logits given are not read: the head's are."""
        return _score(self, features, logits)

    def _shaped(self, h: Tensor) -> Tensor:
        return h.clamp(max=self.threshold.double())


@dataclass(eq=False)
class ASH:
    """Activation shaping: only the largest features of a sample are kept; variant "p" leaves those as they are.

        h <- h top(h)                                     "p"                 [djurisic2023ash]
        h <- top(h) sum h / k                             "b", which gives all k that are kept one height
        h <- h top(h) exp(sum h / sum h top(h))           "s"

    top(h) is 1 at the k = d - round(d percentile / 100) largest features, of equal ones the first, and 0 elsewhere. Meant for
    features that are not negative. `inner` is fitted to and scores what the head makes of that; the authors' is `Energy`.

    >>> from thermocline.detect import MaxLogit
    >>> x = torch.tensor([[1.0, 3.0, 0.0, 2.0]])
    >>> [ASH(MaxLogit(), torch.ones(1, 4), percentile=50, variant=v).score(x).item() for v in ("p", "b")]
    [5.0, 6.0]
    """

    inner: Detector
    weight: Float[Tensor, "c d"] = dataclasses.field(repr=False)
    bias: Float[Tensor, "c"] | None = dataclasses.field(default=None, repr=False)
    _: dataclasses.KW_ONLY
    percentile: int | float
    variant: Literal["p", "b", "s"]

    def __post_init__(self) -> None:
        self.weight, self.bias = shape.head(self.weight, self.bias)
        _require_percentile(self.percentile)
        if self.variant not in ("p", "b", "s"):
            raise ValueError(f"variant must be 'p', 'b' or 's', got {self.variant!r}")

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> ASH:
        """Let the inner detector learn from reshaped features."""
        features, _, labels, _ = training(self, features, logits, labels, reads=("features",), width=self.weight.shape[1])
        _fit(self, features, labels)
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution. The logits given are not read: the head's are."""
        return _score(self, features, logits)

    def _shaped(self, h: Tensor) -> Tensor:
        kept = max(h.shape[1] - round(h.shape[1] * self.percentile / 100), 1)
        values, places = h.sort(dim=1, descending=True, stable=True)
        whole, values = h.sum(1, keepdim=True), values[:, :kept]
        if self.variant == "b":
            values = (whole / kept).expand_as(values)
        elif self.variant == "s":
            part = values.sum(1, keepdim=True)
            # Where all that is kept is 0, nothing can be made of it.
            values = values * (whole / part.where(part != 0, 1)).exp()
        return torch.zeros_like(h).scatter_(1, places[:, :kept], values)


def percentile_of(x: Float[Tensor, "..."], percentile: int | float) -> Float[Tensor, ""]:
    """The percentile of all values, between two of them by the straight line, in float32 and O(1) memory.

    A value is found by its bits, 16 at a time, which order floats: counting needs no copy and no sorting.

    >>> percentile_of(torch.tensor([[3.0, -1.0], [0.0, 1.0]]), 50)
    tensor(0.5000)
    """
    rank = (x.numel() - 1) * percentile / 100
    low = _ranked(x, int(rank))
    return low if rank == int(rank) else torch.lerp(low, _ranked(x, int(rank) + 1), rank - int(rank))


def _ranked(x: Tensor, rank: int) -> Tensor:
    """The value with `rank` values before it."""
    head, rank = _bin(x, rank, lambda keys: keys >> 16)
    low, _ = _bin(x, rank, lambda keys: (keys & 0xFFFF)[keys >> 16 == head] - 2**15)
    key = torch.tensor((head << 16) + low + 2**15, dtype=torch.int32, device=x.device)
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).view(torch.float32)


def _bin(x: Tensor, rank: int, digit: Callable[[Tensor], Tensor]) -> tuple[int, int]:
    """The digit (-2^15 to 2^15 - 1) of the value of a rank, and that value's rank among those with the same digit."""
    counts = torch.zeros(2**16, dtype=torch.int64, device=x.device)
    for part in x.detach().flatten().split(PIECE):
        keys = part.float().view(torch.int32)
        keys = keys ^ ((keys >> 31) & 0x7FFFFFFF)  # the order of floats, as integers
        counts += torch.bincount(digit(keys) + 2**15, minlength=2**16)
    before = counts.cumsum(0)
    found = int((before <= rank).sum())
    return found - 2**15, rank - int(before[found] - counts[found])


def _fit(shaper: ReAct | ASH, features: Tensor, labels: Tensor | None) -> None:
    """Fit what is inside to reshaped features, which are made whole only where it learns something."""
    shape.freeze(shaper, "weight", "bias")
    if not _learns(shaper.inner):
        return
    wide = torch.promote_types(features.dtype, torch.float32)
    whole = torch.empty_like(features, dtype=wide, requires_grad=False)
    logits = torch.empty(len(features), len(shaper.weight), dtype=wide, device=features.device)
    start = 0
    for (h,) in slices(features):
        stop = start + len(h)
        whole[start:stop], logits[start:stop] = _read(shaper, h)
        start = stop
    shaper.inner.fit(whole, logits, labels)


def _score(shaper: ReAct | ASH, features: Features, logits: Logits) -> Tensor:
    require_fitted(shaper)
    features, _ = samples(shaper, features, logits, reads=("features",), width=shaper.weight.shape[1])
    return torch.cat([shaper.inner.score(*_read(shaper, h)) for (h,) in slices(features)])


def _read(shaper: ReAct | ASH, h: Tensor) -> tuple[Tensor, Tensor]:
    """Reshaped features, and what the head makes of them."""
    weight, bias = shaper.weight.detach().double(), None if shaper.bias is None else shaper.bias.detach().double()
    new = shaper._shaped(h)
    return new, torch.nn.functional.linear(new, weight, bias)


def _learns(detector: Any) -> bool:
    """Whether a detector has anything to learn, or a head to read as it is by now; of a stranger nothing is known."""
    ours = dataclasses.is_dataclass(detector) and type(detector).__module__.startswith(f"{__package__}.")
    return not ours or isinstance(detector, ASH) or bool(learned(detector))


def _require_percentile(percentile: int | float) -> None:
    if not (percentile == 0 or 1 <= percentile < 100):
        raise ValueError(f"percentile is 0, or from 1 to below 100: 90 and not 0.9 for nine tenths, got {percentile}")
