"""Encoded images (PNG, JPEG, ...) as square uint8 arrays, several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageOps
from torch import Tensor

from thermocline.spec import InputError

GRAY = {"1", "L", "LA"}  # Pillow modes
_DEEP = {"I", "F"}  # Pillow modes that would be clipped, not scaled, to a byte
AT_ONCE = 256  # images given to the threads together: bounds what waits in memory, and stops soon after an error


class Encoded(NamedTuple):
    """An image as it is stored: in a file, or as bytes (None: there are none); `what` names it in errors."""

    what: str
    stored: Path | bytes | None


def opened(image: Encoded) -> Image.Image:
    """The image with its header read and checked, its pixels not yet decoded."""
    what, stored = image
    if stored is None:
        raise InputError(f"{what} holds no image (or only the path of one; embed the bytes)")
    try:
        found = Image.open(BytesIO(stored) if isinstance(stored, bytes) else stored)
    except Exception:  # a decoder raises whatever it meets in a damaged file
        raise InputError(f"{what} cannot be read as an image") from None
    if found.mode.split(";")[0] in _DEEP:
        found.close()
        raise InputError(f"{what} has pixels of more than 8 bits (mode {found.mode}); convert it to 8-bit grey or RGB")
    return found


def squares(
    images: Sequence[Encoded], *, size: int, channels: int, sizes: set[tuple[int, int]], exact: bool = False
) -> UInt8[Tensor, "n c s s"]:
    """The middle squares, resized to size x size, in as many threads as torch uses; `sizes` gets what they had.

    If `exact`, they must have that size. The error raised is that of the first image to fail.
    """
    result = torch.empty((len(images), channels, size, size), dtype=torch.uint8)
    pixels = result.numpy()  # in the threads NumPy and Pillow only: torch would start threads of its own in each

    def work(place: int) -> None:
        what = images[place].what
        with opened(images[place]) as image:
            if exact and image.size != (size, size):
                found = f"{image.width} x {image.height} pixels, others {size} x {size}"
                raise InputError(f"{what} has {found}; say at what size to read them with data.size")
            sizes.add(image.size)
            pixels[place] = _square(image, what, size=size, channels=channels)

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(work, range(len(images))))
    return result


def _square(image: Image.Image, what: str, *, size: int, channels: int) -> np.ndarray:
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
