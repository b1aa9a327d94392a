"""Several runs, one after the other or in processes of their own: one that fails stops itself alone."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from thermocline import record, spec
from thermocline.run.one import Progress, check, follow
from thermocline.spec import InputError


def sweep(
    runs: Iterable[spec.Run],
    store: str | os.PathLike[str] = "runs",
    *,
    jobs: int = 1,
    device: str = "auto",
    data_dir: str | None = None,
) -> list[Path]:
    """Carry out several runs, `jobs` of them side by side in processes of their own, and return their directories.

    A run that another process is at is left to it: the same sweep, started on several machines that share a folder, is shared.
    """
    runs = list(runs)
    places = [Path(store) / what.name for what in runs]
    for _ in follow_all(dict(zip(places, runs)), jobs=jobs, device=device, data_dir=data_dir):
        pass
    return places


def follow_all(
    places: Mapping[Path, spec.Run], *, jobs: int = 1, device: str = "auto", data_dir: str | None = None
) -> Iterator[Progress]:
    """Carry out runs, each in a directory of its own, yielding where each stands. One that fails stops itself alone; the first
    error is raised last. One that another process is at is "elsewhere", and left to it.

    Under `torchrun` a failure ends them all: processes that no longer do the same would sum what does not belong together.
    """
    for what in places.values():
        check(what, device=device, data_dir=data_dir)
    options = {"device": device, "data_dir": data_dir}
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if jobs > 1:
            raise InputError("under torchrun the processes share each run; leave out --jobs")
        for place, what in places.items():
            yield from follow(what, place, **options)
        return
    if jobs > 1 and len(places) > 1:
        stream = _side_by_side(places, jobs, options)
    else:
        stream = (event for place, what in places.items() for event in _attempt(what, place, **options))
    failure: Exception | None = None
    for event in stream:
        if isinstance(event, Exception):
            failure = failure or event
        else:
            yield event
    if failure:
        raise failure


def _attempt(what: spec.Run, place: Path, *, device: str, data_dir: str | None) -> Iterator[Progress | Exception]:
    """A run's events, ending with its error as a value where it has one."""
    try:
        yield from follow(what, place, device=device, data_dir=data_dir)
    except record.Busy:
        yield Progress(what.name, "elsewhere", note="another process is at it")
    except (InputError, spec.Failure) as error:
        yield from _failed(what, error)
    except OSError as error:  # a file of this run that cannot be read
        yield from _failed(what, InputError(str(error)))


def _failed(what: spec.Run, error: Exception) -> Iterator[Progress | Exception]:
    yield Progress(what.name, "failed", note=str(error))
    yield (InputError if isinstance(error, InputError) else spec.Failure)(f"{what.name}: {error}")


def _side_by_side(places: Mapping[Path, spec.Run], jobs: int, options: Mapping[str, Any]) -> Iterator[Progress | Exception]:
    """Each run in a process of its own that reports a line of JSON an event, in no need of the caller's `__main__`."""
    waiting, working, done = list(places.items()), selectors.DefaultSelector(), set[subprocess.Popen[bytes]]()
    try:
        while waiting or working.get_map():
            while waiting and len(working.get_map()) < jobs:
                place, what = waiting.pop(0)
                process = _start(what, place, jobs, options)
                working.register(process.stdout, selectors.EVENT_READ, (what, process))  # pyright: ignore[reportArgumentType]
            for key, _ in working.select():
                what, process = key.data
                if line := process.stdout.readline():
                    if "warning" in (told := json.loads(line)):
                        warnings.warn(told["warning"], stacklevel=2)
                        continue
                    event = _decode(told)
                    done |= {process} if isinstance(event, Progress) and event.phase in ("finished", "elsewhere") else set()
                    yield event
                    continue
                working.unregister(process.stdout)
                process.stdout.close()
                code = process.wait()
                process.stdin.close()
                if code and process not in done:  # what dies while it ends takes nothing with it
                    yield from _failed(what, spec.Failure(f"the process of {what.name} died, exit code {code}"))
    finally:
        for key in list(working.get_map().values()):
            process = key.data[1]
            process.terminate()
            process.wait()
            process.stdout.close()
            process.stdin.close()
        working.close()


def _start(what: spec.Run, place: Path, jobs: int, options: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    order = {
        "run": spec.to_json(what),
        "place": os.fspath(place),
        "options": options,
        "argv": sys.argv,
        "threads": max(torch.get_num_threads() // jobs, 1),
    }
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    # Unbuffered, or lines that `select` cannot see would wait in this process; a session of its own, so that Ctrl-C
    # reaches this process alone, which then ends the others.
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", "from thermocline.run.several import work; work()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    process.stdin.write(json.dumps(order).encode() + b"\n")  # pyright: ignore[reportOptionalMemberAccess]
    return process  # its input stays open: that it ends tells the other side that this process has


def work() -> None:
    """Carry out the run in the first line of standard input: what a process of a sweep does, for as long as there is one."""
    order = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_outlive_nobody, daemon=True).start()
    sys.argv = order["argv"]
    torch.set_num_threads(order["threads"])
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed must not be taken for an event
    warnings.showwarning = lambda message, *_, **__: print(json.dumps({"warning": str(message)}), file=events)
    try:
        for event in _attempt(spec.from_json(order["run"]), Path(order["place"]), **order["options"]):
            print(json.dumps(_encode(event)), file=events)
    except BrokenPipeError:
        os._exit(1)  # the sweep is gone; what is done is on disk


def _outlive_nobody() -> None:
    """End this process when standard input ends, as it does however the sweep ended: the run goes on as after any kill."""
    while os.read(0, 1):  # not sys.stdin, whose lock Python wants when it ends by itself
        pass
    os._exit(1)


def _encode(event: Progress | Exception) -> dict[str, Any]:
    return {"error": type(event).__name__, "message": str(event)} if isinstance(event, Exception) else asdict(event)


def _decode(event: dict[str, Any]) -> Progress | Exception:
    if "error" not in event:
        return Progress(**event)
    return (InputError if event["error"] == "InputError" else spec.Failure)(event["message"])
