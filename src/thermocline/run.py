"""One run, many runs: the one line that composes the stages. Resumable; a finished run is not run again.

`follow` and `follow_all` are generators of `Progress`, so that whoever drives them decides what to show;
`run` and `sweep` drive them silently.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from multiprocessing import connection
from pathlib import Path
from typing import Any, Literal

import torch

from thermocline import data, measure, nets, record, spec, train
from thermocline.spec import InputError

SAVE_SECONDS = 30.0  # at most this much training is lost to a kill
UPDATES = 200  # progress reports a run


@dataclass(frozen=True)
class Progress:
    """Where a run stands."""

    run: str
    phase: Literal["loading", "training", "measuring", "finished", "failed"]
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


def check(what: spec.Run, *, device: str = "auto", data_dir: str | None = None) -> None:
    """Raise unless every name in the spec is known and the device is there: seconds before, not hours into, a run."""
    nets.check(what.net)
    for name in (what.data.name, *what.data.ood):
        data.check(name, data_dir=data_dir)
    if not measure.select(what.measures):
        raise InputError("measures is empty: name at least one (see: thermocline list measures), or 'all'")
    _device(device)


def follow(
    what: spec.Run, directory: str | os.PathLike[str] | None = None, *, device: str = "auto", data_dir: str | None = None
) -> Iterator[Progress]:
    """Carry out a run, yielding where it stands."""
    check(what, device=device, data_dir=data_dir)
    tell = functools.partial(Progress, what.name)
    with record.open_run(_directory(what, directory), what) as log:
        if not log.finished:
            yield tell("loading", note=what.data.name)
            yield from _carry_out(what, log, tell, _device(device), data_dir)
    yield tell("finished")


def _carry_out(what: spec.Run, log: record.Record, tell: Any, device: torch.device, data_dir: str | None) -> Iterator[Progress]:
    began = saved = time.monotonic()
    before = log.provenance().get("wall_seconds", 0.0)
    train_on, test_on, ood = _load(what.data, device, data_dir)
    net = nets.build(what.net, classes=train_on.classes, size=train_on.size, channels=train_on.channels, seed=what.seed)
    if device.type == "cuda":
        net = net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]  the layout tensor cores read
    state = train.State(net.to(device), what.train)
    if (checkpoint := log.load()) is not None:
        state.restore(*checkpoint)
    log.describe(_provenance(what, device))
    total = train.total_steps(what.train, len(train_on))
    snapshots = set(train.snapshot_steps(what.train, total))
    often = range(0, total, max(total // UPDATES, 1))
    for step, _ in train.fit(net, train_on, what.train, seed=what.seed, state=state, at=often):
        if step in snapshots and not log.recorded(step):
            yield tell("measuring", step, total)
            rows = measure.measure(
                net, train_on, test_on, ood, temperature=what.train.temperature, measures=what.measures, final=step == total
            )
            log.append(step, rows)
        if step and (step in snapshots or time.monotonic() - saved > SAVE_SECONDS):
            log.save(step, state.tensors())
            saved = time.monotonic()
            log.describe({"wall_seconds": round(before + saved - began, 1)})
        yield tell("training", step, total)
    log.finish()


def follow_all(
    runs: Iterable[spec.Run],
    store: str | os.PathLike[str] = "runs",
    *,
    jobs: int = 1,
    device: str = "auto",
    data_dir: str | None = None,
) -> Iterator[Progress]:
    """Carry out several runs, yielding where each stands. One that fails stops itself alone; the first error is raised last."""
    runs = list({what.key: what for what in runs}.values())
    for what in runs:
        check(what, device=device, data_dir=data_dir)
    work = functools.partial(_attempt, store=store, device=device, data_dir=data_dir)
    stream = _side_by_side(work, runs, jobs) if jobs > 1 and len(runs) > 1 else (event for what in runs for event in work(what))
    failure: Exception | None = None
    for event in stream:
        if isinstance(event, Exception):
            failure = failure or event
        else:
            yield event
    if failure:
        raise failure


def _attempt(
    what: spec.Run, *, store: str | os.PathLike[str], device: str, data_dir: str | None
) -> Iterator[Progress | Exception]:
    """A run's events, ending with its error as a value where it has one."""
    try:
        yield from follow(what, Path(store) / what.name, device=device, data_dir=data_dir)
    except (InputError, OSError, spec.Failure) as error:
        yield from _failed(what, error)


def _side_by_side(work: Any, runs: list[spec.Run], jobs: int) -> Iterator[Progress | Exception]:
    """Each run in a process of its own, with a pipe of its own: one that dies cannot take the others' events with it."""
    # "spawn": a forked child cannot use CUDA, nor a thread pool its parent had started.
    context = multiprocessing.get_context("spawn")
    threads = max(torch.get_num_threads() // jobs, 1)
    waiting, working = list(runs), {}
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                what = waiting.pop(0)
                reader, writer = context.Pipe(duplex=False)
                process = context.Process(target=_relay, args=(work, what, writer, threads), daemon=True)
                process.start()
                writer.close()
                working[reader] = (what, process)
            for reader in connection.wait(list(working)):
                try:
                    yield reader.recv()  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
                except EOFError:
                    what, process = working.pop(reader)
                    process.join()
                    if process.exitcode:
                        yield from _failed(what, spec.Failure(f"the process of {what.name} died, exit code {process.exitcode}"))
    finally:
        for _, process in working.values():
            process.terminate()


def _relay(work: Any, what: spec.Run, writer: connection.Connection, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends this process
    torch.set_num_threads(threads)
    for event in work(what):
        writer.send(event)


def _failed(what: spec.Run, error: Exception) -> Iterator[Progress | Exception]:
    yield Progress(what.name, "failed", note=str(error))
    yield error


def _load(
    wanted: spec.Data, device: torch.device, data_dir: str | None
) -> tuple[data.Split, data.Split, dict[str, tuple[data.Split, data.Split]]]:
    places: Mapping[str, Any] = {"device": device, "data_dir": data_dir}
    train_on, test_on = data.load(
        wanted.name, classes=wanted.classes, size=wanted.size, train=wanted.train, test=wanted.test, **places
    )
    return train_on, test_on, {name: data.load(name, like=train_on, **places) for name in wanted.ood}


def _directory(what: spec.Run, directory: str | os.PathLike[str] | None) -> Path:
    return Path(directory) if directory is not None else Path("runs") / what.name


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise spec.unknown("device", name, ["auto", "cpu", "cuda"]) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device 'cuda' was asked for, but torch sees no GPU here; use --device cpu")
    return device


def _provenance(what: spec.Run, device: torch.device) -> dict[str, Any]:
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "command": " ".join(["thermocline", *sys.argv[1:]]),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seed": what.seed,
        "device": str(device),
        "hardware": {"cpu": _processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads(), "gpu": card},
        "versions": {"thermocline": _version("thermocline"), "python": platform.python_version(), "torch": torch.__version__},
        "commit": _commit(),
        "measures": {name: measure.MEASURES[name].explain() for name in measure.select(what.measures)},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


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
