"""The experiments of the package by name, and in whose folder the rows of a run lie."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thermocline.experiments._claims import Claim, Cost, Curve
from thermocline.spec import InputError, Run, leaves, replace, unknown

FIRST = ("table1", "table2", "table3")  # rows of a run that several experiments read lie with the first of them


@dataclass(frozen=True)
class Experiment:
    """What a module of `thermocline.experiments` states; `table` is in whose folder its computed rows lie."""

    name: str
    says: str
    more: str
    runs: tuple[Run, ...]
    claims: tuple[Claim, ...]
    cost: Cost
    computed: str = ""
    table: str = ""
    curves: tuple[Curve, ...] = ()
    why: str = ""

    @property
    def command(self) -> str:
        """What runs what is missing of it."""
        needs = {name for run in self.runs for name in (run.data.name, *run.data.ood)}
        local = all(name.split(":")[0] in ("runes", "digits") for name in needs)
        return f"thermocline reproduce {self.name}" + ("" if local else " --data-dir DIR")


@functools.cache
def modules() -> dict[str, str]:
    """Every experiment's name, as table1/cifar100-resnet18, and the module it is; tables first."""
    root = Path(importlib.import_module("thermocline.experiments").__path__[0])
    files = [file.relative_to(root).with_suffix("") for file in root.rglob("[!_]*.py")]
    named = {file.as_posix().replace("_", "-"): ".".join(("thermocline.experiments", *file.parts)) for file in files}
    return {name: named[name] for name in sorted(named, key=lambda name: (not name.startswith(FIRST), name))}


def module(name: str) -> Any:
    """The module of an experiment."""
    if name not in modules():
        raise _unknown(name, modules())
    return importlib.import_module(modules()[name])


@functools.cache
def load(name: str) -> Experiment:
    """An experiment by its name."""
    given = module(name)
    if not hasattr(given, "CLAIMS"):
        raise InputError(f"{name} makes no claim to reproduce; run it with: thermocline sweep {name}")
    (says, more), (_, shared) = map(_told, (given, importlib.import_module(given.__package__)))
    return Experiment(
        name, " ".join(says.split()), more or shared, tuple(given.RUNS), tuple(given.CLAIMS), given.COST,
        getattr(given, "COMPUTED", ""), getattr(given, "TABLE", name), tuple(getattr(given, "CURVES", ())),
        getattr(given, "WHY", ""),
    )  # fmt: skip


def _told(given: Any) -> tuple[str, str]:
    """The first paragraph of a docstring, and the rest."""
    says, _, more = (given.__doc__ or "").strip().partition("\n\n")
    return says, more.strip()


def names() -> list[str]:
    """Those that make a claim."""
    return [name for name in modules() if hasattr(module(name), "CLAIMS")]


def select(word: str) -> list[Experiment]:
    """One experiment, a group of them such as `table1`, or `all`."""
    inside = [name for name in names() if word == "all" or name.startswith(f"{word}/")]
    groups = sorted({name.split("/")[0] for name in names() if "/" in name})
    if not inside and word not in modules():
        raise _unknown(word, ["all", *groups, *names()])
    return [load(name) for name in inside or [word]]


def _unknown(word: str, words: Iterable[str]) -> InputError:
    if word.endswith(".py"):
        where = "an experiment of your own is a module in src/thermocline/experiments (see the guide)"
        return InputError(f"{word} is a file: {where}; runs of any settings are compared by sweep --over, then advise")
    return unknown("experiment", word, words, see="thermocline list experiments")


@functools.cache
def homes() -> dict[str, str]:
    """The experiment with which the rows of a run lie, by the run's key without its seed."""
    found: dict[str, str] = {}
    for name in modules():
        for run in module(name).RUNS:
            found.setdefault(family(run), name)
    return found


def home(run: Run) -> str:
    """The experiment in whose folder the rows of a run lie."""
    return homes()[family(run)]


@functools.cache
def family(run: Run) -> str:
    """The same for runs that differ by seed alone."""
    return replace(run, {"seed": 0}).key


def seeded(runs: Iterable[Run], count: int) -> list[Run]:
    """The runs of an experiment, with seeds up to a number where it has fewer, seed by seed."""
    runs = list(runs)
    starts = list({family(run): run for run in runs}.values())
    seeds = range(max(count, 1 + max((run.seed for run in runs), default=-1)))
    return [replace(run, {"seed": seed}) for seed in seeds for run in starts]


def origin(experiment: Experiment, claim: Claim) -> str:
    """The earlier experiment that says the same of the same runs, or nothing."""
    name, _ = _first().get(_identity(experiment, claim), (experiment.name, claim))
    return "" if name == experiment.name else name


def published(experiment: Experiment, claim: Claim) -> Claim:
    """The claim with the numbers that were printed for it where it is first made."""
    _, first = _first().get(_identity(experiment, claim), (experiment.name, claim))
    return dataclasses.replace(claim, published=first.published, derived=first.derived)


@functools.cache
def _first() -> dict[Hashable, tuple[str, Claim]]:
    found: dict[Hashable, tuple[str, Claim]] = {}
    for one in map(load, names()):
        for claim in one.claims:
            found.setdefault(_identity(one, claim), (one.name, claim))
    return found


@functools.cache
def _settings(run: Run) -> dict[str, Any]:
    return dict(leaves(run))


def _identity(experiment: Experiment, claim: Claim) -> Hashable:
    """What is said, of which rows of which runs; what has neither runs nor computed rows is like nothing else."""
    arms = []
    for arm in claim.arms:
        runs = frozenset(family(run) for run in experiment.runs if arm.settings.items() <= _settings(run).items())
        table = experiment.table if experiment.computed and not arm.settings else ""
        arms.append((runs, table or ("" if runs else experiment.name), arm.where))
    quantity = claim.quantity
    rows = (quantity.measure, quantity.split, quantity.where, quantity.by)
    return rows, claim.says, claim.bound, claim.margin, claim.exact, tuple(arms)
