"""The checkpoint of a run directory: tensors to continue from, the step they are of, and a checksum of both."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from thermocline.record.files import write
from thermocline.spec import InputError

if TYPE_CHECKING:
    from torch import Tensor

NAME = "checkpoint.safetensors"
_CHECKSUM = "crc32"  # beside the tensors


def save_checkpoint(path: Path, step: int, tensors: Mapping[str, Tensor]) -> None:
    """Replace the checkpoint of a run directory, atomically."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write(path / NAME, save(sealed(str(step), plain), metadata={"step": str(step)}))


def load_checkpoint(path: str | os.PathLike[str]) -> tuple[int, dict[str, Tensor]] | None:
    """The step and tensors saved in a run directory, if any. Loading executes no code from the file."""
    from safetensors import SafetensorError, safe_open

    file = Path(path) / NAME
    if not file.exists():
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            step = int((opened.metadata() or {}).get("step", ""))
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  not a dict
        return step, unsealed(str(step), tensors)
    except (SafetensorError, ValueError) as error:
        raise InputError(f"{file} is damaged ({error}); delete it to start this run again from its beginning") from None


def sealed(about: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors for a file, and beside them a checksum of them and of what is said about them."""
    # A tensor, not a second entry of the metadata: those are written in any order, and two runs must agree to the byte.
    return {**tensors, _CHECKSUM: _checksum(about, tensors)}


def unsealed(about: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file without their checksum; raise where it does not match. Earlier versions wrote none."""
    plain = {name: tensor for name, tensor in tensors.items() if name != _CHECKSUM}
    if _CHECKSUM in tensors and tensors[_CHECKSUM] != _checksum(about, plain):
        raise ValueError("its checksum does not match")
    return plain


def _checksum(about: str, tensors: Mapping[str, Tensor]) -> Tensor:
    """CRC-32 of a text and of tensors, names and shapes included."""
    import torch

    checksum = zlib.crc32(about.encode())
    for name, tensor in sorted(tensors.items()):
        checksum = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), checksum)
        checksum = zlib.crc32(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data, checksum)
    return torch.tensor(checksum)
