"""The engine against the obvious code: same tensors, answers compared, time and peak memory as ratios.

Each side of a benchmark runs in a process of its own, the sides taking turns, and is timed after a small warm-up run.
Seconds are the least of the repeats, memory their median above what was resident when the inputs had been made.
"""

from __future__ import annotations

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

from thermocline import spec
from thermocline.bench import arrays, network
from thermocline.bench.case import Answers, Case

BENCHES: dict[str, Case] = {**arrays.CASES, **network.CASES}
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Result:
    """One benchmark. A ratio is theirs over ours: above 1 we win."""

    name: str
    ours_seconds: float
    theirs_seconds: float
    ratio: float
    ours_peak_mb: float
    theirs_peak_mb: float
    agree: bool
    difference: str
    note: str

    @property
    def memory_ratio(self) -> float:
        """Theirs over ours; under a megabyte, memory cannot be told from noise."""
        return max(self.theirs_peak_mb, 1.0) / max(self.ours_peak_mb, 1.0)


@dataclass(frozen=True)
class _Run:
    seconds: float
    peak_mb: float
    answers: Answers


def run(names: Sequence[str], *, threads: int = 1, repeat: int = 3, scale: float = 1.0) -> Iterator[Result]:
    """Run benchmarks, or groups of them, each as its result is asked for. `scale=1` is the published size."""
    for what, value in (("threads", threads), ("repeat", repeat)):
        if value < 1:
            raise spec.InputError(f"{what} must be at least 1, got {value}")
    if not 0 < scale < math.inf:
        raise spec.InputError(f"scale must be above 0 and finite, got {scale}")
    chosen = _select(names)
    return (_compare(name, threads, repeat, scale) for name in chosen)


def _select(names: Sequence[str]) -> list[str]:
    """The benchmarks behind names of benchmarks and groups, each once, in the registry's order."""
    groups = dict.fromkeys(case.group for case in BENCHES.values())
    for name in names:
        if name not in BENCHES and name not in groups:
            raise spec.unknown("bench", name, [*groups, *BENCHES])
    return [name for name, case in BENCHES.items() if name in names or case.group in names]


def _compare(name: str, threads: int, repeat: int, scale: float) -> Result:
    case = BENCHES[name]
    runs: dict[str, list[_Run]] = {"ours": [], "theirs": []}
    for _ in range(repeat):
        for side, done in runs.items():
            done.append(_measured(name, side, threads, scale))
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
    )


def _measured(name: str, side: str, threads: int, scale: float) -> _Run:
    """One side, once, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "thermocline.bench.worker", name, side, str(scale), str(threads), folder]
        environment = {**os.environ, **dict.fromkeys(_THREADS, str(threads))}
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise spec.Failure(f"bench {name}: the side {side!r} failed: {last}")
        cost = json.loads((Path(folder) / "cost.json").read_text())
        with np.load(Path(folder) / "answers.npz") as answers:
            return _Run(cost["seconds"], cost["peak_mb"], dict(answers))
