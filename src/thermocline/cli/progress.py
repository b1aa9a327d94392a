"""How far runs are: bars in a terminal; where nobody looks on, lines that a log can keep."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.markup import escape

from thermocline.cli.common import err

if TYPE_CHECKING:
    from thermocline.data import Reading
    from thermocline.run import Progress

Read = TypeVar("Read")

EVERY = 60.0  # seconds between two lines on one run
MANY = 8  # runs beyond which those that are finished make room


@contextlib.contextmanager
def interruptible(then: str) -> Iterator[None]:
    """On Ctrl-C say what becomes of the work, and end with the code that shells expect."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(f"interrupted; {then}", markup=False, soft_wrap=True)
        raise typer.Exit(130) from None


def show(events: Iterable[Progress], *, runs: int = 1, again: str) -> None:
    """How far every run is, and all of them, with a rate and an ETA; what others are at and, on Ctrl-C, how to go on."""
    elsewhere = 0
    on = interruptible(f"what is done is kept, and {again} goes on from there")
    with on, Bars(runs) if err.is_terminal else Lines(runs) as shown:
        for event in events:
            shown.tell(event)
            elsewhere += event.phase == "elsewhere"
    if elsewhere:
        left = f"{elsewhere} run{'s were' if elsewhere > 1 else ' was'}"
        err.print(f"{left} left to another process that is at it; once that is done, {again} shows all")


class Bars:
    """A bar a run and, of several runs, one for all of them."""

    def __init__(self, runs: int) -> None:
        self.bars, self.runs = _bars(), runs
        self.tasks: dict[str, Any] = {}
        self.shares: dict[str, float] = {}
        self.read: dict[str, str] = {}  # which set a run is reading
        self.whole = self.bars.add_task("all runs", total=runs, note="", rate="") if runs > 1 else None

    def __enter__(self) -> Bars:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def tell(self, event: Progress) -> None:
        """Draw where a run stands."""
        if event.run not in self.tasks:
            self.tasks[event.run] = self.bars.add_task(escape(event.run), total=None, note="", rate="")
        task = self.tasks[event.run]
        note = escape(event.note) if event.phase in ("loading", "failed", "elsewhere") else ""
        reading = event.note if event.phase == "loading" else ""
        if self.read.get(event.run, "") != reading:
            self.read[event.run] = reading
            self.bars.reset(task)
            self.bars.update(task, rate="")
        self.bars.update(task, note=f"{event.phase} {note}")
        if event.total:
            self.bars.update(task, completed=event.step, total=event.total)
            speed = self.bars.tasks[task].speed
            self.bars.update(task, rate=f"{speed:.0f} {'images' if reading else 'steps'}/s" if speed else "")
            self.shares[event.run] = 0.0 if reading else event.step / event.total
        if event.phase == "finished":
            total = self.bars.tasks[task].total or 1
            self.bars.update(task, completed=total, total=total, visible=self.runs <= MANY)
        if event.phase in ("finished", "failed", "elsewhere"):
            self.shares[event.run] = 1.0
        if self.whole is not None:
            done = sum(share == 1 for share in self.shares.values())
            self.bars.update(self.whole, completed=sum(self.shares.values()), note=f"{done} of {self.runs}")


class Lines:
    """A line where a run begins to train, once a minute while it goes on, where a long one measures, and where it ends."""

    def __init__(self, runs: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.runs, self.clock, self.ended, self.trained = runs, clock, 0, 0
        self.began = clock()
        self.first: dict[tuple[str, str], tuple[float, int]] = {}  # when a run began to train here, and where; or to read a set
        self.last: dict[str, float] = {}  # when it was last spoken of
        self.seen: dict[str, float] = {}  # when it was first heard of

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tell(self, event: Progress) -> None:
        """Print where a run stands, if it is time to."""
        now = self.clock()
        began = self.seen.setdefault(event.run, now)
        if event.phase in ("loading", "training") and event.total:
            self._go_on(event, now)
        elif event.phase == "measuring" and now - began >= EVERY:
            self._print(event.run, f"measuring at step {event.step} of {event.total}")
        elif event.phase in ("finished", "failed", "elsewhere"):
            self.ended += 1
            self.trained += (event.run, "") in self.first
            self._print(event.run, self._end(event, now) + (f"; {self._whole(now)}" if self.runs > 1 else ""))

    def _go_on(self, event: Progress, now: float) -> None:
        reading = event.note if event.phase == "loading" else ""
        if (key := (event.run, reading)) not in self.first:
            self.first[key], self.last[event.run] = (now, event.step), now
            if not reading:
                self._print(event.run, f"training from step {event.step} of {event.total}")
        elif now - self.last[event.run] >= EVERY:
            self.last[event.run] = now
            self._print(event.run, self._pace(event, reading, now))

    def _pace(self, event: Progress, reading: str, now: float) -> str:
        since, step = self.first[event.run, reading]
        unit, where = ("images", f"{reading}, image") if reading else ("steps", "step")
        rate = (event.step - step) / (now - since)
        left = f", {rate:.3g} {unit}/s, eta {_clock((event.total - event.step) / rate)}" if rate else ""
        return f"{where} {event.step} of {event.total} ({100 * event.step // event.total} %){left}"

    def _end(self, event: Progress, now: float) -> str:
        if event.phase != "finished":
            return f"{event.phase}: {event.note}"
        began = self.first.get((event.run, ""))
        return "was finished before" if began is None else f"finished in {_clock(now - began[0])}"

    def _whole(self, now: float) -> str:
        left = self.runs - self.ended
        eta = f", eta of all {_clock((now - self.began) / self.trained * left)}" if left and self.trained else ""
        return f"{self.ended} of {self.runs} done{eta}"

    def _print(self, run: str, words: str) -> None:
        err.print(f"{time.strftime('%H:%M:%S')} {run}: {words}", markup=False, soft_wrap=True)


def read_images(name: str, steps: Reading[Read]) -> Read:
    """What is read, with a bar while that goes on."""
    with _bars(transient=True, disable=not err.is_terminal) as bars:
        bar = bars.add_task(f"reading {escape(name)}", total=None, note="", rate="")
        while True:
            try:
                done, count = next(steps)
            except StopIteration as end:
                return end.value
            bars.update(bar, completed=done, total=count)
            bars.update(bar, rate=f"{speed:.0f} images/s" if (speed := bars.tasks[bar].speed) else "")


def _bars(**how: Any) -> Any:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=12), TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"), TextColumn("eta"), TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    return Progress(*columns, console=err, **how)


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> _clock(61.4), _clock(7325)
    ('1:01', '2:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
