"""Runs -> one self-contained HTML page, Markdown, or the table alone, and the same figures as files for papers."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from thermocline import record
from thermocline.record import Loaded, Paths
from thermocline.report import markdown, numbers, theme, view
from thermocline.report.apart import told_apart
from thermocline.report.curves import DECADE, HEADLINE_PLACE, LOWEST
from thermocline.report.facts import Case, Summary, cases, summary
from thermocline.report.figure import Figure
from thermocline.report.theme import Temperatures
from thermocline.spec import InputError, unknown

FORMATS = {"html": (".html", ".htm"), "md": (".md",), "tex": (".tex",), "csv": (".csv",)}  # and how their names end


@dataclass(frozen=True)
class Report:
    """All that a page is written from: runs by key, what was said while reading them, and what was drawn of each case."""

    runs: dict[str, Loaded]
    notes: list[str]
    summaries: list[Summary]
    scale: Temperatures
    drawn: list[tuple[Case, list[Figure]]]
    beside: list[Figure] = field(default_factory=list)

    def figures(self) -> Iterator[tuple[int, Figure]]:
        """Every figure that has panels, with the number of its case; 0: of all of them."""
        for number, some in enumerate([self.beside, *(figures for _, figures in self.drawn)]):
            yield from ((number, figure) for figure in some if figure.panels)

    def file_name(self, number: int, figure: Figure) -> str:
        """What a file of it is called, without its ending."""
        return figure.key if len(self.drawn) == 1 or not number else f"{number}-{figure.key}"


def render(paths: Paths, output: str | Path, *, figures: str | Path | None = None, format: str = "html") -> Path:
    """Write the page of the runs at these paths; with `figures`, each figure also as SVG, PNG and PDF in that folder.

    Formats tex and csv hold the table of numbers alone, which needs none of the packages that draw.
    """
    check_format(format, output)
    if format in numbers.WRITERS:
        write(Path(output), numbers.WRITERS[format](cases(summary(load(paths)[0]))).encode())
        if figures is None:
            return Path(output)
    made, files = gather(paths), {}
    if figures is not None:
        files = {made.file_name(*one): one[1] for one in made.figures()}
        for name, figure in files.items():
            for ending, draw in drawing().FILES.items():
                write(Path(figures) / f"{name}.{ending}", draw(figure, made.scale))
    if format == "md":
        links = {name: os.path.relpath(Path(figures or "") / f"{name}.svg", Path(output).parent) for name in files}
        write(Path(output), markdown.page(made, links).encode())
    elif format == "html":
        write(Path(output), html(made).encode())
    return Path(output)


def load(paths: Paths, *, stopped: bool = True) -> tuple[list[Loaded], list[str]]:
    """The runs that can be read, coldest first, and a line on each that cannot, or is there twice, or `stopped` itself."""
    notes: list[str] = []
    known: dict[str, list[Loaded]] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for path in record.find_runs(paths):
            try:
                run = record.load_run(path)
            except (InputError, OSError) as error:
                notes.append(f"left out: {error}")
                continue
            if of_attention(run):
                notes.append(
                    f"left out: {path} is a scan of attention, which has a page of its own: thermocline report {path}, or "
                    "thermocline.integrations.drawing.save(record.load_run(...), 'attention.html')"
                )
                continue
            why = record.stopped(path)
            if not (run.finished or run.rows.num_rows):
                notes.append(f"left out: {path} " + (f"stopped itself: {why}" if why else "has no rows yet"))
                continue
            notes += [f"{path} stopped itself: {why}"] if why and stopped else []
            alike = known.setdefault(run.spec.key, [])
            if same := next((one for one in alike if record.same_run(one, run)), None):
                notes.append(f"{path} is the same run as {same.path}: it is left out")
                continue
            alike.append(run)
    notes += _doubts([run for alike in known.values() for run in alike])
    runs, told = told_apart(run for alike in known.values() for run in alike)
    if not runs:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise InputError(f"no runs to report on; give run directories, or a folder of them{why}")
    runs.sort(key=lambda run: (run.spec.train.temperature, run.spec.seed))
    return runs, [*notes, *told, *(str(warning.message) for warning in caught)]


def _doubts(runs: Sequence[Loaded]) -> Iterator[str]:
    """Scans that are not what their seeds say, watches that are not what their temperature says, and what scans left out."""
    scans: dict[str, list[Loaded]] = {}
    for run in runs:
        yield from (f"{run.path}: {note}" for note in run.provenance.get("notes", ()))
        if run.spec.scanned and not run.spec.follow:
            scans.setdefault(run.spec.scanned, []).append(run)
        moved = run.rows.filter(pc.field("measure") == "temperature")["value"].to_pylist() if run.spec.scanned else []
        if len(set(moved)) > 1:
            named = f"it is named T = {run.spec.train.temperature:g}, which it was opened with (temperature=)"
            yield f"{run.path}: its temperature went from {moved[0]:g} to {moved[-1]:g} while watched; {named}"
    for first, *others in scans.values():
        if others:
            paths = " and ".join(str(one.path) for one in others)
            yield f"{paths} found the same as {first.path} under another seed: of the same weights, they are no other training"


def of_attention(run: Loaded) -> bool:
    """Whether a run is what `integrations.dispersion` or `maximum` kept: heads of a model, and no layers of a classifier."""
    return any(name.startswith("attention_") for name in run.rows["measure"].unique().to_pylist())


def gather(paths: Paths) -> Report:
    """Read the runs at these paths and draw every figure of them."""
    loaded, notes = load(paths)
    artist, runs = drawing(), {run.spec.key: run for run in loaded}
    summaries = summary(loaded)
    assert list(runs) == [one.key for one in summaries], "every run has a key of its own"
    scale = theme.temperatures(one.temperature for one in summaries)
    found = cases(summaries)
    drawn = [(case, artist.draw(case, runs, scale)) for case in found]
    beside = artist.side_by_side(found, runs, scale) if len(found) > 1 else []
    return Report(runs, notes, summaries, scale, drawn, beside)


def html(made: Report, *, live: str = "") -> str:
    """The page; `live`: what its server calls this state of the runs, so that the page can ask for a newer one."""
    artist, scale = drawing(), made.scale
    found = [case for case, _ in made.drawn]
    context = {
        "title": view.title(made.summaries),
        "subtitle": view.subtitle(made.summaries),
        "notes": made.notes,
        "overview": view.overview(found, made.beside, scale) if len(found) > 1 else None,
        "cases": [view.case(case, some, scale, number) for number, (case, some) in enumerate(made.drawn, 1)],
        "many": view.MANY,
        "slider": {"most": LOWEST * DECADE, "start": HEADLINE_PLACE},
        **colours(scale),
        "glossary": view.glossary(made.runs.values()),
        "settings": view.settings(made.summaries),
        "runs": [view.provenance(run, one) for run, one in zip(made.runs.values(), made.summaries, strict=True)],
    }
    charts = {
        chart: artist.to_spec(panel, figure.settings)
        for number, figure in made.figures()
        for chart, panel in figure.charts(number).items()
    }
    return compose("page.html.jinja", context, charts, artist.bundle(), live=live)


def colours(scale: Temperatures) -> dict[str, Any]:
    """What the templates know of colour."""
    ramp = ", ".join(scale.colours() * (2 if len(scale.values) == 1 else 1))
    return {"ramp": ramp, "light": scale.variables("light"), "dark": scale.variables("dark")}


def drawing() -> Any:
    """The part that needs the optional packages."""
    try:
        import jinja2  # noqa: F401

        from thermocline.report import figures
    except ImportError as error:
        raise InputError(f"a report needs {error.name}, which is not installed: pip install '.[report]' in the clone") from None
    return figures


def compose(template: str, context: dict[str, Any], charts: dict[str, Any], bundle: str, *, live: str = "") -> str:
    """A template filled in, with its charts and all that draws them inside."""
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    coded = r"<code>\1</code>"
    environment.filters["coded"] = lambda text: markupsafe.Markup(re.sub("`([^`]+)`", coded, str(markupsafe.escape(text))))
    environment.filters["unbroken"] = lambda text: text.replace("T = ", "T\u00a0=\u00a0").replace(" %", "\u202f%")
    scripts = [bundle, environment.get_template("charts.js.jinja").render()]
    config = theme.config(font=theme.PAGE_FONT, legend=False)
    data = {"charts": charts, "config": config, "light": context["light"], "decade": DECADE}
    words = {"scripts": scripts, "policy": _policy(scripts, live=bool(live)), "data": data, "live": live}
    return environment.get_template(template).render(**context, **words)


def _policy(scripts: Sequence[str], *, live: bool) -> str:
    """A content policy under which nothing is fetched, but of a live page's own server, and only our own scripts run."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    own = " connect-src 'self';" if live else ""
    return f"default-src 'none';{own} script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def check_format(format: str, output: str | Path) -> None:
    """Raise where there is no such format, or a file's name promises another; one without an ending promises none."""
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if (ending := Path(output).suffix)[1:].isalpha() and ending not in FORMATS[format]:
        raise InputError(f"{output} would hold {format}: end its name in .{format}")


def known_ending(path: str | Path, endings: Iterable[str]) -> str:
    """The ending of a file that can be written, or an error that names those that can."""
    if (ending := Path(path).suffix.lower()) not in endings:
        raise InputError(f"{path} does not say what to write; end its name in one of {', '.join(endings)}")
    return ending


def write(path: Path, content: bytes | pa.Buffer) -> None:
    """A whole file or nothing, in a folder that is made for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another place") from None
    record.write(path, content)
