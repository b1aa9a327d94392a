"""Well-known sets from local copies under a data directory, in whatever layout they were downloaded."""

from __future__ import annotations

import importlib.util
import operator
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from thermocline.data import arrays, folder, parquet
from thermocline.data.source import Set, Source, Want, held, located
from thermocline.spec import InputError

IMAGENET_CLASSES = 100  # that a list of those of imagenet100 must have


class Layout(NamedTuple):
    """How torchvision leaves a set: the files of each split, how to read one, and the folder of parquet files to prefer."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    read: Callable[[Path], tuple[Tensor, Tensor]]
    parquet: str = ""


def find(name: str, data_dir: str | os.PathLike[str]) -> Set | None:
    """The set of that name under the directory: NAME.npz, torchvision's files, a folder; None if it has none."""
    root = located(data_dir)
    if Path(name).name == name and (root / f"{name}.npz").is_file():
        return arrays.named(root / f"{name}.npz")
    if name in ("imagenet", "imagenet100"):
        return _imagenet(name, root)
    if name in LAYOUTS:
        return _small(name, root)
    return None


def _small(name: str, root: Path) -> Set | None:
    layout = LAYOUTS[name]
    files = [root / file for file in (*layout.train, *layout.test)]
    if any(file.exists() for file in files):
        return _torchvision(root, layout)
    if (root / name).is_dir():
        inner = root / name / layout.parquet
        return parquet.named(inner if inner.is_dir() else root / name, {})
    return None


def _torchvision(root: Path, layout: Layout) -> Set:
    def there() -> None:
        for file in (*layout.train, *layout.test):
            if not (root / file).is_file():
                raise InputError(f"{root / file} is missing, but other files of the set are there; download it again")
        if layout.read is _mat and importlib.util.find_spec("scipy") is None:
            raise InputError(f"{root / layout.train[0]} is read with scipy, which is not installed: pip install scipy")

    def split(files: tuple[str, ...]) -> Source:
        parts = [layout.read(root / file) for file in files]
        return held(torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts]))

    def read(want: Want) -> tuple[Source, Source]:
        there()
        return split(layout.train), split(layout.test)

    return Set(there, read)


AGAIN = "delete it, then fetch it again (--download)"


class _Format:
    """Stands in for a pickled NumPy dtype: whole numbers only, and of its state the byte order alone is believed."""

    def __init__(self, code: str, *_: object) -> None:
        if code not in ("u1", "i1", "i2", "i4", "i8"):
            raise pickle.UnpicklingError(f"it has an array of {code!r}")
        self.code, self.order = code, "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if state[1] == ">" else "<"


class _Array:
    """Stands in for a pickled NumPy array, made here from its bytes: NumPy's own way back would follow forged pointers."""

    def __init__(self, *_: object) -> None:
        self.values = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, form, fortran, raw = state
        if not isinstance(form, _Format):
            raise pickle.UnpicklingError("it has an array of no known kind")
        raw = raw.encode("latin1") if isinstance(raw, str) else raw  # a Python 2 string
        values = np.frombuffer(raw, np.dtype(form.order + form.code)).copy()  # its own, to be written to
        self.values = values.reshape(shape, order="F" if fortran else "C")


class _ArraysOnly(pickle.Unpickler):
    """Builds plain containers and arrays of whole numbers; all else a pickle names is refused, so none of its code runs."""

    def find_class(self, module: str, name: str) -> Any:
        # The function behind every pickled array, whose module has had two names, and what it is given.
        makers = {(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")}
        allowed = {**makers, ("numpy", "dtype"): _Format, ("numpy", "ndarray"): "an array"}
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return allowed[module, name]


def _batch(path: Path) -> tuple[Tensor, Tensor]:
    """A batch of CIFAR-10 or CIFAR-100: a pickled dictionary with rows of 3 x 32 x 32 bytes; of two labels the finer."""
    with path.open("rb") as file:
        try:
            batch = _ArraysOnly(file, encoding="latin1").load()  # written by Python 2
            images, labels = batch["data"], batch.get("fine_labels", batch.get("labels"))
            images = images.values.reshape(-1, 3, 32, 32)
            labels = labels.values if isinstance(labels, _Array) else np.array([operator.index(label) for label in labels])
        except MemoryError:
            raise
        except Exception as error:  # a damaged pickle raises anything
            reason = f": {error}" if isinstance(error, pickle.UnpicklingError) else ""
            raise InputError(f"{path} is damaged, or no batch of CIFAR{reason}; {AGAIN}") from None
    return _pair(path, images, labels)


def _mat(path: Path) -> tuple[Tensor, Tensor]:
    """A file of SVHN: X of 32 x 32 x 3 x n bytes, and y of n x 1 labels, 10 being the digit zero."""
    import scipy.io

    try:
        found = scipy.io.loadmat(path, variable_names=["X", "y"])
        images, labels = found["X"].transpose(3, 2, 0, 1), found["y"].reshape(-1).astype(np.int64) % 10
    except MemoryError:
        raise
    except Exception:  # as above
        raise InputError(f"{path} is damaged, or no file of SVHN's cropped digits; {AGAIN}") from None
    return _pair(path, images, labels)


def _pair(path: Path, images: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    x, y = arrays.images(f"{path}: its images", images), arrays.labels(f"{path}: its labels", labels)
    if len(x) != len(y):
        raise InputError(f"{path} has {len(x)} images but {len(y)} labels; {AGAIN}")
    return x, y


LAYOUTS = {
    "cifar10": Layout(
        tuple(f"cifar-10-batches-py/data_batch_{part}" for part in range(1, 6)), ("cifar-10-batches-py/test_batch",), _batch
    ),
    "cifar100": Layout(("cifar-100-python/train",), ("cifar-100-python/test",), _batch),
    "svhn": Layout(("train_32x32.mat",), ("test_32x32.mat",), _mat, "cropped_digits"),
}


def _imagenet(name: str, root: Path) -> Set | None:
    """DIR/NAME/{train,val}/CLASS/*; for imagenet100 also those classes of DIR/imagenet that DIR/imagenet100.txt lists."""
    listed = root / "imagenet100.txt" if name == "imagenet100" else None
    classes = _listed(listed) if listed is not None and listed.is_file() else None
    images = root / name
    if classes is not None and not images.is_dir():
        images = root / "imagenet"
    if not images.is_dir():
        return None
    # The original test/ has no labels, so it is never taken for the test part.
    return folder.named(folder.Layout(images, tests=("val",), classes=classes), size=folder.LARGEST, channels=3)


def _listed(file: Path) -> list[str]:
    try:
        lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read as text: {error}") from None
    classes = [words[0] for words in lines if words and not words[0].startswith("#")]
    if len(set(classes)) != IMAGENET_CLASSES or len(classes) != IMAGENET_CLASSES:
        found = f"{len(classes)} classes, {len(set(classes))} of them different"
        raise InputError(f"{file} lists {found}; expected {IMAGENET_CLASSES}, one folder name a line")
    return classes
