"""Studies as one self-contained HTML page: ours beside the papers'."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from thermocline.report import page, theme, view
from thermocline.reproduce import figure, markdown, output, tables, verdict, wording
from thermocline.reproduce.study import Study
from thermocline.reproduce.verdict import Finding

STATUS = {
    verdict.HOLDS: "present", verdict.DIRECTION: "partly", verdict.FAILS: "reversed", verdict.UNDECIDED: "unclear",
}  # fmt: skip
FENCE = "\n```\n"
LEDE = (
    "Neither paper's code is public; this is an independent reproduction from their text. Every number is read from rows of"
    " runs, and every verdict follows the rule at the end."
)


def write(studies: Sequence[Study], path: Path, *, results: Path) -> Path:
    """Write the page of some studies, with the notes that lie in their folders of results."""
    studies = [one for _, members in markdown.grouped(studies) for one in members]
    places = {one.experiment.name: f"study-{i}" for i, one in enumerate(studies)}
    context: dict[str, Any] = {
        "title": studies[0].experiment.name if len(studies) == 1 else "What holds",
        "subtitle": studies[0].line if len(studies) == 1 else f"{len(studies)} experiments",
        "lede": LEDE,
        "totals": markdown.totals(studies),
        "tables": [_tabled(tail, *line, places) for tail, line in tables.lines(studies).items()],
        "columns": tables.COLUMNS.values(),
        "legend": tables.LEGEND,
        "short": _sections(output.notes(results), places),
        "differs": markdown.DIFFERS,
        "rule": [_formatted(line, places) for line in verdict.RULE],
        "heads": [head.capitalize() for head in markdown.HEADS],
        "studies": [_shown(one, places, results) for one in studies],
        **page.colours(theme.temperatures([1.0])),
    }
    page.write(path, page.compose("reproduction.html.jinja", context, {}, "").encode())
    return path


def _tabled(tail: str, name: str, cells: Sequence[tables.Cell], places: Mapping[str, str]) -> dict[str, Any]:
    shown = [{"status": STATUS.get(one.word, ""), "mark": tables.MARKS.get(one.word), "cell": one} for one in cells]
    return {"name": tail, "id": places[name], "cells": shown}


def _shown(study: Study, places: Mapping[str, str], results: Path) -> dict[str, Any]:
    experiment = study.experiment
    drawn = figure.svg(study) if study.found.sources else None
    notes = output.notes(results / experiment.name)
    return {
        "id": places[experiment.name], "name": experiment.name, "says": experiment.says,
        "more": " ".join(experiment.more.split()), "summary": study.line, "why": study.why,
        "command": experiment.command if study.found.wanting and not experiment.why else "",
        "runs": wording.runs(study), "caption": figure.caption(study),
        "lines": [_line(study, finding) for finding in study.findings if finding.verdict.word != verdict.ABSENT],
        "lacking": [f"{claimed}: {'; '.join(names)}" for claimed, names in markdown.lacking(study).items()],
        "stopped": [f"{one.name}: {one.why}." for one in study.found.stopped], "problems": study.found.problems,
        "figure": base64.b64encode(drawn.encode()).decode() if drawn else "",
        "notes": _items(notes, places), "code": notes.partition(FENCE)[2].rstrip("`\n"),
    }  # fmt: skip


def _sections(notes: str, places: Mapping[str, str]) -> list[tuple[str, list[Markup]]]:
    """Lists under their headings; what stands before the first has none."""
    parts = (part.partition("\n") for part in f"\n{notes}".split("\n### "))
    return [(head, items) for head, _, listed in parts if (items := _items(listed, places))]


def _items(notes: str, places: Mapping[str, str]) -> list[Markup]:
    """The items of a Markdown list, without the code that may follow it."""
    listed = f"\n{notes}".partition(FENCE)[0]
    return [_formatted(" ".join(item.split()), places) for item in listed.split("\n- ") if item.strip()]


def _formatted(text: str, places: Mapping[str, str]) -> Markup:
    """Bold, code, and links to experiments of the page; of other links the words."""

    def link(match: re.Match[str]) -> str:
        name = re.sub(r"^(\.\./)*(results/)?|/README\.md$", "", match[2])
        return f'<a href="#{places[name]}">{match[1]}</a>' if name in places else match[1]

    marked = re.sub(r"\[([^\]]+)\]\(([^)]+)\)", link, str(escape(text)))
    marked = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", marked)
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", marked))


def _line(study: Study, finding: Finding) -> dict[str, Any]:
    told, status = finding.verdict, STATUS[finding.verdict.word]
    name = study.origin(finding)
    *cells, _ = markdown.cells(study, finding)
    reason = f"as in {name}" if name else told.why
    return {"cells": cells, "status": status, "glyph": view.GLYPHS[status], "word": told.word, "reason": reason}
