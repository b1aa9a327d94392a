"""What lies between the name of a data set and its splits: what is wanted, and where labels and images come from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    """One split before its pixels are made: all labels, and how to get the images at given indices.

    `shape` is (c, h, w) where images are decoded one by one: what memory they will take can be told beforehand.
    """

    labels: Int[Tensor, "n"]
    images: Callable[[Tensor], Tensor]
    shape: tuple[int, int, int] | None = None


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


def held(images: Tensor, labels: Tensor) -> Source:
    """A source of images that are in memory already."""
    return Source(labels, lambda indices: images[indices])
