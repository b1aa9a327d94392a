"""Studies as one self-contained HTML page: ours beside the papers'."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thermocline.report import page, theme, view
from thermocline.reproduce import figure, markdown, output, verdict
from thermocline.reproduce.study import Study
from thermocline.reproduce.verdict import Finding

STATUS = {
    verdict.HOLDS: "present", verdict.DIRECTION: "present", verdict.FAILS: "reversed", verdict.UNDECIDED: "unclear",
    verdict.ABSENT: "alone",
}  # fmt: skip
LEDE = (
    "Neither paper's code is public; this is an independent reproduction from their text. Every number is read from rows of"
    " runs, and every verdict follows the rule at the end."
)


def write(studies: Sequence[Study], path: Path, *, results: Path) -> Path:
    """Write the page of some studies, with the notes that lie in their folders of results."""
    context: dict[str, Any] = {
        "title": studies[0].experiment.name if len(studies) == 1 else "What holds",
        "subtitle": f"{sum(len(one.findings) for one in studies)} claims in {len(studies)} experiment"
        + ("s" if len(studies) > 1 else ""),
        "lede": LEDE,
        "short": _items(output.notes(results)),
        "differs": markdown.DIFFERS,
        "rule": verdict.RULE,
        "heads": [head.capitalize() for head in markdown.HEADS],
        "studies": [_shown(one, f"study-{i}", results) for i, one in enumerate(studies)],
        **page.colours(theme.temperatures([1.0])),
    }
    page.write(path, page.compose("reproduction.html.jinja", context, {}, "").encode())
    return path


def _shown(study: Study, id_: str, results: Path) -> dict[str, Any]:
    experiment = study.experiment
    asked, lacking = len(experiment.runs) + bool(experiment.computed), len(study.found.missing) + study.found.lacks_table
    drawn = figure.svg(study) if study.found.sources else None
    return {
        "id": id_, "name": experiment.name, "says": experiment.says, "more": " ".join(experiment.more.split()),
        "summary": study.summary, "why": study.why, "command": "" if experiment.why else experiment.command,
        "runs": "–" if experiment.why else f"{asked - lacking} of {asked}", "caption": figure.caption(study),
        "lines": [_line(study, finding) for finding in study.findings],
        "figure": base64.b64encode(drawn.encode()).decode() if drawn else "",
        "notes": _items(output.notes(results / experiment.name)),
    }  # fmt: skip


def _items(notes: str) -> list[str]:
    """The items of a Markdown list as plain text."""
    items = ("\n" + re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", notes)).replace("**", "").replace("`", "").split("\n- ")
    return [" ".join(item.split()) for item in items if item.strip()]


def _line(study: Study, finding: Finding) -> dict[str, Any]:
    told, status = finding.verdict, STATUS[finding.verdict.word]
    name = study.origin(finding)
    *cells, _ = markdown.cells(study, finding)
    reason = f"as in {name}" if name else told.why
    return {"cells": cells, "status": status, "glyph": view.GLYPHS[status], "word": told.word, "reason": reason}
