"""One side of a benchmark in a process of its own, so that its memory is its own: NAME SIDE SCALE THREADS DEVICE FOLDER."""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from thermocline import bench
from thermocline.bench.case import Answers, Way, answered
from thermocline.data import Split

Ready = Callable[[Any], Any]


def main(name: str, side: str, scale: str, threads: str, device: str, folder: str) -> None:
    """Time one call; leave its answers as arrays, and its seconds and memory as JSON."""
    torch.set_num_threads(int(threads))
    case = bench.BENCHES[name]
    way, ready = (case.ours, case.ready) if side == "ours" else (case.theirs, case.theirs_ready)
    way(moved(case.inputs(min(case.warm_up, float(scale))), device))
    inputs = moved(case.inputs(float(scale)), device)
    answers, seconds, peak = _on_cpu(way, ready, inputs) if device == "cpu" else _on_cuda(way, ready, inputs, device)
    np.savez(Path(folder) / "answers.npz", **answers)  # pyright: ignore[reportArgumentType]
    (Path(folder) / "cost.json").write_text(json.dumps({"seconds": seconds, "peak_mb": peak}))


def moved(value: Any, device: str) -> Any:
    """The inputs of a case on a device, whatever they are made of; numbers and words stay as they are.

    >>> moved({"pair": (torch.zeros(2), 3)}, "meta")
    {'pair': (tensor(..., device='meta', size=(2,)), 3)}
    """
    if isinstance(value, (Tensor, nn.Module, Split)):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(part, device) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        make = getattr(type(value), "_make", type(value))  # a NamedTuple takes its parts one by one
        return make(moved(part, device) for part in value)
    return value


def _on_cpu(way: Way, ready: Ready, inputs: Any) -> tuple[Answers, float, float]:
    forget_peak()
    before = peak_mb()
    inputs = ready(inputs)
    began = time.perf_counter()
    done = way(inputs)
    seconds, peak = time.perf_counter() - began, peak_mb() - before
    return answered(done), seconds, peak


def _on_cuda(way: Way, ready: Ready, inputs: Any, device: str) -> tuple[Answers, float, float]:
    """The same on a GPU, whose memory is counted by torch's allocator."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    inputs = ready(inputs)
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    done = way(inputs)
    torch.cuda.synchronize(device)
    seconds, peak = time.perf_counter() - began, (torch.cuda.max_memory_allocated(device) - before) / 1e6
    return answered(done), seconds, peak


def forget_peak() -> None:
    """Make what is resident now the peak so far, where the system can (Linux); elsewhere an earlier peak hides lower ones."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """The most memory this process has had resident, in MB."""
    # Not ru_maxrss where it can be helped: it begins with the peak of the process that started this one.
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            return int(found[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


if __name__ == "__main__":
    main(*sys.argv[1:])
