"""A trade-off for its readers: a table in the terminal, one page, one figure, or the points as data."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from thermocline import record
from thermocline.advise.association import LEAST
from thermocline.advise.relation import Relation, Tradeoff
from thermocline.report import page, theme, view
from thermocline.report.estimates import Estimate, plural
from thermocline.report.figure import Figure

HEADS = ("OOD set", "detector", "settings", "runs", "r", "by rank", "verdict")
CHANCE = "in brackets: 95 % intervals; about one in twenty misses by chance alone"
METHODS = (
    ("Transfer", "The share of the best layer's accuracy on another data set that the last layer still has; linear probes.",
     "1 - rho = a_L / max_l a_l", "[masarczyk2025softmax, Sec. 2.1 and App. M]"),
    ("Detection", "How well a score tells test images from the other data set: 0.5 is chance, 1 is perfect.",
     "P(s_id > s_ood) + P(s_id = s_ood) / 2", "[fawcett2006roc, Sec. 7]"),
    ("Means", "Over the seeds of one setting, with Student's 95 % interval from three seeds on; of two seeds the range."
     " Both numbers lie in [0, 1], and so do their means: what reaches beyond is cut off.",
     "mean +- t_{0.975, n - 1} s / sqrt(n), within [0, 1]", "[student1908mean]"),
    ("Front", "Settings that no other beats: none is at least as good in both numbers and better in one. Equal ones share it.",
     "{a : no b with b >= a in both and b != a}", ""),
    ("Correlation", "Over n settings, by their means, all weighing the same: seeds of one setting are no independent evidence."
     f" Fisher's interval, since a bootstrap over so few gives too narrow ones. None of fewer than {LEAST} settings.",
     "tanh(atanh r +- 1.96 / sqrt(n - 3))", "[fisher1921error]"),
    ("By rank", "The same of ranks; equal values share theirs.",
     "tanh(atanh r +- 1.96 sqrt((1 + r^2 / 2) / (n - 3)))", "[bonett2000sample]"),
)  # fmt: skip
_COLOURS = {"present": "green", "turned": "yellow", "reversed": "red", "unclear": "yellow"}


def terminal(found: Tradeoff) -> Group:
    """Tables and verdicts of what is shown in full, and one line for every other detector, as something rich can print."""
    said: list[RenderableType] = []
    for one in found.headline:
        word = Text(f"{one.word}: ", style=_COLOURS.get(one.status, "bold"))
        said += [_table(one), Padding(word + Text(one.sentence), (0, 0, 1, 1))]
    return Group(*said, *(_detectors(found, subject) for subject in _listed(found)))


def _listed(found: Tradeoff) -> list[str]:
    """The subjects whose detectors get a line each: not all are shown in full, and there are correlations to list."""
    whole = len(found.relations) == len(found.headline)
    return [] if whole else list(dict.fromkeys(one.subject for one in found.relations if one.pearson))


def suffix(path: str | Path) -> str:
    """The ending of a file that can be written, or an error that names those that can."""
    return page.known_ending(path, _WRITERS)


def save(found: Tradeoff, path: str | Path) -> Path:
    """Write it as its name ends: .html a page, .svg, .png or .pdf the figure, .csv or .parquet the points as rows."""
    content = _WRITERS[suffix(path)](found)
    page.write(Path(path), content)
    return Path(path)


def _html(found: Tradeoff) -> bytes:
    artist, scale = page.drawing(), _scale(found)
    figure = _figure(found, scale)
    charts = {chart: artist.to_spec(panel) for chart, panel in figure.charts(1).items()}
    runs, seeds = {point.run for point in found.points}, {point.seed for point in found.points}
    settings = {(point.subject, point.setting) for point in found.points}
    context = {
        "title": "Transfer against detection",
        "subtitle": f"{plural(len(settings), 'setting')}, {plural(len(runs), 'run')}, {plural(len(seeds), 'seed')}",
        "notes": found.left_out,
        "relations": [
            {**_shown(one, scale), "id": id_, "height": panel.height, "description": panel.description}
            for one, id_, panel in zip(found.headline, charts, figure.panels)
        ],
        "heads": HEADS,
        "chance": CHANCE,
        "every": list(_every(found)),
        "methods": METHODS,
        **page.colours(scale),
    }
    return page.compose("tradeoff.html.jinja", context, charts, artist.bundle()).encode()


def _drawing(found: Tradeoff, kind: str) -> bytes:
    scale = _scale(found)
    return page.drawing().FILES[kind](_figure(found, scale), scale)


_WRITERS: dict[str, Callable[[Tradeoff], bytes | pa.Buffer]] = {
    ".html": _html,
    **{f".{kind}": functools.partial(_drawing, kind=kind) for kind in ("svg", "png", "pdf")},
    ".csv": lambda found: record.encoded(_points(found), ".csv"),
    ".parquet": lambda found: record.encoded(_points(found), ".parquet"),
}  # fmt: skip


def _points(found: Tradeoff) -> pa.Table:
    """One row a run, with the means of its setting, which are what is correlated."""
    rows = []
    for one in found.relations:
        settings = {at.label: at for at in one.settings}
        for point in one.points:
            at = settings[point.setting]
            means = {"mean_transfer": at.transfer.mean, "mean_auroc": at.auroc.mean}
            rows.append({**dataclasses.asdict(point), **means, "front": at.front})
    return pa.Table.from_pylist(rows)


def _scale(found: Tradeoff) -> theme.Temperatures:
    return theme.temperatures(point.temperature for point in found.points)


def _figure(found: Tradeoff, scale: theme.Temperatures) -> Figure:
    scatter = page.drawing().marks.scatter
    panels = [scatter(_title(one), one.settings, scale, y="detection (AUROC)") for one in found.headline]
    return Figure("tradeoff", "Transfer against detection", "", ("ood_drop", "auroc"), panels, columns=2)


def _shown(one: Relation, scale: theme.Temperatures) -> dict[str, Any]:
    lines = [
        {"label": at.label, "seeds": plural(at.auroc.count, "seed"), "cells": [_cell(at.transfer), _cell(at.auroc)],
         "front": "yes" if at.front else ""}
        for at in one.settings
    ]  # fmt: skip
    legend = [scale.swatch(heat) for heat in sorted({at.temperature for at in one.settings})]
    verdict = {"status": one.status, "word": one.word, "glyph": view.GLYPHS[one.status], "sentence": one.sentence}
    return {"title": _title(one), **verdict, "legend": legend, "lines": lines}


def _table(one: Relation) -> RenderableType:
    lines = [
        (at.label, str(at.auroc.count), *(" ".join(_cell(value)).strip() for value in (at.transfer, at.auroc)),
         "yes" if at.front else "")
        for at in one.settings
    ]  # fmt: skip
    kinds = dict.fromkeys(at.auroc.kind for at in one.settings if at.auroc.count > 1)
    caption = "one seed for each setting, so no intervals"
    if kinds:
        cut = "; cut to [0, 1], where both numbers lie" if any(at.transfer.cut or at.auroc.cut for at in one.settings) else ""
        caption = f"in brackets: {'; '.join(kinds)}{cut}"
    return _grid(_title(one), ("setting", "seeds", "1 - rho", "AUROC", "on the front"), lines, caption)


def _detectors(found: Tradeoff, subject: str) -> RenderableType:
    """The correlation of every detector, one column a set: narrow enough for a terminal."""
    told = {(one.detector, one.ood): str(one.pearson or "-") for one in found.relations if one.subject == subject}
    detectors, sets = dict.fromkeys(name for name, _ in told), dict.fromkeys(ood for _, ood in told)
    lines = [(name, *(told.get((name, ood), "-") for ood in sets)) for name in detectors]
    return _grid(f"{subject}: every detector", ("detector", *(f"r on {ood}" for ood in sets)), lines, CHANCE)


def _grid(title: str, heads: Iterable[str], lines: Iterable[Iterable[str]], caption: str) -> RenderableType:
    grid = Table(*heads, title=Text(title), title_justify="left", title_style="bold", caption=caption, caption_justify="left")
    for line in lines:
        grid.add_row(*map(Text, line))
    return grid


def _every(found: Tradeoff) -> Iterator[tuple[str, ...]]:
    several, listed = len({one.subject for one in found.relations}) > 1, _listed(found)
    order = {name: place for place, name in enumerate(dict.fromkeys((one.subject, one.ood) for one in found.relations))}
    shown = [one for one in found.relations if one.subject in listed]
    for one in sorted(shown, key=lambda one: order[one.subject, one.ood]):
        where = f"{one.subject}: {one.ood}" if several else one.ood
        counts = (str(len(one.settings)), str(len(one.points)))
        yield where, one.detector, *counts, str(one.pearson or "-"), str(one.spearman or "-"), one.word


def _cell(value: Estimate) -> tuple[str, str]:
    return f"{value.mean:.3f}", f"[{value.low:.3f}, {value.high:.3f}]" if value.count > 1 else ""


def _title(one: Relation) -> str:
    return f"{one.subject}: {one.ood}, {one.detector}"
