"""How rows came about: command, commit, versions, hardware."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import thermocline


def session(device: torch.device, processes: int) -> dict[str, Any]:
    """Where, when and by which code and command something is run now."""
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    program = Path(sys.argv[0]).name
    return {
        "command": shlex.join(["thermocline" if program == "__main__.py" else program, *sys.argv[1:]]),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "device": str(device),
        **({"processes": processes} if processes > 1 else {}),
        "hardware": {"cpu": processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads(), "gpu": card},
        "versions": {"thermocline": thermocline.__version__, "python": platform.python_version(), "torch": torch.__version__},
        "commit": _commit(),
        "source": _source(),
    }


def identity(net: nn.Module, rows: Sequence[tuple[Any, ...]] = ()) -> str:
    """Twelve hex digits of the SHA-256 of a net's weights and of what was found on it: which net, by which data."""
    digest = hashlib.sha256()
    for name, value in net.state_dict().items():
        if isinstance(value, Tensor):
            plain = value.detach().cpu()
            plain = plain.dequantize() if plain.is_quantized else plain.to_dense()
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(plain.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    digest.update("\n".join(map(repr, rows)).encode())
    return digest.hexdigest()[:12]


def processor() -> str:
    """The CPU's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@functools.cache
def _source() -> str:
    """Twelve hex digits of the SHA-256 of the package's code: which tree made the rows, where there is no git to ask."""
    here = Path(__file__).parent
    files = sorted(here.rglob("*.py"))
    return hashlib.sha256(b"".join(str(f.relative_to(here)).encode() + f.read_bytes() for f in files)).hexdigest()[:12]


@functools.cache
def _commit() -> str | None:
    """The commit of the source tree this package runs from, "+changes" when it is not clean; None when installed."""

    def git(*words: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(["git", "-C", here, *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        if git("ls-files", Path(__file__).name) == "":
            return None
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
