"""`arrays:FILE.npz` and the copies under a data directory: x_train, y_train, x_test, y_test in one NumPy archive.

It may also have `names`, of the classes in the order of their labels.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from thermocline.data.source import UNLABELLED, Set, Source, Want, held
from thermocline.spec import InputError

KEYS = ("x_train", "y_train", "x_test", "y_test")
_HOW = f"numpy.savez(file, {', '.join(f'{key}=...' for key in KEYS)})"


def named(path: Path) -> Set:
    """The set in a file."""

    def sources(want: Want) -> tuple[Source, Source]:
        found = read(path)
        return held(found["x_train"], found["y_train"]), held(found["x_test"], found["y_test"])

    return Set(lambda: check(path), sources, lambda: names(path), lambda want: alone(path))


def read(path: Path) -> dict[str, Tensor]:
    """The four arrays: images as uint8 (n, c, h, w), labels as int64."""
    with _opened(path) as archive:
        _require(path, archive)
        raw = {key: _member(path, archive, key) for key in KEYS}
    arrays = _part(path, raw, "train") | _part(path, raw, "test")
    if arrays["x_train"].shape[1:] != arrays["x_test"].shape[1:]:
        shapes = " and ".join(str(tuple(raw[x].shape[1:])) for x in ("x_train", "x_test"))
        raise InputError(f"{path}: training and test images differ in shape: {shapes}")
    return arrays


def alone(path: Path) -> Source | None:
    """The test images of a file that lacks training images or labels, and their labels if it has them."""
    with _opened(path) as archive:
        if "x_test" not in archive.files or all(key in archive.files for key in KEYS):
            return None
        raw = {key: _member(path, archive, key) for key in ("x_test", "y_test") if key in archive.files}
    arrays = _part(path, raw, "test")
    return held(arrays["x_test"], arrays["y_test"])


def _part(path: Path, raw: dict[str, np.ndarray], split: str) -> dict[str, Tensor]:
    x, y = f"x_{split}", f"y_{split}"
    found = images(f"{path}: {x}", raw[x])
    known = labels(f"{path}: {y}", raw[y]) if y in raw else torch.full((len(found),), UNLABELLED)
    if len(found) != len(known):
        raise InputError(f"{path}: {x} has {len(found)} images but {y} has {len(known)} labels")
    return {x: found, y: known}


def names(path: Path) -> list[str]:
    """What the classes are called, in the order of their labels, where the archive has `names`."""
    with _opened(path) as archive:
        found = _member(path, archive, "names") if "names" in archive.files else np.empty(0, str)
    return [str(name) for name in found.tolist()] if found.ndim == 1 and found.dtype.kind == "U" else []


def check(path: Path) -> None:
    """Raise unless the file is an archive with the four arrays; reads its table of contents only."""
    with _opened(path) as archive:
        _require(path, archive)


def _require(path: Path, archive: np.lib.npyio.NpzFile) -> None:
    if missing := [key for key in KEYS if key not in archive.files]:
        alone = "without labels and a training split it serves scan --ood and detect features --split test only"
        has = ", ".join(archive.files) or "nothing"
        hint = f"write it with {_HOW}" if "x_test" in missing else alone
        raise InputError(f"{path} has no {', '.join(missing)}; it has: {has}; {hint}")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; it should be an .npz file with {', '.join(KEYS)}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    with file:
        try:
            archive = np.load(file, allow_pickle=False)
        except Exception:  # NumPy raises whatever its zip and array parsers raise
            raise InputError(f"{path} is not an .npz file; write one with {_HOW}") from None
        if isinstance(archive, np.ndarray):
            raise InputError(f"{path} holds a single array; write an .npz file with {_HOW}")
        yield archive


def _member(path: Path, archive: np.lib.npyio.NpzFile, key: str) -> np.ndarray:
    try:
        return np.asarray(archive[key])
    except Exception as error:  # as above; a damaged archive is found out only here
        pickled = "pickle" in str(error)
        reason = "holds Python objects (a pickle), which are never loaded" if pickled else "is damaged and cannot be read"
        raise InputError(f"{path}: {key} {reason}") from None


def images(what: str, x: np.ndarray) -> Tensor:
    """Square images in any accepted layout as uint8 (n, c, h, w); `what` names them in errors."""
    if x.ndim not in (3, 4):
        raise InputError(f"{what} has shape {x.shape}; expected (n, h, w), (n, h, w, c) or (n, c, h, w)")
    if not len(x):
        raise InputError(f"{what} holds no images")
    shape = x.shape
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[3] in (1, 3) and (x.shape[1] == x.shape[2] or x.shape[1] not in (1, 3)):
        x = x.transpose(0, 3, 1, 2)
    if x.shape[1] not in (1, 3):
        raise InputError(f"{what} has shape {shape}; images must have 1 channel (grey) or 3 (RGB)")
    if x.shape[2] != x.shape[3]:
        raise InputError(f"{what} has images of {x.shape[2]} x {x.shape[3]} pixels; they must be square: crop or resize them")
    if not x.shape[2]:
        raise InputError(f"{what} has images without pixels")
    return torch.from_numpy(np.ascontiguousarray(_bytes(what, x)))


def _bytes(what: str, x: np.ndarray) -> np.ndarray:
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind != "f":
        raise InputError(f"{what} is {x.dtype}; images must be uint8, or float in [0, 1]")
    low, high = float(x.min()), float(x.max())
    if not (low >= 0 and high <= 1):  # so written, NaN fails too
        raise InputError(f"{what} has values from {low:g} to {high:g}; float images must lie in [0, 1], or be saved as uint8")
    return np.rint(x.astype(np.float32, copy=False) * np.float32(255)).astype(np.uint8)


def labels(what: str, y: np.ndarray) -> Tensor:
    """Labels as int64, if they can be 0 to classes - 1."""
    if y.ndim != 1:
        raise InputError(f"{what} has shape {y.shape}; expected one label an image: (n,)")
    if y.dtype.kind not in "iu":
        raise InputError(f"{what} is {y.dtype}; labels must be integers, 0 to classes - 1")
    for extreme in (int(y.min()), int(y.max())) if len(y) else ():
        if not 0 <= extreme < 1 << 31:
            raise InputError(f"{what} has the label {extreme}; labels must be 0 to classes - 1")
    return torch.from_numpy(y.astype(np.int64))
