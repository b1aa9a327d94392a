"""The verbs that read runs: `report`, `advise` and `tradeoff`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from thermocline.cli import attention as attending
from thermocline.cli.common import LEADS, err, out, say
from thermocline.spec import InputError

if TYPE_CHECKING:
    from thermocline.record import Loaded

Runs = Annotated[list[str], typer.Argument(help="Run directories, or folders of them.", metavar="RUN...")]


def report(
    runs: Runs,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="File to write (default: report.html).")] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure into this folder, as SVG, PNG and PDF sized for papers.")
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="html (one self-contained page), md, or the table of numbers alone: tex or csv (default: by -o, else html).",
        ),
    ] = "",
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve the page to this machine alone, following runs in training.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of --watch (default: any that is free).", min=0, max=65535)] = 0,
) -> None:
    """Compare runs on one self-contained HTML page, with verdicts in words."""
    from thermocline.report import page

    if watch:
        if output or figures or format_:
            raise InputError("--watch serves a page and writes nothing: leave out --out, --figures and --format")
        return _watch(runs, port)
    named = (name for name, endings in page.FORMATS.items() if output and output.suffix in endings)
    format_ = format_ or next(named, "html")
    output = output or Path(f"report.{format_}")
    page.check_format(format_, output)
    if attending.report(runs, output, figures, format_):
        return None
    table_of(runs)
    page.render(runs, output, figures=figures, format=format_)
    say("report", output)
    if figures:
        say("figures", figures)
    return None


def _watch(runs: list[str], port: int) -> None:
    """Serve until Ctrl-C."""
    from thermocline import record
    from thermocline.report import page, watching

    page.drawing()  # or say what is missing before a browser is opened
    with watching.server(watching.Watcher(runs), port) as server:
        address = f"http://{watching.HOST}:{server.server_address[1]}/"
        out.print(f"watching: [bold]{address}[/] (this machine alone; Ctrl-C ends it)", soft_wrap=True)
        for place in (place for place in record.find_runs(runs) if not place.exists()):
            err.print(f"there is no {escape(str(place))} yet: the page waits for it", soft_wrap=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            out.print("stopped; the runs go on")


def advise(runs: Runs) -> None:
    """Say which temperature, or other setting, serves which goal: accuracy, few layers, transfer, detection, calibration.

    Compares the best setting at the usual temperature (1, or the lowest) with the best of all others, seed by seed.
    """
    from thermocline import advise as advice

    out.print(advice.told(advice.advise(readable(runs, stopped=False))))  # of those it says so itself


def tradeoff(
    runs: Runs,
    output: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Also write a .html page, a .svg, .png or .pdf figure, or .csv or .parquet."),
    ] = None,
    detector: Annotated[str, typer.Option(help="Only this detector (default: NECO in full, a line for each other).")] = "",
    ood: Annotated[str, typer.Option(help="Only this out-of-distribution data set.")] = "",
) -> None:
    """Weigh transfer to other data against their detection, over runs at several temperatures."""
    from thermocline import advise

    if output is not None:
        advise.suffix(output)
    found = advise.tradeoff(readable(runs)).only(detector=detector, ood=ood)
    out.print(advise.terminal(found))
    if output is not None:
        say("trade-off", advise.save(found, output))


def conclude(directories: list[Path], page: Path) -> None:
    """The table in the terminal, then the page."""
    from thermocline.report import render

    if not LEADS:
        return
    table_of(directories)
    try:
        say("report", render(directories, page))
    except InputError as error:
        out.print(f"no report page: {escape(str(error))}")


def table_of(directories: Iterable[str | Path]) -> None:
    from thermocline.report import summary, terminal

    out.print(terminal(summary(readable(directories))))


def readable(directories: Iterable[str | Path], *, stopped: bool = True) -> list[Loaded]:
    """The runs that can be read; what is said of the others, and of those that `stopped` themselves, goes to stderr."""
    from thermocline.report import load

    runs, notes = load(directories, stopped=stopped)
    for note in notes:
        err.print(f"[yellow]warning:[/] {escape(note)}", soft_wrap=True, highlight=True)
    return runs
