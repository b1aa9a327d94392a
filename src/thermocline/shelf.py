"""Fitted detectors, features and tables on disk. Reading any of them executes no code.

detector  one .safetensors file: tensors, and the name and settings as JSON in its metadata
features  one .npz file: features, logits; labels, and the head's weight and bias, where known
table     .csv or .parquet, by suffix
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from thermocline import detect
from thermocline.record import encoded, sealed, unsealed, write
from thermocline.spec import InputError

SUFFIXES = (".csv", ".parquet")


class Features(NamedTuple):
    """What a detector reads of some samples: what the head read, the logits, and where known labels and the head itself."""

    features: Float[Tensor, "n d"]
    logits: Float[Tensor, "n c"]
    labels: Int[Tensor, "n"] | None = None
    weight: Float[Tensor, "c d"] | None = None
    bias: Float[Tensor, "c"] | None = None
    temperature: Float[Tensor, ""] | None = None


def save_detector(detector: detect.Detector, path: str | os.PathLike[str]) -> None:
    """Write a fitted detector, whole or not at all."""
    name, settings, tensors = detect.state(detector)
    # Each in memory of its own, which the format wants: a detector inside another may read the same head.
    plain = {key: tensor.cpu().clone(memory_format=torch.contiguous_format) for key, tensor in tensors.items()}
    about = {"detector": name, "settings": json.dumps(settings)}
    write(Path(path), save(sealed(_said(about), plain), metadata=about))


def load_detector(path: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> Any:
    """The detector of a file, ready to score on a device, whatever it was fitted on."""
    _require(path)
    try:
        with safe_open(path, framework="pt", device=str(device)) as opened:
            about = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  not a dict
    except SafetensorError as error:
        raise InputError(f"{path} is no .safetensors file, or a damaged one ({error})") from None
    if not {"detector", "settings"} <= about.keys():
        raise InputError(f"{path} holds tensors but no detector: make one with thermocline detect fit")
    try:
        tensors = unsealed(_said(about), tensors)
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); fit the detector again") from None
    try:
        settings = json.loads(about["settings"])
    except ValueError:
        raise InputError(f"{path}: the settings of its detector are not JSON") from None
    if not isinstance(settings, dict):
        raise InputError(f"{path}: the settings of its detector are {settings!r}, not names and values")
    return detect.restore(about["detector"], settings, tensors)


def _said(about: dict[str, str]) -> str:
    return f"{about['detector']} {about['settings']}"


def save_features(found: Features, path: str | os.PathLike[str]) -> None:
    """Write features as arrays, whole or not at all; bfloat16, which numpy has not, as float32."""
    arrays = {name: tensor for name, tensor in found._asdict().items() if tensor is not None}
    plain = {name: tensor.cpu().float() if tensor.dtype == torch.bfloat16 else tensor.cpu() for name, tensor in arrays.items()}
    file = io.BytesIO()
    np.savez(file, **{name: tensor.numpy() for name, tensor in plain.items()})  # pyright: ignore[reportArgumentType]
    write(Path(path), file.getbuffer())


def load_features(path: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> Features:
    """Features from a file: arrays `features` (n, d) and `logits` (n, c), and if you like `labels`, `weight` and `bias`."""
    _require(path)
    with open(path, "rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: torch.from_numpy(archive[name]) for name in archive.files if name in Features._fields}
        except Exception:  # NumPy raises whatever its zip and array parsers raise
            raise InputError(f"{path} cannot be read as an .npz of plain arrays") from None
    if missing := [name for name in ("features", "logits") if name not in arrays]:
        raise InputError(f"{path} has no array {missing[0]!r}; it needs features (n, d) and logits (n, c)")
    found = Features(**{name: tensor.to(device) for name, tensor in arrays.items()})
    _check(found, path)
    return found


def _check(found: Features, path: str | os.PathLike[str]) -> None:
    features, logits, labels = found[:3]
    for name, tensor in (("features", features), ("logits", logits)):
        if tensor.ndim != 2 or not tensor.is_floating_point() or not len(tensor):
            raise InputError(f"{path}: {name} must be floats, one row a sample, got {tensor.dtype} {tuple(tensor.shape)}")
    if len(features) != len(logits) or (labels is not None and labels.shape != (len(features),)):
        raise InputError(f"{path}: features, logits and labels must be of equally many samples")
    if found.temperature is not None and (found.temperature.ndim or not found.temperature > 0):
        raise InputError(f"{path}: temperature must be one number above 0")
    if labels is not None and labels.is_floating_point():
        raise InputError(f"{path}: labels must be whole numbers, got {labels.dtype}")


def save_table(table: pa.Table, path: str | os.PathLike[str]) -> None:
    """Write a table as .csv or .parquet."""
    require_suffix(path)
    write(Path(path), encoded(table, Path(path).suffix))


def require_suffix(path: str | os.PathLike[str]) -> None:
    """Raise unless a table can be written there: before the work, not after."""
    if Path(path).suffix not in SUFFIXES:
        raise InputError(f"{path}: tables are written as .csv or .parquet")


def _require(path: str | os.PathLike[str]) -> None:
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
