"""What users have, as batches of (inputs, labels): a Split, tensors, a Dataset or a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from thermocline.data import Split
from thermocline.spec import InputError


def batches(data: Any, net: nn.Module, *, size: int) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
    """Every sample once, as the net's arguments and labels, on its device and in its floating type.

    `data` is a Split, (inputs, labels) tensors (inputs may be a tuple of them, for a net that takes several), a Dataset
    of (input, label) pairs, or a DataLoader; its own order is kept.
    """
    weight = next(net.parameters())
    found = False
    for inputs, labels in _pairs(data, size, weight.dtype):
        found = True
        arguments = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        yield tuple(_fit(argument, weight) for argument in arguments), _labels(labels).to(weight.device)
    if not found:
        raise InputError("a data set to measure on is empty: it gave no batch")


def count(data: Any) -> int | None:
    """How many samples there are, where that can be told without reading them."""
    if isinstance(data, (tuple, list)):
        return len(data[-1])
    whole: Any = data.dataset if isinstance(data, DataLoader) else data
    try:
        return len(whole)
    except TypeError:
        return None


def every(start: int, stride: int) -> slice:
    """Where a batch that begins at sample `start` has multiples of `stride`: the same samples however data is cut.

    >>> every(7, 5), every(10, 5)
    (slice(3, None, 5), slice(0, None, 5))
    """
    return slice(-start % stride, None, stride)


def _pairs(data: Any, size: int, dtype: torch.dtype) -> Iterator[tuple[Any, Any]]:
    if isinstance(data, Split):
        yield from ((batch.images, batch.labels) for batch in data.batches(size, dtype=dtype))
    elif isinstance(data, (tuple, list)) and len(data) == 2:
        yield from _cut(data[0], data[1], size)
    elif isinstance(data, (tuple, list)) or not (hasattr(data, "__iter__") or hasattr(data, "__getitem__")):
        raise InputError(f"data must be (inputs, labels) tensors, a Dataset, a DataLoader or a Split, got {_kind(data)}")
    else:
        loader = data if hasattr(data, "__iter__") and not hasattr(data, "__getitem__") else DataLoader(data, size)
        for batch in loader:
            if not (isinstance(batch, (tuple, list)) and len(batch) == 2):
                raise InputError(f"a batch must be a pair (inputs, labels), got {_kind(batch)}")
            yield batch[0], batch[1]


def _cut(inputs: Any, labels: Any, size: int) -> Iterator[tuple[Any, Any]]:
    parts = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    labels = torch.as_tensor(labels)
    if any(len(part) != len(labels) for part in parts):
        raise InputError(f"there are {len(labels)} labels for {len(parts[0])} inputs")
    for start in range(0, len(labels), size):
        some = slice(start, start + size)
        yield tuple(torch.as_tensor(part)[some] for part in parts), labels[some]


def _fit(argument: Any, weight: Tensor) -> Tensor:
    tensor = torch.as_tensor(argument)
    if tensor.dtype == torch.uint8:
        raise InputError("inputs are uint8: give them as the net expects them, scaled and normalised (or as a Split)")
    return tensor.to(weight.device, weight.dtype) if tensor.is_floating_point() else tensor.to(weight.device)


def _labels(labels: Any) -> Tensor:
    labels = torch.as_tensor(labels)
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
        raise InputError(f"labels must be one whole number a sample, got {labels.dtype} of shape {tuple(labels.shape)}")
    if len(labels) and int(labels.min()) < 0:
        raise InputError(f"labels must be 0 or more, got {int(labels.min())}")
    return labels.long()


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (tuple, list, dict)) else "")
