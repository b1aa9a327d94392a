"""How far runs are, as a terminal and as a log show it."""

import io
from collections.abc import Iterator

import pytest
import typer
from rich.console import Console

from thermocline import data, spec
from thermocline.cli import progress
from thermocline.run import Progress


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    written = io.StringIO()
    monkeypatch.setattr(progress, "err", Console(file=written, width=80))
    return written


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    written = io.StringIO()
    monkeypatch.setattr(progress, "err", Console(file=written, force_terminal=True, width=140, height=60))
    return written


def said(log: io.StringIO) -> list[str]:
    return [line.split(" ", 1)[1] for line in log.getvalue().splitlines()]


def test_a_log_has_lines_now_and_then(log: io.StringIO) -> None:
    times = iter((0.0, 5.0, 10.0, 11.0, 69.0, 70.0, 71.0, 370.0, 370.0, 370.0))
    lines = progress.Lines(3, clock=lambda: next(times))
    lines.tell(Progress("a", "loading", note="runes"))
    for step in (500, 510, 1090, 1100, 1110):
        lines.tell(Progress("a", "training", step, 4000))
    lines.tell(Progress("a", "finished"))
    lines.tell(Progress("b [bold]", "failed", note="out of memory: try a smaller train.batch"))
    lines.tell(Progress("c", "finished"))
    assert said(log) == [
        "a: training from step 500 of 4000",
        "a: step 1100 of 4000 (27 %), 10 steps/s, eta 4:50",
        "a: finished in 6:00; 1 of 3 done, eta of all 12:20",
        "b [bold]: failed: out of memory: try a smaller train.batch; 2 of 3 done, eta of all 6:10",
        "c: was finished before; 3 of 3 done",
    ]


def test_a_log_is_told_how_far_a_set_is_read(log: io.StringIO) -> None:
    times = iter((0.0, 0.0, 30.0, 60.0, 100.0, 161.0, 165.0, 165.0, 170.0))
    lines = progress.Lines(1, clock=lambda: next(times))
    for images in (256, 3256, 6256):
        lines.tell(Progress("a", "loading", images, 60256, "imagenet"))
    for images in (256, 1256):
        lines.tell(Progress("a", "loading", images, 10256, "cifar10"))
    lines.tell(Progress("short", "measuring", 0, 9))
    lines.tell(Progress("a", "measuring", 0, 9))
    lines.tell(Progress("a", "training", 0, 9))
    assert said(log) == [
        "a: imagenet, image 6256 of 60256 (10 %), 100 images/s, eta 9:00",
        "a: cifar10, image 1256 of 10256 (12 %), 16.4 images/s, eta 9:09",
        "a: measuring at step 0 of 9",
        "a: training from step 0 of 9",
    ]


def test_a_bar_begins_again_with_every_set_and_with_training(terminal: io.StringIO) -> None:
    events = [Progress("a", "loading", images, 200, name) for name in ("first", "second") for images in (50, 100)]
    with progress.Bars(2) as bars:
        for event in events:
            bars.tell(event)
            assert bars.bars.tasks[bars.tasks["a"]].completed == event.step
        bars.tell(Progress("a", "training", 1, 4))
        assert bars.shares["a"] == 0.25
    assert "loading second" in terminal.getvalue()


def test_images_are_read_behind_a_bar(terminal: io.StringIO) -> None:
    steps = data.reading(spec.Data("runes", classes=2, train=8, test=4))
    train, test = progress.read_images("runes", steps)
    assert (len(train), len(test)) == (8, 4)
    assert "reading runes" in terminal.getvalue()


def test_where_nobody_looks_on_it_is_lines(log: io.StringIO) -> None:
    progress.show([Progress("a" * 90, "training", 0, 9), Progress("a" * 90, "finished")], again="the same command")
    assert said(log) == [f"{'a' * 90}: training from step 0 of 9", f"{'a' * 90}: finished in 0:00"]


def test_a_terminal_has_a_bar_a_run_and_one_for_all(terminal: io.StringIO) -> None:
    events = [Progress(name, "training", 50, 100) for name in ("first [one]", "second")]
    progress.show([*events, Progress("first [one]", "finished")], runs=2, again="the same command")
    last = terminal.getvalue().split("all runs")[-1]
    assert "75%" in last.splitlines()[0]
    assert "1 of 2" in last.splitlines()[0]
    assert "first [one]" in last
    assert "second" in last


def test_of_many_runs_the_finished_make_room(terminal: io.StringIO) -> None:
    runs = [f"run{number}" for number in range(progress.MANY + 2)]
    progress.show([Progress(name, "finished") for name in runs[:-1]], runs=len(runs), again="the same command")
    last = terminal.getvalue().split("all runs")[-1]
    assert "run3" not in last
    assert f"{len(runs) - 1} of {len(runs)}" in last


@pytest.mark.parametrize("shown", ["log", "terminal"])
def test_ctrl_c_says_how_to_go_on(shown: str, request: pytest.FixtureRequest) -> None:
    written: io.StringIO = request.getfixturevalue(shown)

    def cut() -> Iterator[Progress]:
        yield Progress("a", "training", 1, 9)
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as left:
        progress.show(cut(), again="thermocline demo")
    assert left.value.exit_code == 130
    assert "interrupted; what is done is kept, and thermocline demo goes on from there" in written.getvalue()
