"""Encoded images (PNG, JPEG, ...) as square uint8 arrays, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps

from thermocline.spec import InputError

Item = TypeVar("Item")
GRAY = {"1", "L", "LA"}  # Pillow modes
_DEEP = {"I", "F"}  # Pillow modes that would be clipped, not scaled, to a byte
_AT_ONCE = 256  # images given to the threads together: bounds what waits in memory, and stops soon after an error


def opened(source: Path | BytesIO, what: str) -> Image.Image:
    """The image with its header read and checked, its pixels not yet decoded; `what` names it in errors."""
    try:
        image = Image.open(source)
    except Exception:  # a decoder raises whatever it meets in a damaged file
        raise InputError(f"{what} cannot be read as an image") from None
    if image.mode.split(";")[0] in _DEEP:
        image.close()
        raise InputError(f"{what} has pixels of more than 8 bits (mode {image.mode}); convert it to 8-bit grey or RGB")
    return image


def square(image: Image.Image, what: str, *, size: int, channels: int) -> np.ndarray:
    """The middle square, resized to size x size (bilinear, antialiased), as uint8 (c, h, w)."""
    try:
        upright = ImageOps.exif_transpose(image)  # cameras store how they were held, not a turned picture
        width, height = upright.size
        side = min(width, height)
        # On whole pixels: a square between two would blur what needs no resizing.
        left, top = (width - side) // 2, (height - side) // 2
        middle = upright.crop((left, top, left + side, top + side)).convert("L" if channels == 1 else "RGB")
        fitted = middle if side == size else middle.resize((size, size), Image.Resampling.BILINEAR)
    except Exception:  # as above
        raise InputError(f"{what} is damaged and cannot be read as an image") from None
    return np.asarray(fitted).reshape(size, size, channels).transpose(2, 0, 1)


def each(work: Callable[[Item], None], items: Iterable[Item]) -> None:
    """Do the work on every item, in as many threads as torch uses; the error raised is that of the first item to fail.

    The work is for NumPy and Pillow: torch would start threads of its own in every thread.
    """
    waiting = iter(items)
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        while some := list(islice(waiting, _AT_ONCE)):
            list(pool.map(work, some))
