"""Names of data sets, and how each becomes a pair of splits."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn import functional

from thermocline.data import arrays, folder, runes
from thermocline.data.hashing import balanced, held_out
from thermocline.data.split import Split
from thermocline.spec import InputError, unknown

NAMES: dict[str, str] = {
    "runes": "synthetic alphabet 0: 100 classes, 16 pixels, gray, 12000 + 3000 images, drawn on the spot",
    "runes:SEED": "another alphabet of the same family (near-OOD)",
    "digits": "scikit-learn's handwritten digits: 10 classes, 8 pixels, gray, 1438 + 359 images (far-OOD)",
    "cifar10": "DATA_DIR/cifar10.npz: 10 classes of photographs, 32 pixels, RGB, 50000 + 10000 images",
    "cifar100": "DATA_DIR/cifar100.npz: 100 classes of photographs, 32 pixels, RGB, 50000 + 10000 images",
    "svhn": "DATA_DIR/svhn.npz: house numbers, 10 classes, 32 pixels, RGB",
    "arrays:FILE.npz": "x_train, y_train, x_test, y_test: square images, uint8 or float in [0, 1], and integer labels",
    "folder:DIR": "one folder of images a class, under DIR/train and DIR/test, or under DIR (cut 80 / 20 here)",
}
_COPIES = ("cifar10", "cifar100", "svhn")
_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as Pillow turns RGB to gray
_AT_ONCE = 1024  # images converted together, to bound memory


@dataclass(frozen=True)
class Want:
    """What was asked of a set; None: as the set has it."""

    classes: int | None = None
    size: int | None = None
    channels: int | None = None
    train: int | None = None
    test: int | None = None
    device: str | torch.device = "cpu"

    def __post_init__(self) -> None:
        for name, least in {"classes": 2, "size": 4, "train": 1, "test": 1}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} must be at least {least}, got {value}")


@dataclass(frozen=True)
class Source:
    """One split before its pixels are made: all labels, and how to get the images at given indices."""

    labels: Int[Tensor, "n"]
    images: Callable[[Tensor], Tensor]


def load(
    name: str,
    *,
    like: Split | None = None,
    classes: int | None = None,
    size: int | None = None,
    train: int | None = None,
    test: int | None = None,
    device: str | torch.device = "cpu",
    data_dir: str | os.PathLike[str] | None = None,
) -> tuple[Split, Split]:
    """The (train, test) splits of a named set.

    `classes` keeps the first so many classes; `train` and `test` take class-balanced random subsets, always the same.
    `like` reads the set as a network trained on that split sees it: at its size, channels and normalisation.

    >>> train, test = load("runes", classes=10, train=200, test=50)
    >>> train.images.shape, len(test), train.labels.bincount().tolist()
    (torch.Size([200, 1, 16, 16]), 50, [20, 20, 20, 20, 20, 20, 20, 20, 20, 20])
    """
    want = Want(classes=classes, size=size, train=train, test=test, device=device)
    if like is not None:
        if size not in (None, like.size):
            raise InputError(f"size={size} contradicts like=: {like.name} has {like.size} pixels a side")
        want = replace(want, size=like.size, channels=like.channels)
    sources = _find(name, data_dir).read(want)
    return _splits(name, sources, want, like)


def check(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> None:
    """Raise `InputError` if the name is unknown or its files are missing; reads no images."""
    _find(name, data_dir).check()


@dataclass(frozen=True)
class Set:
    """A named set: a cheap test that it is there, and how to get its (train, test) sources."""

    check: Callable[[], None]
    read: Callable[[Want], tuple[Source, Source]]


def _find(name: str, data_dir: str | os.PathLike[str] | None) -> Set:
    kind, colon, rest = name.partition(":")
    if kind not in _KINDS:
        return _file(_copy(name, data_dir))
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
    train, test = (
        Source(
            runes.labels(classes, count),
            partial(runes.render, seed=seed, split=split, classes=classes, size=size, device=want.device),
        )
        for split, count in counts.items()
    )
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

        pixels, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
        images, labels = _round(pixels * (255 / 16)).view(-1, 1, 8, 8), labels.long()
        held = held_out(labels)
        return _held(images[~held], labels[~held]), _held(images[held], labels[held])

    return Set(there, read)


def _arrays(name: str, rest: str | None) -> Set:
    return _file(_path(name, rest, "arrays:FILE.npz"))


def _file(path: Path) -> Set:
    def read(want: Want) -> tuple[Source, Source]:
        found = arrays.read(path)
        return _held(found["x_train"], found["y_train"]), _held(found["x_test"], found["y_test"])

    return Set(partial(arrays.check, path), read)


def _folder(name: str, rest: str | None) -> Set:
    root = _path(name, rest, "folder:DIR")

    def found(want: Want) -> tuple[Source, Source]:
        train, test = folder.find(root)
        size, channels = want.size, want.channels
        if size is None or channels is None:
            own_size, own_channels = folder.natural(train.paths)
            size, channels = size or own_size, channels or own_channels
        read = partial(folder.read, size=size, channels=channels)
        return Source(train.labels, partial(read, train.paths)), Source(test.labels, partial(read, test.paths))

    return Set(partial(folder.check, root), found)


_KINDS: dict[str, Callable[[str, str | None], Set]] = {
    "runes": _runes, "digits": _digits, "arrays": _arrays, "folder": _folder,
}  # fmt: skip


def _held(images: Tensor, labels: Tensor) -> Source:
    return Source(labels, lambda indices: images[indices])


def _path(name: str, rest: str | None, form: str) -> Path:
    if not rest:
        raise InputError(f"data set {name!r} names no path; write {form}")
    return Path(rest).expanduser()


def _copy(name: str, data_dir: str | os.PathLike[str] | None) -> Path:
    """The file that holds a set under the data directory."""
    there = sorted(Path(data_dir).expanduser().glob("*.npz")) if data_dir is not None else []
    found = {path.stem: path for path in there}
    if name in found:
        return found[name]
    if name not in _COPIES:
        raise unknown("data set", name, [*NAMES, *(stem for stem in found if stem not in NAMES)])
    layout = f"{name}.npz with {', '.join(arrays.KEYS)}"
    if data_dir is None:
        raise InputError(f"{name} is read from a local copy; say where with --data-dir DIR (data_dir=), holding {layout}")
    if not Path(data_dir).expanduser().is_dir():
        raise InputError(f"the data directory {data_dir} does not exist; it should hold {layout}")
    raise InputError(f"the data directory {data_dir} has no {layout}; it has: {', '.join(found) or 'no .npz files'}")


def _splits(name: str, sources: tuple[Source, Source], want: Want, like: Split | None) -> tuple[Split, Split]:
    classes = _classes(name, sources[0].labels, sources[1].labels, want.classes)
    made = {}
    for split, source in zip(("train", "test"), sources):
        chosen = _choose(name, split, source.labels, classes, getattr(want, split))
        images = _fit(source.images(chosen), want.size, want.channels).to(want.device)
        made[split] = (images, source.labels[chosen].to(want.device))
    mean, std = _statistics(name, made["train"][0]) if like is None else (like.mean.to(want.device), like.std.to(want.device))
    train, test = (Split(images, labels, name, classes, mean, std) for images, labels in made.values())
    return train, test


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
        raise InputError(f"{name} has one class only; at least two are needed")
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
        raise InputError(f"{name} has no {split} images" + (f" of the first {classes} classes" if len(labels) else ""))
    if count is None:
        return kept
    if count > len(kept):
        raise InputError(f"{split}={count} images asked of {name}, which has {len(kept)}")
    if split == "train":
        _enough(count, classes)
    return kept[balanced(labels[kept], count)]


def _fit(images: UInt8[Tensor, "n c h w"], size: int | None, channels: int | None) -> UInt8[Tensor, "n d s s"]:
    """The images at this size (bilinear, antialiased) and in gray or RGB."""
    if size not in (None, images.shape[-1]):
        resize = partial(functional.interpolate, size=(size, size), mode="bilinear", antialias=True)
        images = torch.cat([_round(resize(some.float())) for some in images.split(_AT_ONCE)])
    if channels == 3 and images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1).contiguous()
    if channels == 1 and images.shape[1] == 3:
        luma = torch.tensor(_LUMA, device=images.device)[:, None, None]
        images = torch.cat([_round((some * luma).sum(1, keepdim=True)) for some in images.split(_AT_ONCE)])
    return images


def _round(x: Tensor) -> Tensor:
    return x.round().clamp(0, 255).to(torch.uint8)


def _statistics(name: str, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "c"], Float[Tensor, "c"]]:
    """Mean and standard deviation of each channel over all pixels in [0, 1]."""
    # Sums of integers are exact in float64, so the order of summation cannot matter, nor a difference of squares cancel.
    total = square = torch.zeros(images.shape[1], dtype=torch.float64, device=images.device)
    for some in images.split(_AT_ONCE):
        values = some.flatten(2).to(torch.float64)
        total, square = total + values.sum(2).sum(0), square + torch.linalg.vecdot(values, values).sum(0)
    pixels = images.numel() // images.shape[1]
    sums = [(int(first), int(second)) for first, second in zip(total.tolist(), square.tolist())]
    mean = [first / pixels / 255 for first, _ in sums]
    std = [math.sqrt(pixels * second - first * first) / pixels / 255 for first, second in sums]
    if 0 in std:
        raise InputError(
            f"{name}: every training pixel of channel {std.index(0)} has the same value; there is nothing to learn"
        )
    return torch.tensor(mean, device=images.device), torch.tensor(std, device=images.device)
