"""Runs -> one self-contained HTML page, and the same figures as SVG files."""

from __future__ import annotations

import base64
import hashlib
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from thermocline import record
from thermocline.record import Loaded
from thermocline.report import theme, view
from thermocline.report.facts import cases, summary
from thermocline.spec import InputError

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def render(paths: Paths, output: str | Path, *, figures: str | Path | None = None) -> Path:
    """Write the page of the runs at these paths; with `figures`, each figure also as an SVG in that folder."""
    runs, notes = _load(paths)
    artist = drawing()
    summaries = summary(runs.values())
    scale = theme.temperatures(one.temperature for one in summaries)
    drawn = [(case, artist.draw(case, runs, scale)) for case in cases(summaries)]
    context = {
        "title": view.title(summaries),
        "subtitle": view.subtitle(summaries),
        "notes": notes,
        "cases": [view.case(case, some, scale, number) for number, (case, some) in enumerate(drawn, 1)],
        "ramp": ", ".join(scale.colours() * (2 if len(scale.values) == 1 else 1)),
        "light": scale.variables("light"),
        "dark": scale.variables("dark"),
        "glossary": view.glossary(runs.values()),
        "settings": view.settings(summaries),
        "runs": [view.provenance(run, one) for run, one in zip(runs.values(), summaries)],
    }
    numbered = [(number, figure) for number, (_, some) in enumerate(drawn, 1) for figure in some if figure.panels]
    charts = {
        view.chart_id(number, figure.key, i): artist.to_spec(panel)
        for number, figure in numbered
        for i, panel in enumerate(figure.panels)
    }
    write(Path(output), compose("page.html.jinja", context, charts, artist.bundle()).encode())
    if figures is not None:
        for number, figure in numbered:
            name = figure.key if len(drawn) == 1 else f"{number}-{figure.key}"
            write(Path(figures) / f"{name}.svg", artist.to_svg(figure, scale).encode())
    return Path(output)


def _load(paths: Paths) -> tuple[dict[str, Loaded], list[str]]:
    """The runs by key, coldest first, and what was said while reading them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runs = record.load_runs(paths)
    if not runs:
        raise InputError("no runs to report on; give run directories, or a folder of them")
    ordered = sorted(runs, key=lambda run: (run.spec.train.temperature, run.spec.seed))
    return {run.spec.key: run for run in ordered}, [str(warning.message) for warning in caught]


def drawing() -> Any:
    """The part that needs the optional packages."""
    try:
        import jinja2  # noqa: F401

        from thermocline.report import figures
    except ImportError as error:
        raise InputError(f"a report needs {error.name}, which is not installed: pip install 'thermocline[report]'") from None
    return figures


def compose(template: str, context: dict[str, Any], charts: dict[str, Any], bundle: str) -> str:
    """A template filled in, with its charts and all that draws them inside."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = lambda text: text.replace("T = ", "T\u00a0=\u00a0")
    scripts = [bundle, environment.get_template("charts.js.jinja").render()]
    data = {"charts": charts, "config": theme.config(font=theme.PAGE_FONT, legend=False)}
    return environment.get_template(template).render(**context, scripts=scripts, policy=_policy(scripts), data=data)


def _policy(scripts: Sequence[str]) -> str:
    """A content policy under which nothing is fetched and only our own scripts run, known by their hashes."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def write(path: Path, content: bytes | pa.Buffer) -> None:
    """A whole file or nothing, in a folder that is made for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another place") from None
    record.write(path, content)
