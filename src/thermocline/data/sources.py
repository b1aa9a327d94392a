"""Names of data sets, and how each becomes a pair of splits."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from thermocline.data import arrays, copies, folder, memory, parquet, pixels, runes, tampering
from thermocline.data.fetching import DOWNLOADS
from thermocline.data.hashing import balanced, held_out
from thermocline.data.source import Set, Source, Want, held, located, tell_cut
from thermocline.data.split import Split
from thermocline.spec import Data, InputError, unknown

Read = TypeVar("Read")
Reading = Generator[tuple[int, int], None, Read]  # of images: how many are read, of how many

NAMES: dict[str, str] = {
    "runes": "synthetic alphabet 0: 100 classes, 16 pixels, grey, 12000 + 3000 images, drawn on the spot",
    "runes:SEED": "another alphabet of the same family (near-OOD)",
    "digits": "scikit-learn's handwritten digits: 10 classes, 8 pixels, grey, 1438 + 359 images (far-OOD)",
    "cifar10": "photographs: 10 classes, 32 pixels, RGB, 50000 + 10000 images; from DATA_DIR",
    "cifar100": "photographs: 100 classes, 32 pixels, RGB, 50000 + 10000 images; from DATA_DIR",
    "svhn": "house numbers: 10 classes, 32 pixels, RGB, 73257 + 26032 images; from DATA_DIR",
    "imagenet": "photographs: 1000 classes, 224 pixels or data.size, RGB, 1281167 + 50000 images; from DATA_DIR",
    "imagenet100": "100 classes of imagenet: those in DATA_DIR/imagenet100, or listed in DATA_DIR/imagenet100.txt",
    "arrays:FILE.npz": "x_train, y_train, x_test, y_test: square images, uint8 or float in [0, 1], and integer labels; "
    "to be detected as other data, x_test is enough",
    "folder:DIR": "one folder of images a class, under DIR/train and DIR/test (or val), or under DIR (cut 80 / 20 here); "
    "read as squares, the middle of each image; to be detected as other data, images under DIR are enough",
    "parquet:DIR": "Hugging Face's files, train-*.parquet and test-* (or validation-*), with image and label columns; "
    "others by name: parquet:DIR:image=img:label=coarse_label:test=validation",
}
_FILES = "{name}.npz with " + ", ".join(arrays.KEYS)
_HUB = "or Hugging Face's {name}/*.parquet"
_COPIES = {  # what may lie under the data directory
    "cifar10": f"{_FILES}, torchvision's cifar-10-batches-py/, {_HUB}",
    "cifar100": f"{_FILES}, torchvision's cifar-100-python/, {_HUB}",
    "svhn": f"{_FILES}, train_32x32.mat and test_32x32.mat, {_HUB}",
    "imagenet": f"imagenet/train/CLASS/* and imagenet/val/CLASS/*, or {_FILES}",
    "imagenet100": f"imagenet100/train/CLASS/* and imagenet100/val/CLASS/*, imagenet100.txt beside imagenet/, or {_FILES}",
}


def load(
    name: str,
    *,
    like: Split | None = None,
    classes: int | None = None,
    size: int | None = None,
    train: int | None = None,
    test: int | None = None,
    imbalance: float = 1.0,
    label_noise: float = 0.0,
    device: str | torch.device = "cpu",
    data_dir: str | os.PathLike[str] | None = None,
) -> tuple[Split, Split]:
    """The (train, test) splits of a named set.

    `classes` keeps the first so many classes; `train` and `test` take class-balanced random subsets, always the same.
    Of the training images, `imbalance` then keeps ever fewer from class to class, and `label_noise` gives that share the
    label of another class: the same ones every time (see `tampering`).
    `like` reads the set as a network trained on that split sees it: at its size, channels and normalisation.

    >>> train, test = load("runes", classes=10, train=200, test=50)
    >>> train.images.shape, len(test), train.labels.bincount().tolist()
    (torch.Size([200, 1, 16, 16]), 50, [20, 20, 20, 20, 20, 20, 20, 20, 20, 20])
    """
    asked = Data(name, classes, size, train, test, imbalance=imbalance, label_noise=label_noise)  # which checks them
    return last(reading(asked, like=like, device=device, data_dir=data_dir))


def load_other(
    name: str,
    *,
    like: Split | None = None,
    device: str | torch.device = "cpu",
    data_dir: str | os.PathLike[str] | None = None,
) -> tuple[Split | None, Split]:
    """The (train, test) splits of a named set that nothing is trained on: it may be a test set alone, with labels or without.

    Such a test set is read `like` another, or else with pixels in [0, 1].
    """
    return last(reading_other(name, like=like, device=device, data_dir=data_dir))


def reading(
    asked: Data,
    *,
    like: Split | None = None,
    device: str | torch.device = "cpu",
    data_dir: str | os.PathLike[str] | None = None,
) -> Reading[tuple[Split, Split]]:
    """`load`, saying as it goes how many of how many images are read."""
    want = Want(
        asked.classes, asked.size, None, asked.train, asked.test, asked.imbalance, asked.label_noise, torch.device(device)
    )
    if like is not None:
        if asked.size not in (None, like.size):
            raise InputError(f"size={asked.size} contradicts like=: {like.name} has {like.size} pixels a side")
        want = replace(want, size=like.size, channels=like.channels)
    found = _find(asked.name, data_dir)
    first, second = yield from _splits(asked.name, found.read(want), want, like)
    names = tuple(found.names())[: first.classes]
    named = names if len(set(names)) == first.classes else ()
    return replace(first, names=named), replace(second, names=named)


def reading_other(
    name: str,
    *,
    like: Split | None = None,
    size: int | None = None,
    device: str | torch.device = "cpu",
    data_dir: str | os.PathLike[str] | None = None,
) -> Reading[tuple[Split | None, Split]]:
    """`load_other`, at this size if there is no split to be like, saying as it goes how many of how many images are read."""
    want = Want(size=size, device=device) if like is None else Want(size=like.size, channels=like.channels, device=device)
    if (source := _find(name, data_dir).alone(want)) is None:
        return (
            yield from reading(Data(name, size=size if like is None else None), like=like, device=device, data_dir=data_dir)
        )
    (images,) = yield from _images(name, [source], [torch.arange(len(source.labels))], want)
    plain = torch.zeros(images.shape[1], device=device), torch.ones(images.shape[1], device=device)
    mean, std = plain if like is None else (like.mean.to(device), like.std.to(device))
    return None, Split(images, source.labels.to(device), name, int(source.labels.max()) + 1, mean, std)


def last(reading: Generator[object, None, Read]) -> Read:
    """What it gives in the end."""
    try:
        while True:
            next(reading)
    except StopIteration as end:
        return end.value


def check(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> None:
    """Raise `InputError` if the name is unknown or its files are missing; reads no images."""
    _find(name, data_dir).check()


def check_other(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> None:
    """`check`, of data that may be a test set alone."""
    found = _find(name, data_dir)
    if found.alone(Want(size=1, channels=1)) is None:  # of a size, so that no image is opened to find one
        found.check()


def require_other(name: str, ood: Sequence[str]) -> None:
    """Raise unless other data are other: not the training data, and none named twice."""
    known = {_plain(name): f"{name} is the training data, and cannot be other data too"}
    for other in ood:
        if said := known.get(_plain(other)):
            raise InputError(said)
        known[_plain(other)] = f"{other} is named twice among the other data"


def _plain(name: str) -> str:
    """One name for one set: runes are runes:0."""
    kind, _, rest = name.partition(":")
    return f"runes:{rest.lstrip('0')}" if kind == "runes" else name


def _find(name: str, data_dir: str | os.PathLike[str] | None) -> Set:
    kind, colon, rest = name.partition(":")
    if kind not in _KINDS:
        return _copy(name, data_dir)
    return _KINDS[kind](name, rest if colon else None)


def _runes(name: str, rest: str | None) -> Set:
    text = "0" if rest is None else rest
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 1 << 32):
        raise InputError(f"{name!r}: the seed of an alphabet must be a whole number from 0 to {(1 << 32) - 1}, as in runes:1")
    return Set(lambda: None, partial(_drawn, int(text)))


def _drawn(seed: int, want: Want) -> tuple[Source, Source]:
    classes, size = want.classes or 100, want.size or 16
    low, high = runes.SIZES
    if want.channels is not None:  # to be like another set: drawn as near to its size as can be, then resized
        size = min(max(size, low), high)
    if not low <= size <= high:
        raise InputError(f"runes are drawn at {low} to {high} pixels a side, got {size}")
    counts = {"train": want.train or 12_000, "test": want.test or 3_000}
    _enough(counts["train"], classes)

    def source(split: str, count: int) -> Source:
        render = partial(runes.render, seed=seed, split=split, classes=classes, size=size, device=want.device)
        return Source(runes.labels(classes, count), lambda indices: [render(indices)])

    train, test = (source(split, count) for split, count in counts.items())
    return train, test


def _digits(name: str, rest: str | None) -> Set:
    if rest is not None:
        raise InputError(f"{name!r}: digits takes nothing after a colon; write digits")

    def there() -> None:
        if importlib.util.find_spec("sklearn") is None:
            raise InputError("digits comes with scikit-learn, which is not installed: pip install scikit-learn")

    def read(want: Want) -> tuple[Source, Source]:
        there()
        from sklearn.datasets import load_digits

        values, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
        images, labels = pixels.rounded(values * (255 / 16)).view(-1, 1, 8, 8), labels.long()
        tested = held_out(labels)
        return held(images[~tested], labels[~tested]), held(images[tested], labels[tested])

    return Set(there, read)


def _arrays(name: str, rest: str | None) -> Set:
    return arrays.named(_path(name, rest, "arrays:FILE.npz"))


def _folder(name: str, rest: str | None) -> Set:
    return folder.named(folder.Layout(_path(name, rest, "folder:DIR")))


def _parquet(name: str, rest: str | None) -> Set:
    return parquet.named(*parquet.options(name, rest or ""))


_KINDS: dict[str, Callable[[str, str | None], Set]] = {
    "runes": _runes, "digits": _digits, "arrays": _arrays, "folder": _folder, "parquet": _parquet,
}  # fmt: skip


def _path(name: str, rest: str | None, form: str) -> Path:
    if not rest:
        raise InputError(f"data set {name!r} names no path; write {form}")
    return located(rest)


def _copy(name: str, data_dir: str | os.PathLike[str] | None) -> Set:
    """A set that lies under the data directory."""
    if data_dir is not None and (found := copies.find(name, data_dir)) is not None:
        return found
    there = sorted(path.stem for path in located(data_dir).glob("*.npz")) if data_dir is not None else []
    if name not in _COPIES:
        if (meant := _meant(name)) is not None:
            raise InputError(f"{name} is a path: write {meant}")
        raise unknown("data set", name, [*NAMES, *(stem for stem in there if stem not in NAMES)])
    layout = _COPIES[name].format(name=name) + ("; --download fetches it" if name in DOWNLOADS else "")
    if data_dir is None:
        raise InputError(f"{name} is read from a local copy; say where with --data-dir DIR (data_dir=), holding {layout}")
    if not located(data_dir).is_dir():
        raise InputError(f"the data directory {data_dir} does not exist; it should hold {layout}")
    has = ", ".join(there) or "no .npz files"
    raise InputError(f"the data directory {data_dir} has no {name}: expected {layout}; it has: {has}")


def _meant(path: str) -> str | None:
    """The name of the data set at a path, where it is one."""
    if path and located(path).is_dir():  # no name would be the working directory
        kind = "parquet" if any(located(path).glob("*.parquet")) else "folder"
        return f"{kind}:{path}"
    return f"arrays:{path}" if path.endswith(".npz") and (":" not in path or located(path).exists()) else None


def _splits(name: str, sources: tuple[Source, Source], want: Want, like: Split | None) -> Reading[tuple[Split, Split]]:
    train, test = sources
    classes = _classes(name, train.labels, test.labels, want.classes)
    chosen = {
        split: _choose(name, split, source.labels, classes, getattr(want, split))
        for split, source in zip(("train", "test"), sources)
    }
    if want.imbalance != 1:
        chosen["train"] = chosen["train"][tampering.thinned(name, train.labels[chosen["train"]], imbalance=want.imbalance)]
    labels = [source.labels[indices] for source, indices in zip(sources, chosen.values())]
    labels[0] = tampering.mislabelled(labels[0], chosen["train"], share=want.label_noise, classes=classes)
    images = yield from _images(name, sources, list(chosen.values()), want)
    mean, std = (like.mean, like.std) if like is not None else pixels.statistics(images[0])
    mean, std = mean.to(want.device), std.to(want.device)
    if like is None and not std.all():
        flat = int((std == 0).nonzero()[0])
        raise InputError(f"{name}: every training pixel of channel {flat} has the same value; there is nothing to learn")
    first, second = (Split(x, y.to(want.device), name, classes, mean, std) for x, y in zip(images, labels))
    return first, second


def _images(name: str, sources: Sequence[Source], chosen: Sequence[Tensor], want: Want) -> Reading[list[Tensor]]:
    """The images at these indices of each source, as wanted and where they are to stay."""
    counts = [len(indices) for indices in chosen]
    if (shape := sources[0].shape) is not None:
        memory.check(name, sum(counts[:-1]), counts[-1], shape=shape)
    images = []
    for source, indices in zip(sources, chosen):
        images.append((yield from _gathered(source, indices, want, sum(map(len, images)), sum(counts))))
    tell_cut(name, set().union(*(source.sizes for source in sources)))
    home = memory.home(name, images, want.device)
    return [whole.to(home) for whole in images]


def _gathered(source: Source, indices: Tensor, want: Want, before: int, count: int) -> Reading[Tensor]:
    """All of them in one tensor; they come after so many `before`, of `count`."""
    whole, done = torch.empty(0), 0
    for some in source.images(indices):
        some = pixels.fit(some, want.size, want.channels)
        if not done:
            whole = some.new_empty(len(indices), *some.shape[1:])
        whole[done : done + len(some)] = some
        done += len(some)
        yield before + done, count
    return whole


def _classes(name: str, train: Tensor, test: Tensor, wanted: int | None) -> int:
    """How many classes to keep, after checking that the labels are 0 to classes - 1."""
    present = train.unique()
    count, gaps = len(present), (present != torch.arange(len(present))).nonzero()
    if len(gaps):
        label = int(gaps[0])
        raise InputError(
            f"{name}: labels go up to {int(present[-1])}, but no training image has label {label}; use 0 to classes - 1"
        )
    if count < 2:
        raise InputError(f"{name} has one class only; at least two are needed; other data need no labels to be detected")
    if len(test) and int(test.max()) >= count:
        raise InputError(f"{name}: a test image has label {int(test.max())}, but training labels go from 0 to {count - 1}")
    if wanted is not None and wanted > count:
        raise InputError(f"classes={wanted} asked of {name}, which has {count}")
    return wanted or count


def _enough(count: int, classes: int) -> None:
    if count < classes:
        raise InputError(f"train={count} leaves some of the {classes} classes without an image; ask for {classes} or more")


def _choose(name: str, split: str, labels: Tensor, classes: int, count: int | None) -> Tensor:
    """Indices, ascending, of the images to keep."""
    kept = (labels < classes).nonzero()[:, 0]
    if not len(kept):
        uncut = "; where they are cut from the training images, some class must have two" if split == "test" else ""
        raise InputError(f"{name} has no {split} images" + (f" of the first {classes} classes" if len(labels) else uncut))
    if count is None:
        return kept
    if count > len(kept):
        raise InputError(f"{split}={count} images asked of {name}, which has {len(kept)}")
    if split == "train":
        _enough(count, classes)
    return kept[balanced(labels[kept], count)]
