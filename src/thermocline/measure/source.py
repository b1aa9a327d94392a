"""What users have, as batches of (inputs, labels): a Split, tensors, a Dataset or a DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

from thermocline.data import Split
from thermocline.spec import InputError


def batches(
    data: Any, net: nn.Module, *, size: int, order: Tensor | None = None
) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
    """Every sample once, as the net's arguments and labels, on its device and in its floating type.

    `data` is a Split, (inputs, labels) tensors (inputs may be a tuple of them, for a net that takes several), a Dataset
    of (input, label) pairs, or a DataLoader. Its own order is kept, unless it is `indexable` and `order` names samples.
    """
    weight = next(net.parameters())
    found = False
    for inputs, labels in _pairs(data, size, weight.dtype, order):
        found = True
        arguments = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        yield tuple(_fit(argument, weight) for argument in arguments), _labels(labels).to(weight.device)
    if not found:
        raise InputError("a data set to measure on is empty: it gave no batch")


def count(data: Any) -> int | None:
    """How many samples there are, where that can be told without reading them."""
    if isinstance(data, (tuple, list)):
        return len(data[-1])
    whole: Any = data
    if isinstance(data, DataLoader):
        if isinstance(data.dataset, IterableDataset) or (data.batch_size is None and data.batch_sampler is None):
            return None
        whole = getattr(data.batch_sampler, "sampler", None)
    try:
        return len(whole)
    except TypeError:
        return None


def indexable(data: Any) -> bool:
    """Whether samples can be asked for in any order; a DataLoader's can where it goes through a Dataset from end to end.

    >>> dataset = torch.utils.data.TensorDataset(torch.zeros(2, 3), torch.arange(2))
    >>> [indexable(one) for one in (dataset, DataLoader(dataset), DataLoader(dataset, shuffle=True))]
    [True, True, False]
    """
    if isinstance(data, DataLoader):
        # With a batch sampler of the user's own, `sampler` is a sequential one that is never asked.
        asked = getattr(data.batch_sampler, "sampler", None)
        return asked is data.sampler and isinstance(asked, SequentialSampler)
    return isinstance(data, (Split, tuple, list)) or (hasattr(data, "__getitem__") and hasattr(data, "__len__"))


def generators(data: Any) -> list[torch.Generator]:
    """The random generators a DataLoader draws from, beside the global ones."""
    if not isinstance(data, DataLoader):
        return []
    owners = (data, data.sampler, getattr(data.batch_sampler, "sampler", None))
    found = {id(one): one for owner in owners if isinstance(one := getattr(owner, "generator", None), torch.Generator)}
    return list(found.values())


def every(start: int, stride: int) -> slice:
    """Where a batch that begins at sample `start` has multiples of `stride`: the same samples however data is cut.

    >>> every(7, 5), every(10, 5)
    (slice(3, None, 5), slice(0, None, 5))
    """
    return slice(-start % stride, None, stride)


def _pairs(data: Any, size: int, dtype: torch.dtype, order: Tensor | None) -> Iterator[tuple[Any, Any]]:
    if isinstance(data, Split) and order is not None:
        yield from (data.take(some, dtype=dtype)[:2] for some in order.split(size))
    elif isinstance(data, Split):
        yield from (batch[:2] for batch in data.batches(size, dtype=dtype))
    elif isinstance(data, (tuple, list)) and len(data) == 2:
        yield from _cut(data[0], data[1], size, order)
    elif _once(data):
        raise InputError("data is an iterator, which can be read only once: give a DataLoader, a Dataset or tensors")
    elif isinstance(data, (tuple, list)) or not (hasattr(data, "__iter__") or hasattr(data, "__getitem__")):
        raise InputError(f"data must be (inputs, labels) tensors, a Dataset, a DataLoader or a Split, got {_kind(data)}")
    else:
        for batch in _loader(data, size, order):
            if not (isinstance(batch, (tuple, list)) and len(batch) == 2):
                raise InputError(f"a batch must be a pair (inputs, labels), got {_kind(batch)}")
            yield batch[0], batch[1]


def _once(data: Any) -> bool:
    """Whether it, or the data set behind it, is its own iterator."""
    whole = data.dataset if isinstance(data, DataLoader) else data
    return hasattr(whole, "__next__") and hasattr(whole, "__iter__")


def _loader(data: Any, size: int, order: Tensor | None) -> Iterable[Any]:
    """A loader of the samples in an order of ours, or else the data's own way of giving batches."""
    # A generator of its own: a loader without one draws from the global random state, used or not.
    ours = {"batch_size": size, "generator": torch.Generator().manual_seed(0)}
    if order is None:
        return data if hasattr(data, "__iter__") and not hasattr(data, "__getitem__") else DataLoader(data, **ours)
    if isinstance(data, DataLoader):
        ours |= {"num_workers": data.num_workers, "collate_fn": data.collate_fn}
        data = data.dataset
    return DataLoader(data, sampler=order.tolist(), **ours)


def _cut(inputs: Any, labels: Any, size: int, order: Tensor | None) -> Iterator[tuple[Any, Any]]:
    parts = tuple(map(torch.as_tensor, inputs)) if isinstance(inputs, (tuple, list)) else (torch.as_tensor(inputs),)
    labels = torch.as_tensor(labels)
    if any(len(part) != len(labels) for part in parts):
        raise InputError(f"there are {len(labels)} labels for {len(parts[0])} inputs")
    for start in range(0, len(labels if order is None else order), size):
        some = slice(start, start + size)
        if order is None:
            yield tuple(part[some] for part in parts), labels[some]
        else:
            yield tuple(part[order[some].to(part.device)] for part in parts), labels[order[some].to(labels.device)]


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
