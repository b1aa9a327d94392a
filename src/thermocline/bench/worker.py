"""One side of a benchmark in a process of its own, so that its memory is its own: NAME SIDE SCALE THREADS FOLDER."""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch

from thermocline import bench

WARM_UP = 0.01  # scale of the run before the timed one: it imports, and starts what libraries start on first use


def main(name: str, side: str, scale: str, threads: str, folder: str) -> None:
    """Time one call; leave its answers as arrays, and its seconds and memory as JSON."""
    torch.set_num_threads(int(threads))
    case = bench.BENCHES[name]
    way = case.ours if side == "ours" else case.theirs
    way(case.inputs(min(WARM_UP, float(scale))))
    inputs = case.inputs(float(scale))
    forget_peak()
    before, began = peak_mb(), time.perf_counter()
    answers = way(inputs)
    seconds, after = time.perf_counter() - began, peak_mb()
    np.savez(Path(folder) / "answers.npz", **answers)  # pyright: ignore[reportArgumentType]
    (Path(folder) / "cost.json").write_text(json.dumps({"seconds": seconds, "peak_mb": after - before}))


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
