"""What an experiment still lacks, and filling it in: the only part that trains."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from thermocline import provenance, record, run
from thermocline.reproduce import catalogue
from thermocline.reproduce.catalogue import Experiment
from thermocline.reproduce.computed import COMPUTED
from thermocline.reproduce.sources import COMPUTED as TABLE
from thermocline.reproduce.sources import write_computed
from thermocline.spec import InputError, Run


def compute(experiment: Experiment, results: Path, *, device: str) -> str:
    """The rows of an experiment that needs no runs, unless they are there; why they cannot be made here, or nothing."""
    folder = results / experiment.table
    if not experiment.computed or (folder / TABLE).exists():
        return ""
    if why := _too_slow(experiment, device):
        return why
    place = run.check_device(device) if experiment.cost.gpu else torch.device("cpu")
    rows = list(COMPUTED[experiment.computed](place))
    write_computed(folder, experiment.table, rows, provenance.session(place, 1))
    return ""


def missing(experiment: Experiment, results: Path, *, seeds: int) -> dict[Path, Run]:
    """The runs that are not finished, by the folder they belong in; one that stopped itself would again."""
    found = {}
    for what in catalogue.seeded(experiment.runs, seeds) if seeds else experiment.runs:
        folder = results / catalogue.home(what) / what.name
        if not (folder / "rows.parquet").exists() and not record.stopped(folder):
            found[folder] = what
    return found


def obstacle(experiment: Experiment, runs: Iterable[Run], *, device: str, data_dir: str | None) -> str:
    """Why runs cannot be made here, in words; empty where they can. A device asked for by name is taken at its word."""
    found = [why] if (why := _too_slow(experiment, device)) else []
    try:
        for what in {(one.data, one.net.name): one for one in runs}.values():
            run.check(what, device=device, data_dir=data_dir)
    except InputError as error:
        found.append(str(error))
    return "; and ".join(found)


def _too_slow(experiment: Experiment, device: str) -> str:
    if experiment.cost.gpu and device == "auto" and run.check_device(device).type == "cpu":
        return f"it takes {experiment.cost.words}, and there is no GPU here (--device cpu runs it all the same)"
    return ""
