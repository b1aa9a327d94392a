"""What lies between the name of a data set and its splits: what is wanted, and where labels and images come from."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from thermocline.spec import InputError


def located(path: str | os.PathLike[str]) -> Path:
    """A path as the user wrote it, with ~ for a home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(f"{path}: there is no such home directory") from None


@dataclass(frozen=True)
class Want:
    """What was asked of a set; None: as the set has it."""

    classes: int | None = None
    size: int | None = None
    channels: int | None = None
    train: int | None = None
    test: int | None = None
    imbalance: float = 1.0
    label_noise: float = 0.0
    device: str | torch.device = "cpu"


@dataclass(frozen=True)
class Source:
    """One split before its pixels are made: all labels, and how to get the images at given indices, some at a time.

    `shape` is (c, h, w) where images are decoded one by one: what memory they will take can be told beforehand.
    `sizes` gathers the (width, height) that those decoded had.
    """

    labels: Int[Tensor, "n"]
    images: Callable[[Tensor], Iterable[Tensor]]
    shape: tuple[int, int, int] | None = None
    sizes: set[tuple[int, int]] = field(default_factory=set)


@dataclass(frozen=True)
class Set:
    """A named set: a cheap test that it is there, how to get its (train, test) sources, and what its classes are called.

    `alone` gives the test source of a set that has nothing else, or None; without labels, those are -1.
    """

    check: Callable[[], None]
    read: Callable[[Want], tuple[Source, Source]]
    names: Callable[[], Sequence[str]] = tuple
    alone: Callable[[Want], Source | None] = lambda want: None


UNLABELLED = -1
_AT_ONCE = 1024  # images that may have to be resized together


def held(images: Tensor, labels: Tensor) -> Source:
    """A source of images that are in memory already."""
    return Source(labels, lambda indices: (images[some] for some in indices.split(_AT_ONCE)))


class AllCut(UserWarning):
    """Every image of a set had one shape that is not square, and was cut: a net may have been trained on whole ones."""


def tell_cut(name: str, sizes: set[tuple[int, int]]) -> None:
    """Warn where images of these (width, height), of files that a user brought, were cut to squares."""
    oblong = sorted((width, height) for width, height in sizes if width != height)
    if not oblong or ":" not in name:  # imagenet is cut by everyone
        return
    width, height = oblong[0]
    if len(sizes) == 1:
        side = min(width, height)
        said = f"{name}: images of {width} x {height} pixels are cut to their middle {side} x {side}"
        warnings.warn(said, AllCut, stacklevel=4)
    else:
        said = f"images that are not square, such as those of {width} x {height} pixels, are cut to their middle"
        warnings.warn(f"{name}: {said}", stacklevel=4)
