"""Where images can be held: whether main memory has room, before any is decoded, and whether the device has too."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from thermocline.spec import InputError

_SHARE = 0.9  # of what main memory has free; the rest is for everything else
_CARD = 0.5  # of what a GPU has free; the rest is for training and measuring
_GB = 1e9


def check(name: str, train: int, test: int, *, shape: tuple[int, int, int]) -> None:
    """Raise unless so many images of this shape fit into main memory, saying what would fit."""
    free = available()
    if free is not None:
        free //= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # each process that torchrun started holds all images
    channels, size, _ = shape
    each, total = channels * size * size, train + test
    if free is None or total * each <= _SHARE * free:
        return
    budget = _SHARE * free
    side = int(math.sqrt(budget / (total * channels))) // 8 * 8
    images = _round_down(int(budget / each) - test)
    advice = [f"data.size={side} ({total * channels * side**2 / _GB:.1f} GB)"] if side >= 8 else []
    advice += [f"data.train={images}"] if images > 0 else []
    would = f"{' or '.join(advice)} would fit" if advice else "take fewer with data.train and data.test"
    takes = f"{total} images of {size} x {size} pixels take {total * each / _GB:.1f} GB"
    raise InputError(f"{name}: {takes}, but {free / _GB:.1f} GB of memory are free; {would}")


def home(name: str, images: Sequence[Tensor], device: str | torch.device) -> torch.device:
    """Where these images go: to the device or, where that leaves too little room there, nowhere: they stay in main memory."""
    device = torch.device(device)
    takes = sum(some.nbytes for some in images if not some.is_cuda)
    if device.type != "cuda" or takes <= _CARD * (free := _free(device)):
        return device
    left = f"of {free / _GB:.1f} GB free on {device}, half are left to training"
    warnings.warn(f"{name}: {takes / _GB:.1f} GB of images stay in main memory ({left})", stacklevel=4)
    return torch.device("cpu")


def _free(device: torch.device) -> int:
    """Bytes free on a GPU, those that torch keeps for later use among them."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def available() -> int | None:
    """Bytes free in main memory; None where the system does not tell."""
    return min((amount for amount in (_machine(), _container()) if amount is not None), default=None)


def _machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _container() -> int | None:
    """The limit of the control group, of version 2 or 1; a limit of "max" is none."""
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return int(Path(file).read_text())
        except (OSError, ValueError):
            continue
    return None


def _round_down(count: int) -> int:
    """To two digits.

    >>> _round_down(123456), _round_down(98), _round_down(-5)
    (120000, 98, 0)
    """
    unit = 10 ** max(len(str(count)) - 2, 0)
    return max(count // unit * unit, 0)
