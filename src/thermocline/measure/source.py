"""What users have, as batches of inputs and labels: a Split, tensors, a Dataset or a DataLoader."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from thermocline.data import Split
from thermocline.moments import MOST
from thermocline.spec import InputError

Arguments = dict[int | str, Tensor]  # what a net is called with, by place or by name
LABELS = ("labels", "label")  # what a dict of inputs may call them
FORMS = "(inputs, labels) tensors, a Dataset, a DataLoader or a Split"


def batches(data: Any, net: nn.Module, *, size: int, order: Tensor | None = None) -> Iterator[tuple[Arguments, Tensor]]:
    """Every sample once, as the net's arguments and labels, on its device and in its floating type.

    `data` is a Split, (inputs, labels) tensors, a Dataset of (input, label) pairs, or a DataLoader. For a net that takes
    several inputs they are a tuple, ((ids, mask), labels), or a dict by name, which may hold the labels too. Its own order
    is kept, unless it is `indexable` and `order` names samples.
    """
    for arguments, labels in samples(data, net, size=size, order=order):
        if labels is None:
            raise InputError("a batch must be a pair (inputs, labels), or a dict of inputs and 'labels'; it has no labels")
        yield arguments, labels


def samples(data: Any, net: nn.Module, *, size: int, order: Tensor | None = None) -> Iterator[tuple[Arguments, Tensor | None]]:
    """The same of data that may be inputs alone, whose labels are None."""
    device, found = next(net.parameters()).device, False
    # The first weight may be of whole numbers, as quantised ones are: inputs cut to them would be others.
    dtype = next((weight.dtype for weight in net.parameters() if weight.is_floating_point()), torch.get_default_dtype())
    for inputs, labels in _pairs(data, size, dtype, order):
        arguments = {name: _fit(name, argument, device, dtype) for name, argument in _arguments(inputs).items()}
        if not len(next(iter(arguments.values()))):
            continue  # a loader that filters may leave a batch with nothing
        found = True
        yield arguments, None if labels is None else _labels(labels).to(device)
    if not found:
        raise InputError("a data set to measure on is empty: it gave no sample")


def count(data: Any) -> int | None:
    """How many samples there are, where that can be told without reading them."""
    if isinstance(data, (tuple, list, Mapping)):
        return len(_tensor(*next(iter(_arguments(_parted(data)[0]).items()))))
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
    return isinstance(data, (Split, tuple, list, Mapping)) or (hasattr(data, "__getitem__") and hasattr(data, "__len__"))


def generators(data: Any) -> list[torch.Generator]:
    """The random generators a DataLoader draws from, beside the global ones."""
    if not isinstance(data, DataLoader):
        return []
    owners = (data, data.sampler, getattr(data.batch_sampler, "sampler", None))
    found = {id(one): one for owner in owners if isinstance(one := getattr(owner, "generator", None), torch.Generator)}
    return list(found.values())


def mixed(places: Tensor) -> Tensor:
    """A whole number below 2^32 for each place in a stream, another for each place, with no pattern that data may share.

    Two rounds of folding the upper bits into the lower and multiplying by an odd number, each of which can be undone.
    """
    for _ in range(2):
        places = ((places >> 16 ^ places) * 0x45D9F3B) & 0xFFFFFFFF
    return places >> 16 ^ places


def some(count: int, of: int) -> Tensor:
    """So many of the places 0 to `of` - 1, in order: those that mix to the least numbers, which all classes share.

    At equal steps there would be few classes among them, or one, where those of a set take turns.

    >>> some(4, of=100)
    tensor([ 0,  9, 17, 76])
    """
    return mixed(torch.arange(of)).argsort()[:count].sort().values


def _pairs(data: Any, size: int, dtype: torch.dtype, order: Tensor | None) -> Iterator[tuple[Any, Any]]:
    """Inputs and labels, the latter None where there are none."""
    if isinstance(data, Split):
        parts = data.batches(size, dtype=dtype) if order is None else (data.take(o, dtype=dtype) for o in order.split(size))
        yield from ((batch.images, batch.labels if data.labelled else None) for batch in parts)
    elif isinstance(data, (tuple, list, Mapping, Tensor, np.ndarray)):
        yield from _cut(*_parted(data), size, order)
    elif isinstance(data, str):
        raise InputError(f"data must be {FORMS}, got the name {data!r}: train, test = thermocline.load({data!r})")
    elif _once(data):
        raise InputError("data is an iterator, which can be read only once: give a DataLoader, a Dataset or tensors")
    elif not (hasattr(data, "__iter__") or hasattr(data, "__getitem__")):
        raise InputError(f"data must be {FORMS}, got {_kind(data)}")
    else:
        yield from map(_parted, _loader(data, size, order))


def _parted(batch: Any) -> tuple[Any, Any]:
    """The inputs and the labels of a batch, or of data in memory."""
    if isinstance(batch, Mapping):
        labels = next((batch[name] for name in LABELS if name in batch), None)
        return {name: value for name, value in batch.items() if name not in LABELS}, labels
    if isinstance(batch, (Tensor, np.ndarray)):
        return batch, None
    if isinstance(batch, (tuple, list)) and len(batch) in (1, 2):
        return batch[0], batch[1] if len(batch) == 2 else None
    hint = ""
    if isinstance(batch, (tuple, list)) and batch:
        several = all(isinstance(part, (Tensor, np.ndarray)) for part in batch)
        together = "several inputs go together, as in ((ids, mask), labels), or by name in a dict"
        hint = f": {together if several else 'a list of samples goes into a DataLoader'}"
    raise InputError(f"a batch must be a pair (inputs, labels), got {_kind(batch)}{hint}")


def _arguments(inputs: Any) -> dict[int | str, Any]:
    """Inputs by place or by name."""
    if not isinstance(inputs, (Mapping, tuple, list)):
        return {0: inputs}
    if not inputs:
        raise InputError("a batch has labels but no inputs")
    return {**inputs} if isinstance(inputs, Mapping) else {**dict(enumerate(inputs))}


def _once(data: Any) -> bool:
    """Whether it, or the data set behind it, gives one iterator whenever it is asked for one."""
    whole = data.dataset if isinstance(data, DataLoader) else data
    streams = isinstance(whole, IterableDataset) or (hasattr(whole, "__iter__") and not hasattr(whole, "__getitem__"))
    if not streams:
        return False
    first = iter(whole)
    # Persistent workers are one iterator too, which begins anew whenever it is asked for.
    return first is whole or (not isinstance(first, _BaseDataLoaderIter) and first is iter(whole))


def _loader(data: Any, size: int, order: Tensor | None) -> Iterable[Any]:
    """A loader of the samples in an order of ours, or else the data's own way of giving batches."""
    # A generator of its own: a loader without one draws from the global random state, used or not.
    ours = {"batch_size": size, "generator": torch.Generator().manual_seed(0)}
    if order is None:
        return _apart(data) if hasattr(data, "__iter__") and not hasattr(data, "__getitem__") else DataLoader(data, **ours)
    if isinstance(data, DataLoader):
        ours |= {"num_workers": data.num_workers, "collate_fn": data.collate_fn}
        data = data.dataset
    return DataLoader(data, sampler=order.tolist(), **ours)


def _apart(data: Any) -> Any:
    """A loader with workers of its own: persistent ones serve one iterator, which a training loop may be in the middle of."""
    if isinstance(data, DataLoader) and data.persistent_workers:
        data = copy.copy(data)
        data._iterator = None
    return data


def _cut(inputs: Any, labels: Any, size: int, order: Tensor | None) -> Iterator[tuple[Any, Any]]:
    parts = {name: _tensor(name, part) for name, part in _arguments(inputs).items()}
    parts |= {} if labels is None else {"labels": _numbers(labels)}
    count = len(next(reversed(parts.values())))
    if wrong := [part for part in parts.values() if len(part) != count]:
        raise InputError(f"there are {count} {'inputs' if labels is None else 'labels'} for {len(wrong[0])} inputs")
    for start in range(0, count if order is None else len(order), size):
        some = slice(start, start + size)
        chosen = {name: part[some] if order is None else part[order[some].to(part.device)] for name, part in parts.items()}
        yield {name: part for name, part in chosen.items() if name != "labels"}, chosen.get("labels")


def _tensor(name: int | str, value: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        tensor = torch.tensor(0)
    if not tensor.ndim:
        what = f"input {name}" if isinstance(name, int) else repr(name)
        raise InputError(f"{what} of a batch is {_kind(value)}, not a tensor of samples: make it one, or leave it out")
    return tensor


def _fit(name: int | str, argument: Any, device: torch.device, dtype: torch.dtype) -> Tensor:
    tensor = _tensor(name, argument)
    if tensor.dtype == torch.uint8:
        raise InputError("inputs are uint8: give them as the net expects them, scaled and normalised (or as a Split)")
    return tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)


def _labels(labels: Any) -> Tensor:
    labels = _numbers(labels)
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
        raise InputError(f"labels must be one whole number a sample, got {labels.dtype} of shape {tuple(labels.shape)}")
    labels = labels.long()  # of uint16 torch takes no minimum
    if len(labels) and int(labels.min()) < 0:
        raise InputError(f"labels must be 0 or more, got {int(labels.min())}")
    if len(labels) and int(labels.max()) >= MOST:
        raise InputError(f"labels must number classes from 0 on, and be below {MOST}, got {int(labels.max())}")
    return labels


def _numbers(labels: Any) -> Tensor:
    try:
        return torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        several = isinstance(labels, (tuple, list, np.ndarray))
        got = repr(np.asarray(labels[:1]).tolist()[0]) if several else _kind(labels)
        raise InputError(f"labels must be one whole number a sample, got {got}: number the classes from 0 on") from None


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (tuple, list, dict)) else "")
