"""One run: data, net, training, snapshots, rows. Resumable; a finished run is not run again."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from thermocline import data, measure, nets, provenance, record, spec, train
from thermocline.spec import InputError
from thermocline.team import Team, lacking

SAVE_SECONDS = 30.0  # between checkpoints, looked at with every progress report
UPDATES = 200  # progress reports a run
Splits = dict[str, data.Split]  # by the name they have in rows


@dataclass(frozen=True)
class Progress:
    """Where a run stands: at which step, or how many images of the set that the note names are read."""

    run: str
    phase: Literal["loading", "training", "measuring", "finished", "failed", "elsewhere"]
    step: int = 0
    total: int = 0
    note: str = ""


def run(
    what: spec.Run, directory: str | os.PathLike[str] | None = None, *, device: str = "auto", data_dir: str | None = None
) -> Path:
    """Carry out a run in its directory (default: runs/NAME), or what is left of it, and return the directory."""
    for _ in follow(what, directory, device=device, data_dir=data_dir):
        pass
    return _directory(what, directory)


def check(what: spec.Run, *, device: str = "auto", data_dir: str | None = None) -> None:
    """Raise unless every name in the spec is known and the device is there: seconds before, not hours into, a run."""
    if absent := lacking():
        alone = "start processes that share a run by torchrun, or unset WORLD_SIZE for one alone"
        raise InputError(f"WORLD_SIZE is {os.environ['WORLD_SIZE']!r}, but {absent} is not set: {alone}")
    nets.check(what.net)
    for name in (what.data.name, *what.data.ood):
        data.check(name, data_dir=data_dir)
    data.require_other(what.data.name, what.data.ood)
    for name in what.data.ood:
        measure.check_name(name)
    if not measure.select(what.measures):
        raise InputError("measures is empty: name at least one (see: thermocline list measures), or 'all'")
    if absent := set(measure.select(what.follow)) - set(measure.select(what.measures)):
        raise InputError(f"follow names {min(absent)}, which measures leaves out: add it there, or 'all'")
    if not what.probes:
        raise InputError("probes is empty: name at least one, such as ridge or logistic")
    if what.train.batch == 1 and what.net.name in nets.BATCH_NORMED:
        raise InputError(f"{what.net.name} has batch normalisation, which needs a train.batch of at least 2")
    check_device(device)


def follow(
    what: spec.Run, directory: str | os.PathLike[str] | None = None, *, device: str = "auto", data_dir: str | None = None
) -> Iterator[Progress]:
    """Carry out a run, yielding where it stands; under `torchrun`, together with the other processes it started."""
    check(what, device=device, data_dir=data_dir)
    began, tell = time.monotonic(), functools.partial(Progress, what.name)
    team, place = Team.join(check_device(device))
    directory = _directory(what, directory)
    record.check_place(directory)
    fresh = not (directory / "spec.json").exists()
    prepare = functools.partial(_prepare, what, team, place, data_dir, tell)
    with _memory_said(what):
        ready = (yield from prepare()) if fresh else None  # what is refused leaves no directory behind
        with _open(directory, what, team) as log:
            if not log.finished:
                state, splits = ready or (yield from prepare())
                try:
                    yield from _carry_out(what, log, state, splits, tell, team, place, began)
                except train.Diverged as error:  # an outcome: the same run would come to it again
                    log.describe({"stopped": str(error)})
                    raise
    yield tell("finished")


@contextlib.contextmanager
def _memory_said(what: spec.Run) -> Iterator[None]:
    """Say what to make smaller where memory runs out."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not measure.out_of_memory(error):
            raise
        smaller = f"train.batch (now {what.train.batch}), net.width or data.size"
        raise spec.Failure(f"out of memory: try a smaller {smaller}") from None


class _Listener:
    """The record, to the processes of a team that do not write it: they know what is on disk, and leave the rest alone."""

    def __init__(self, path: Path, finished: bool, steps: set[int]) -> None:
        self.path, self.finished, self.steps = path, finished, steps

    def recorded(self, step: int) -> bool:
        """Whether the rows of this step are already on disk."""
        return step in self.steps

    def provenance(self) -> dict[str, Any]:
        """Nothing: that is for who writes it."""
        return {}

    def append(self, step: int, rows: Iterable[record.Row]) -> None:
        """Remember that this step is done."""
        self.steps.add(step)

    def ignore(self, *_: Any) -> None:
        """Nothing to do."""

    load = save = describe = finish = ignore


@contextlib.contextmanager
def _open(directory: Path, what: spec.Run, team: Team) -> Iterator[record.Record | _Listener]:
    """The run directory, held open by the process that leads; where it cannot be opened, no process goes on."""
    with contextlib.ExitStack() as held:
        log = _led(team, lambda: held.enter_context(record.open_run(directory, what)), lambda log: (log.finished, log.steps))
        yield log if isinstance(log, record.Record) else _Listener(directory, *log)


def _led(team: Team, act: Callable[[], Any], told: Callable[[Any], Any] = lambda found: found) -> Any:
    """What the process that leads finds, or what the others are told of it; where that is refused, no process goes on."""
    if not team.leads:
        if isinstance(found := team.tell(None), InputError):
            raise found
        return found
    try:
        found = act()
    except InputError as error:
        team.tell(error)
        raise
    team.tell(told(found))
    return found


def _prepare(
    what: spec.Run, team: Team, device: torch.device, data_dir: str | None, tell: Any
) -> Generator[Progress, None, tuple[train.State, Splits]]:
    """The net before training, and every set; nothing is written."""
    splits = yield from _load(what.data, device, data_dir, tell)
    train_on = splits["train"]
    train.check(what.train, train_on.classes, team)
    if what.train.batch > len(train_on):
        many = f"is more than the {len(train_on)} training images: every step takes all of them"
        warnings.warn(f"train.batch={what.train.batch} {many}", stacklevel=2)
    net = nets.build(what.net, classes=train_on.classes, size=train_on.size, channels=train_on.channels, seed=what.seed)
    if device.type == "cuda":
        net = net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]  the layout tensor cores read
    net.to(device)
    if what.net.logit_norm_init is not None:
        some = torch.arange(0, len(train_on), max(len(train_on) // what.train.batch, 1))[: max(what.train.batch, 2)]
        nets.set_logit_norm(net, train_on.take(some).images, what.net.logit_norm_init)
    if short := [name for name, split in splits.items() if len(split) < team.size]:
        raise InputError(f"{team.size} processes share every set, and {short[0]} has only {len(splits[short[0]])} images")
    return train.State(net, what.train), splits


def _carry_out(
    what: spec.Run, log: record.Record | _Listener, state: train.State, splits: Splits, tell: Any, team: Team,
    device: torch.device, began: float,
) -> Iterator[Progress]:  # fmt: skip
    saved, before = time.monotonic(), log.provenance().get("wall_seconds", 0.0)
    total = train.total_steps(what.train, len(splits["train"]))
    snapshots = train.snapshot_steps(what.train, total)
    _led(team, lambda: _describe(what, log, device, splits, processes=team.size))
    _resume(log, state, snapshots, team)
    often = range(0, total, max(total // UPDATES, 1))
    for step, _ in train.fit(state.net, splits["train"], what.train, seed=what.seed, state=state, at=often, team=team):
        if step in snapshots and not log.recorded(step):
            yield tell("measuring", step, total)
            log.append(step, _measure(what, state, splits, final=step == total, team=team))
        if step and (step in snapshots or time.monotonic() - saved > SAVE_SECONDS):
            log.save(step, state.tensors())
            saved = time.monotonic()
            log.describe({"wall_seconds": round(before + saved - began, 1)})
        yield tell("training", step, total)
    log.finish(snapshots)


def _measure(what: spec.Run, state: train.State, splits: Splits, *, final: bool, team: Team) -> list[record.Row]:
    """The rows of a snapshot, at the temperature training is at."""
    ood = {name: (splits[f"{name}/train"], splits[f"{name}/test"]) for name in what.data.ood}
    options: dict[str, Any] = {"measures": what.measures, "follow": what.follow, "probes": what.probes}
    options |= {"final": final, "team": team, "temperature": float(state.temperature)}
    try:
        return measure.measure(state.net, splits["train"], splits["test"], ood, **options)
    except spec.Failure as error:
        raise train.Diverged(train.hint(what.train, f"at step {state.step} {error}", trained=state.step > 0)) from None


def _resume(log: record.Record | _Listener, state: train.State, snapshots: list[int], team: Team) -> None:
    """Go on from the checkpoint, unless rows from before it are gone: then from the start, which gives them again."""
    checkpoint = _led(team, log.load)
    if checkpoint is None:
        return
    step, tensors = checkpoint
    lost = [snapshot for snapshot in snapshots if snapshot <= step and not log.recorded(snapshot)]
    if lost:
        warnings.warn(f"{log.path} has lost the rows of step {lost[0]}; training starts again to measure them", stacklevel=2)
    else:
        state.restore(step, tensors)


def _load(wanted: spec.Data, device: torch.device, data_dir: str | None, tell: Any) -> Generator[Progress, None, Splits]:
    """Every set of the run, telling how far it is read."""

    def read(one: spec.Data, like: data.Split | None = None) -> Generator[Progress, None, tuple[data.Split, data.Split]]:
        yield tell("loading", note=one.name)
        steps = data.reading(one, like=like, device=device, data_dir=data_dir)
        while True:
            try:
                yield tell("loading", *next(steps), one.name)
            except StopIteration as end:
                return end.value

    train_on, test_on = yield from read(wanted)
    splits = {"train": train_on, "test": test_on}
    for name in wanted.ood:
        others = yield from read(spec.Data(name), train_on)
        splits |= {f"{name}/{part}": split for part, split in zip(("train", "test"), others)}
    return splits


def _directory(what: spec.Run, directory: str | os.PathLike[str] | None) -> Path:
    return Path(directory) if directory is not None else Path("runs") / what.name


def check_device(name: str) -> torch.device:
    """The device of that name, "auto" being a GPU where there is one; an error where it is missing."""
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda" if cards else "cpu")
    if name == "cuda" and not cards:
        raise InputError("device 'cuda' was asked for, but torch sees no GPU here; use --device cpu")
    valid = ["auto", "cpu", "cuda", *(f"cuda:{card}" for card in range(cards))]
    if name not in valid:
        if "gpu" in name.lower():  # which is spelled as cpu is, nearly
            raise InputError(f"unknown device {name!r}; did you mean 'cuda'?")
        raise spec.unknown("device", name, valid)
    return torch.device(name)


def _describe(what: spec.Run, log: record.Record | _Listener, device: torch.device, splits: Splits, *, processes: int) -> None:
    """Add this session to the provenance, after checking that it goes on with the data the first one began with."""
    known = log.provenance()
    prints = {name: split.fingerprint() for name, split in splits.items()}
    for name, fingerprint in known.get("data", prints).items():
        if prints.get(name) != fingerprint:
            raise InputError(f"{log.path} was begun with other {name} images than are there now; choose another directory")
    session = provenance.session(device, processes)
    first = (known.get("sessions") or [session])[0]
    if any(session[fact] != first.get(fact) for fact in ("device", "hardware", "versions")):
        warnings.warn(f"{log.path} was begun on another machine or version: its numbers are a mixture", stacklevel=2)
    facts = {"seed": what.seed, "guessing": splits["train"].guessing, "data": prints}
    facts |= {"sessions": [*known.get("sessions", []), session]}
    facts |= {"classes": list(splits["train"].names)} if splits["train"].names else {}
    facts |= {"stopped": ""} if "stopped" in known else {}  # it goes on
    meanings = {name: measure.MEASURES[name].explain() for name in measure.select(what.measures)}
    log.describe({**first, **facts, "measures": meanings})
