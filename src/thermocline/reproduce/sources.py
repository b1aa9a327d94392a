"""Where numbers come from: the committed run directories and computed tables under a results folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from thermocline import record, spec
from thermocline.reproduce.catalogue import Experiment, family, home
from thermocline.spec import InputError, Run

COMPUTED = "rows.parquet"


@dataclass(frozen=True)
class Source:
    """One seed of something: a run that came to its end, or a part of a computed table; `why`: why a run stopped itself."""

    name: str
    seed: int
    settings: Mapping[str, Any]
    rows: pa.Table
    provenance: Mapping[str, Any]
    why: str = ""
    _read: dict[str, list[dict[str, Any]]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, measure: str) -> list[dict[str, Any]]:
        """The rows of one measure; read once, however many claims ask."""
        if measure not in self._read:
            self._read[measure] = self.rows.filter(pc.field("measure") == measure).to_pylist()
        return self._read[measure]


@dataclass(frozen=True)
class Found:
    """What a results folder holds of an experiment, what it lacks, and what in it cannot be read.

    Runs that stopped themselves are not missing: they are there with why they did.
    """

    sources: tuple[Source, ...]
    missing: tuple[Run, ...]
    stopped: tuple[Source, ...]
    unfinished: tuple[str, ...]
    others: tuple[str, ...]
    problems: tuple[str, ...]
    lacks_table: bool = False

    @property
    def begun(self) -> bool:
        """Whether anything came to an end, which there is a page of."""
        return bool(self.sources or self.stopped)

    @property
    def wanting(self) -> bool:
        """Whether running it would add something."""
        return bool(self.missing or self.lacks_table)


class Shelf:
    """A results folder: every directory in it is read once, whichever experiments ask for it."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self._runs: dict[Path, record.Loaded | str] = {}

    def find(self, experiment: Experiment) -> Found:
        """The runs of an experiment, from its own folder and from those of experiments it shares runs with."""
        wanted = {family(run) for run in experiment.runs}
        sources, others, unfinished, problems = [], [], [], []
        stopped: dict[str, Source] = {}
        own = self.results / experiment.name
        for folder in dict.fromkeys([own, *(self.results / home(run) for run in experiment.runs)]):
            for loaded in map(self._load, self._directories(folder)):
                if isinstance(loaded, str):
                    problems.append(loaded)
                elif family(loaded.spec) not in wanted:
                    others += [loaded.name] if folder == own else []
                elif why := record.stopped(loaded.path):
                    stopped[loaded.spec.name] = _source(loaded, why)
                elif not loaded.finished:
                    unfinished.append(loaded.name)
                elif not any(source.name == loaded.spec.name for source in sources):
                    sources.append(_source(loaded))
        there = {source.name for source in sources} | stopped.keys()
        missing = [run for run in experiment.runs if run.name not in there]
        tables, trouble = self._computed(self.results / experiment.table) if experiment.computed else ([], [])
        sources = sorted(sources, key=lambda one: (one.settings["train.temperature"], one.seed, one.name)) + tables
        lacks_table = bool(experiment.computed) and not tables
        problems += trouble
        idle = tuple(stopped[name] for name in sorted(stopped))
        return Found(tuple(sources), tuple(missing), idle, tuple(unfinished), tuple(others), tuple(problems), lacks_table)

    def count(self, experiment: Experiment) -> tuple[int, int, int]:
        """How many runs of an experiment are there, how many stopped themselves, and how many it has; no rows are read."""
        runs = [self.results / home(run) / run.name for run in experiment.runs]
        tables = [self.results / experiment.table] if experiment.computed else []
        there = sum((folder / COMPUTED).exists() for folder in runs + tables)
        return there, sum(bool(record.stopped(folder)) for folder in runs), len(runs) + len(tables)

    def _directories(self, folder: Path) -> list[Path]:
        if not folder.is_dir():
            return []
        return [path for path in sorted(folder.iterdir()) if path.is_dir()]

    def _load(self, path: Path) -> record.Loaded | str:
        """A run, or a line that says why it is none."""
        if path not in self._runs:
            try:
                self._runs[path] = record.load_run(path)
            except InputError as error:
                self._runs[path] = str(error).replace(f"{self.results}/", "")
        return self._runs[path]

    def _computed(self, folder: Path) -> tuple[list[Source], list[str]]:
        file = folder / COMPUTED
        if not file.exists():
            return [], []
        try:
            rows = pq.read_table(file, schema=record.SCHEMA)
            provenance = record.read_facts(folder / "provenance.json")
        except InputError as error:
            return [], [str(error).replace(f"{self.results}/", "")]
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            return [], [f"{file.relative_to(self.results)} cannot be read ({str(error).splitlines()[0]})"]
        seeds = sorted(set(rows["seed"].to_pylist()))
        parts = {seed: rows.filter(pc.field("seed") == seed) for seed in seeds}
        return [Source(f"computed, seed {seed}", seed, {}, part, provenance) for seed, part in parts.items()], []


def _source(loaded: record.Loaded, why: str = "") -> Source:
    run = loaded.spec
    return Source(run.name, run.seed, dict(spec.leaves(run)), loaded.rows, loaded.provenance, why)


def write_computed(folder: Path, name: str, rows: Iterable[tuple[int, record.Row]], session: Mapping[str, Any]) -> None:
    """A table of computed rows, by seed, and how it came about."""
    columns: dict[str, list[Any]] = {column: [] for column in record.SCHEMA.names}
    for seed, row in rows:
        facts = {"run": name, "data": "", "net": "", "temperature": 1.0, "seed": seed, "step": 0, **row._asdict()}
        for column in columns:
            columns[column].append(facts[column])
    folder.mkdir(parents=True, exist_ok=True)
    record.write(folder / "provenance.json", json.dumps(session, indent=1).encode())
    record.write(folder / COMPUTED, record.parquet(pa.Table.from_pydict(columns, schema=record.SCHEMA)))
