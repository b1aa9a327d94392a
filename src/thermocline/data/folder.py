"""`folder:DIR`: one folder a class, as DIR/train/CLASS/* with DIR/test/CLASS/* (or val/), or as DIR/CLASS/* cut in two here.

Images of no class, DIR/*, are a test set alone, as is DIR/test/CLASS/* without DIR/train.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from thermocline.data import decoding
from thermocline.data.hashing import held_out
from thermocline.data.source import UNLABELLED, Set, Source, Want
from thermocline.spec import InputError

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
LARGEST = 224  # pixels a side, unless more are asked for


class Files(NamedTuple):
    """Image files of one split and their labels, before any is read."""

    paths: list[Path]
    labels: Int[Tensor, "n"]


@dataclass(frozen=True)
class Layout:
    """Which folder: the names its test part may have, and the classes to read (None: all there are)."""

    root: Path
    tests: Sequence[str] = ("test", "val", "validation")
    classes: Sequence[str] | None = None


def named(layout: Layout, *, size: int | None = None, channels: int | None = None) -> Set:
    """The set in a folder, read at this size and in gray or RGB unless others are wanted; None: as its files are."""

    def read(want: Want) -> tuple[Source, Source]:
        train, test = find(layout)
        first = _source(train, want.size or size, want.channels or channels)
        assert first.shape is not None
        return first, _source(test, first.shape[1], first.shape[0])

    def alone(want: Want) -> Source | None:
        if (files := lone(layout)) is None:
            return None
        return _source(files, want.size or size, want.channels or channels)

    return Set(lambda: check(layout), read, lambda: next(iter(_parts(layout).values())), alone)


def _source(files: Files, size: int | None, channels: int | None) -> Source:
    """A split at this size and in gray or RGB; None: as its files are."""
    if size is None or channels is None:
        own_size, own_channels = natural(files.paths)
        size, channels = size or own_size, channels or own_channels
    sizes: set[tuple[int, int]] = set()
    read = partial(decode, files.paths, size=size, channels=channels, sizes=sizes)
    return Source(files.labels, read, (channels, size, size), sizes)


def lone(layout: Layout) -> Files | None:
    """The files of a folder that is a test set alone: images of no class, or classes under test/; None where it is not."""
    root = layout.root
    if not root.is_dir() or (root / "train").is_dir():
        return None
    if (test := root / layout.tests[0]).is_dir():
        return _files(test, _classes(test, layout.classes))
    images = _images(root) if not any(entry.is_dir() for entry in _entries(root)) else []
    return Files(images, torch.full((len(images),), UNLABELLED)) if images else None


def find(layout: Layout) -> tuple[Files, Files]:
    """(train, test) files of a folder in either layout; classes are the sorted folder names."""
    parts = _parts(layout)
    if len(parts) == 2:
        train, test = (_files(part, classes) for part, classes in parts.items())
        return train, test
    every = _files(layout.root, parts[layout.root])
    held = held_out(every.labels)
    train, test = (
        Files([path for path, wanted in zip(every.paths, mask.tolist()) if wanted], every.labels[mask])
        for mask in (~held, held)
    )
    return train, test


def check(layout: Layout) -> None:
    """Raise unless the folder has class folders in one of the two layouts; opens no image."""
    _parts(layout)


def _parts(layout: Layout) -> dict[Path, list[str]]:
    """The folders that hold class folders, with their class names: {DIR} or {DIR/train, DIR/test}."""
    root = layout.root
    if not root.is_dir():
        raise InputError(f"{root} {'is not a folder' if root.exists() else 'does not exist'}; expected one folder a class")
    train = root / "train"
    # Without train/, a folder called val/ may as well be a class.
    there = [root / name for name in (layout.tests if train.is_dir() else layout.tests[:1]) if (root / name).is_dir()]
    halves = [train, there[0] if there else root / layout.tests[0]]
    present = [half.is_dir() for half in halves]
    if any(present) and not all(present):
        raise InputError(f"{root} has {halves[present.index(True)].name}/ but no {halves[present.index(False)].name}/")
    parts = {part: _classes(part, layout.classes) for part in (halves if all(present) else [root])}
    halves, names = list(parts), list(parts.values())
    for half, own, others in zip(halves, names, reversed(names)):
        if missing := sorted(set(others) - set(own)):
            both = " and ".join(f"{part.name}/" for part in halves)
            raise InputError(f"{root}: {both} must have the same classes, but {half.name}/ has no folder {missing[0]!r}")
    return parts


def _classes(part: Path, wanted: Sequence[str] | None) -> list[str]:
    names = [entry.name for entry in _entries(part) if entry.is_dir()]
    if wanted is not None:
        missing = sorted(set(wanted) - set(names))
        if missing:
            raise InputError(f"{part} has no folder of class {missing[0]} ({len(missing)} of {len(wanted)} are missing)")
        return sorted(wanted)
    if len(names) < 2:
        found = f"one class folder ({names[0]})" if names else "no class folders"
        alone = "; without labels it serves scan --ood and detect features --split test only" if _images(part) else ""
        raise InputError(f"{part} has {found}; expected one folder of images a class, at least two{alone}")
    return names


def _entries(part: Path) -> list[Path]:
    try:
        return sorted(entry for entry in part.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"{part} cannot be read: {error.strerror or error}") from None


def _images(part: Path) -> list[Path]:
    return [entry for entry in _entries(part) if entry.suffix.lower() in _SUFFIXES and entry.is_file()]


def _files(part: Path, classes: list[str]) -> Files:
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        images = _images(part / name)
        if not images:
            raise InputError(f"{part / name} has no images ({' '.join(sorted(_SUFFIXES))})")
        paths += images
        labels += [label] * len(images)
    return Files(paths, torch.tensor(labels))


def natural(paths: list[Path]) -> tuple[int, int]:
    """(size, channels) to read at when none are asked for: the commonest shorter side, at most 224; 1 if all are gray."""
    sides: Counter[int] = Counter()
    gray = True
    for path in paths:
        with decoding.opened(_encoded(path)) as image:
            sides[min(image.size)] += 1
            gray &= image.mode in decoding.GRAY
    return min(sides.most_common(1)[0][0], LARGEST), 1 if gray else 3


def decode(
    paths: list[Path], indices: Int[Tensor, "n"], *, size: int, channels: int, sizes: set[tuple[int, int]]
) -> Iterator[UInt8[Tensor, "b c s s"]]:
    """The images at these indices, some at a time, the middle square of each resized; `sizes` gets what they had."""
    for some in indices.split(decoding.AT_ONCE):
        chosen = [_encoded(paths[index]) for index in some.tolist()]
        yield decoding.squares(chosen, size=size, channels=channels, sizes=sizes)


def _encoded(path: Path) -> decoding.Encoded:
    return decoding.Encoded(str(path), path)
