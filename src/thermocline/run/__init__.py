"""One run, many runs: what composes the stages.

`follow` and `follow_all` are generators of `Progress`, so that whoever drives them decides what to show;
`run` and `sweep` drive them silently.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from thermocline import spec
from thermocline.run.one import Progress as Progress
from thermocline.run.one import check as check
from thermocline.run.one import check_device as check_device
from thermocline.run.one import follow as follow
from thermocline.run.one import place_of
from thermocline.run.several import follow_all as follow_all


def run(
    what: spec.Run, directory: str | os.PathLike[str] | None = None, *, device: str = "auto", data_dir: str | None = None
) -> Path:
    """Carry out a run in its directory (default: runs/NAME), or what is left of it, and return the directory."""
    for _ in follow(what, directory, device=device, data_dir=data_dir):
        pass
    return place_of(what, directory)


def sweep(
    runs: Iterable[spec.Run],
    store: str | os.PathLike[str] = "runs",
    *,
    jobs: int = 1,
    device: str = "auto",
    data_dir: str | None = None,
) -> list[Path]:
    """Carry out several runs, `jobs` of them side by side in processes of their own, and return their directories."""
    runs = list(runs)
    for _ in follow_all(runs, store, jobs=jobs, device=device, data_dir=data_dir):
        pass
    return [Path(store) / what.name for what in runs]
