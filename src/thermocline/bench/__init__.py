"""The engine against the obvious code: same tensors, answers compared, time and peak memory as ratios.

Each side of a benchmark runs in a process of its own, the sides taking turns, and is timed after a small warm-up run.
Seconds are the least of the repeats, memory their median above what was resident when the inputs had been made; on a GPU
the device is waited for at both ends, and memory is what torch allocated there.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from thermocline import spec
from thermocline.bench import arrays, attention, detection, full, network, training, watching
from thermocline.bench.case import Answers, Case
from thermocline.provenance import processor
from thermocline.run import check_device

BENCHES: dict[str, Case] = {
    **arrays.CASES, **detection.CASES, **network.CASES, **full.CASES, **watching.CASES, **training.CASES,
    **attention.CASES,
}  # fmt: skip
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Result:
    """One benchmark, and the hardware it ran on. A ratio is theirs over ours: above 1 we win."""

    name: str
    ours_seconds: float
    theirs_seconds: float
    ratio: float
    ours_peak_mb: float
    theirs_peak_mb: float
    agree: bool
    difference: str
    note: str
    hardware: str

    @property
    def memory_ratio(self) -> float:
        """Theirs over ours; under a megabyte, memory cannot be told from noise."""
        return max(self.theirs_peak_mb, 1.0) / max(self.ours_peak_mb, 1.0)


@dataclass(frozen=True)
class _Run:
    seconds: float
    peak_mb: float
    answers: Answers


def run(
    names: Sequence[str], *, threads: int = 1, repeat: int = 3, scale: float = 1.0, device: str = "cpu"
) -> Iterator[Result]:
    """Run benchmarks, or groups of them, each as its result is asked for. `scale=1` is the published size."""
    for what, value in (("threads", threads), ("repeat", repeat)):
        if value < 1:
            raise spec.InputError(f"{what} must be at least 1, got {value}")
    if not 0 < scale < math.inf:
        raise spec.InputError(f"scale must be above 0 and finite, got {scale}")
    place = check_device(device)
    chosen = _select(names, place.type, scale)
    return (_compare(name, threads, repeat, scale, place) for name in chosen)


def hardware(device: torch.device, threads: int) -> str:
    """Where numbers come from, in words: a table pasted elsewhere must say so."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{processor()}, {threads} thread{'s' if threads > 1 else ''}, torch {torch.__version__}"


def _select(names: Sequence[str], device: str, scale: float) -> list[str]:
    """The benchmarks behind names of benchmarks and groups, each once, in the registry's order.

    A benchmark named must be able to run here; of a group those that can do, one of them at least.
    """
    groups = dict.fromkeys(case.group for case in BENCHES.values())
    chosen: set[str] = set()
    for name in names:
        if name not in BENCHES and name not in groups:
            raise spec.unknown("bench", name, [*groups, *BENCHES])
        members = [name] if name in BENCHES else [one for one, case in BENCHES.items() if case.group == name]
        refusals = {one: _refusal(one, device, scale) for one in members}
        if all(refusals.values()):
            raise spec.InputError(str(refusals[members[0]]))
        chosen |= {one for one, refusal in refusals.items() if refusal is None}
    return [name for name in BENCHES if name in chosen]


def _refusal(name: str, device: str, scale: float) -> str | None:
    """Why a benchmark cannot run on a device at a scale, and what to change."""
    case = BENCHES[name]
    if lacking := [package for package in case.needs if importlib.util.find_spec(package) is None]:
        return (
            f"bench {name} compares with {case.theirs_is}, which needs {', '.join(lacking)}: pip install '.[ood]' in the clone"
        )
    if device not in case.devices:
        return f"bench {name} compares with {case.theirs_is}, which runs on {case.devices[0]}: use --device {case.devices[0]}"
    if device == "cpu" and scale > case.cpu_scale:
        return f"bench {name} would take days on a CPU at scale {scale:g}: use --device cuda, or --scale {case.cpu_scale:g}"
    return None


def _compare(name: str, threads: int, repeat: int, scale: float, device: torch.device) -> Result:
    case = BENCHES[name]
    runs: dict[str, list[_Run]] = {"ours": [], "theirs": []}
    for _ in range(repeat):
        for side, done in runs.items():
            done.append(_measured(name, side, threads, scale, device))
    seconds = {side: min(one.seconds for one in done) for side, done in runs.items()}
    memory = {side: statistics.median(one.peak_mb for one in done) for side, done in runs.items()}
    agree, difference = case.compare(runs["ours"][0].answers, runs["theirs"][0].answers)
    return Result(
        name,
        seconds["ours"],
        seconds["theirs"],
        seconds["theirs"] / seconds["ours"],
        memory["ours"],
        memory["theirs"],
        agree,
        difference,
        f"{case.description}; against {case.theirs_is}",
        hardware(device, threads),
    )


def _measured(name: str, side: str, threads: int, scale: float, device: torch.device) -> _Run:
    """One side, once, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        options = [name, side, str(scale), str(threads), str(device), folder]
        words = [sys.executable, "-m", "thermocline.bench.worker", *options]
        environment = {**os.environ, **dict.fromkeys(_THREADS, str(threads))}
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise spec.Failure(f"bench {name}: the side {side!r} failed: {last}")
        cost = json.loads((Path(folder) / "cost.json").read_text())
        with np.load(Path(folder) / "answers.npz") as answers:
            return _Run(cost["seconds"], cost["peak_mb"], dict(answers))
