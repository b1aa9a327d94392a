"""`folder:DIR`: one folder a class, as DIR/train/CLASS/* with DIR/test/CLASS/*, or as DIR/CLASS/* cut in two here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int, UInt8
from PIL import Image, ImageOps
from torch import Tensor

from thermocline.data.hashing import held_out
from thermocline.spec import InputError

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
_GRAY, _DEEP = {"1", "L", "LA"}, {"I", "F"}  # Pillow modes; the deep ones would be clipped, not scaled, to a byte
LARGEST = 224  # pixels a side, unless more are asked for


class Files(NamedTuple):
    """Image files of one split and their labels, before any is read."""

    paths: list[Path]
    labels: Int[Tensor, "n"]


def find(root: Path) -> tuple[Files, Files]:
    """(train, test) files of a folder in either layout; classes are the sorted folder names."""
    parts = _parts(root)
    if len(parts) == 2:
        train, test = (_files(part, classes) for part, classes in parts.items())
        return train, test
    every = _files(root, parts[root])
    held = held_out(every.labels)
    train, test = (
        Files([path for path, wanted in zip(every.paths, mask.tolist()) if wanted], every.labels[mask])
        for mask in (~held, held)
    )
    return train, test


def check(root: Path) -> None:
    """Raise unless the folder has class folders in one of the two layouts; opens no image."""
    _parts(root)


def _parts(root: Path) -> dict[Path, list[str]]:
    """The folders that hold class folders, with their class names: {DIR} or {DIR/train, DIR/test}."""
    if not root.is_dir():
        raise InputError(f"{root} {'is not a folder' if root.exists() else 'does not exist'}; expected one folder a class")
    halves = [root / "train", root / "test"]
    present = [half.is_dir() for half in halves]
    if any(present) and not all(present):
        raise InputError(f"{root} has {halves[present.index(True)].name}/ but no {halves[present.index(False)].name}/")
    parts = {part: _classes(part) for part in (halves if all(present) else [root])}
    names = list(parts.values())
    if names[0] != names[-1]:
        odd = sorted(set(names[0]) ^ set(names[-1]))[0]
        raise InputError(f"{root}: train/ and test/ must have the same classes, but {odd!r} is in one of them only")
    return parts


def _classes(part: Path) -> list[str]:
    names = [entry.name for entry in _entries(part) if entry.is_dir()]
    if len(names) < 2:
        found = f"one class folder ({names[0]})" if names else "no class folders"
        raise InputError(f"{part} has {found}; expected one folder of images a class, at least two")
    return names


def _entries(part: Path) -> list[Path]:
    try:
        return sorted(entry for entry in part.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"{part} cannot be read: {error.strerror or error}") from None


def _files(part: Path, classes: list[str]) -> Files:
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        images = [entry for entry in _entries(part / name) if entry.suffix.lower() in _SUFFIXES and entry.is_file()]
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
        with _image(path) as image:
            sides[min(image.size)] += 1
            gray &= image.mode in _GRAY
    return min(sides.most_common(1)[0][0], LARGEST), 1 if gray else 3


def read(paths: list[Path], indices: Int[Tensor, "n"], *, size: int, channels: int) -> UInt8[Tensor, "n c s s"]:
    """The images at these indices, the middle square of each resized to size x size."""
    images = torch.empty((len(indices), channels, size, size), dtype=torch.uint8)
    for place, index in enumerate(indices.tolist()):
        path = paths[index]
        with _image(path) as image:
            try:
                upright = ImageOps.exif_transpose(image)  # cameras store how they were held, not a turned picture
                square = ImageOps.fit(upright.convert("L" if channels == 1 else "RGB"), (size, size), Image.Resampling.BILINEAR)
            except Exception:  # a decoder raises whatever it meets in a damaged file
                raise InputError(f"{path} is damaged and cannot be read as an image") from None
        images[place] = torch.from_numpy(np.array(square).reshape(size, size, channels)).permute(2, 0, 1)
    return images


def _image(path: Path) -> Image.Image:
    """The image with its header read and checked, its pixels not yet decoded."""
    try:
        image = Image.open(path)
    except Exception:  # as in `read`
        raise InputError(f"{path} cannot be read as an image") from None
    if image.mode.split(";")[0] in _DEEP:
        image.close()
        raise InputError(f"{path} has pixels of more than 8 bits (mode {image.mode}); convert it to 8-bit gray or RGB")
    return image
