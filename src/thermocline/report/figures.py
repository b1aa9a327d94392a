"""Figures of a case, and each as what a page or a file holds. The one module that draws: it needs the optional packages."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert

from thermocline.record import Loaded
from thermocline.report import by_layer, marks, over_training, theme, trusting
from thermocline.report.curves import Point, curve
from thermocline.report.facts import HEADLINE, Case, rank_rule
from thermocline.report.figure import Figure
from thermocline.report.marks import Panel
from thermocline.report.theme import Temperatures

MAKERS: tuple[Callable[[Case, Mapping[str, Loaded], Temperatures], Figure | None], ...] = (
    by_layer.probes, by_layer.deficit, by_layer.layer_spectra, by_layer.layer_ranks, by_layer.alignment, trusting.collapse,
    *over_training.MAKERS,
    trusting.tradeoff, trusting.detection, trusting.score_shapes, trusting.confidence, trusting.confusions,
)  # fmt: skip
"""Every figure of a case, in the order of the argument."""

# Panels in pixels as the page has them, so many side by side; and what they are shrunk by to fit a text width of 7 inches,
# where letters come to 8 points.
_WIDTHS = {1: 320, 2: 310, 3: 182}
_SHRUNK = 504 / 780
_ZOOM = "wheel![event.shiftKey]"
_PAN = "[pointerdown[event.pointerType !== 'touch'], window:pointerup] > window:pointermove!"


def draw(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> list[Figure]:
    """Every figure of a case, without those that have nothing to say of it: of one step, as a scan is, those over training."""
    steps = {step for one in case.members for step in runs[one.key].rows["step"].unique().to_pylist()}
    makers = [make for make in MAKERS if len(steps) > 1 or make not in over_training.MAKERS]
    return [made for make in makers if (made := make(case, runs, scale)) is not None]


def side_by_side(cases: Sequence[Case], runs: Mapping[str, Loaded], scale: Temperatures) -> list[Figure]:
    """Small multiples over cases: how well each layer can be read, and how many directions it uses, on the same axes."""
    found = []
    for key, title, measure, where, axis in (
        ("all-probes", "Probe accuracy by layer", "probe_accuracy", _own, marks.share("probe accuracy")),
        ("all-ranks", "Rank by layer", "rank", lambda row: rank_rule(row) == HEADLINE, None),
    ):
        curves = {case.title: curve(case, runs, measure, x="depth", last=True, where=where) for case in cases}
        top = max((row["high"] for rows in curves.values() for row in rows), default=1.0)
        y = axis or marks.count("rank", most=1.05 * top)
        panels = [marks.curves(name, rows, scale, x=marks.LAYER, y=y) for name, rows in curves.items() if rows]
        found.append(Figure(key, title, "Each net on each data set, on the same axes.", (measure,), panels or [measure]))
    return found


def _own(row: Point) -> bool:
    return row["split"] == "test"


def to_svg(figure: Figure, scale: Temperatures) -> bytes:
    """A figure as one SVG with its legend, in the light colours, at most as wide as a paper's text."""
    return _shrunk(_drawn(_whole(figure, scale)), "pt").encode()


def _shrunk(drawn: str, unit: str) -> str:
    def size(found: re.Match[str]) -> str:
        return f'{found[1]}="{float(found[2]) * _SHRUNK:.1f}{unit}"'

    head, rest = drawn.split(">", 1)
    return re.sub(r'(?<= )(width|height)="([\d.]+)"', size, head) + ">" + rest


def to_png(figure: Figure, scale: Temperatures) -> bytes:
    """The same as pixels, 300 to the inch."""
    return vl_convert.svg_to_png(_drawn(_whole(figure, scale)), scale=_SHRUNK, ppi=300)


def to_pdf(figure: Figure, scale: Temperatures) -> bytes:
    """The same as vectors; there a pixel is taken for a point."""
    return vl_convert.svg_to_pdf(_shrunk(_drawn(_whole(figure, scale)), ""))


FILES: dict[str, Callable[[Figure, Temperatures], bytes]] = {"svg": to_svg, "png": to_png, "pdf": to_pdf}


@functools.lru_cache(maxsize=1)  # three kinds of file are made of each, one after the other
def _drawn(whole: str) -> str:
    return vl_convert.vegalite_to_svg(whole, vl_version=_vegalite())


def _whole(figure: Figure, scale: Temperatures) -> str:
    columns = min(figure.columns, len(figure.panels))
    panels = [{**_spec(panel), "title": panel.title, "width": _WIDTHS[columns]} for panel in figure.panels]
    whole = {
        "params": _params({**marks.SETTINGS, **figure.settings}),
        "datasets": {name: rows for panel in panels for name, rows in panel.pop("datasets", {}).items()},
        "concat": panels,
        "columns": columns,
        "bounds": "flush",
        "spacing": {"column": 76, "row": 84},
        "resolve": {"scale": {"color": "shared", "shape": "shared", "strokeDash": "shared"}},
        "config": theme.config(font=theme.FILE_FONT, legend=True),
    }
    return scale.written_out(json.dumps(whole))


def to_spec(panel: Panel, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A panel for the page: its Vega-Lite without data, its rows as columns, its other scale, and what it listens to."""
    words = json.dumps([spec := _spec(panel), other := panel.other and panel.other.to_dict(validate=False)["layer"]])
    hears = [name for name in marks.SETTINGS if name in words]
    del spec["data"]
    params: list[dict[str, Any]] = _params({name: {**marks.SETTINGS, **(settings or {})}[name] for name in hears})
    if panel.zoom:
        for layers in filter(None, (spec["layer"], other)):
            _add_zoom(layers)
    fit = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding", "resize": True}}
    by = any(one.get("encoding", {}).get("x", {}).get("axis", {}).get("title") == marks.LAYER.title for one in spec["layer"])
    whole = {**spec, "params": params, **fit}
    return {"spec": whole, "columns": packed(panel.rows), "other": other, "hears": hears, "byLayer": by}


def _params(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in settings.items()]


def _add_zoom(layers: list[dict[str, Any]]) -> None:
    """Drag to move, shift and wheel to zoom, double click to go back; a finger and a wheel alone still scroll the page."""
    first = next(one for one in layers if "data" not in one and {"x", "y"} <= one.get("encoding", {}).keys())
    first["params"] = [{"name": "view", "select": {"type": "interval", "zoom": _ZOOM, "translate": _PAN}, "bind": "scales"}]


def packed(rows: Sequence[Point]) -> dict[str, Any]:
    """Rows as columns, each word once, and a column that is the same as an earlier one by its name.

    >>> packed([{"a": "x", "b": 1, "c": 1}, {"a": "x", "b": None, "c": None, "d": 3}])
    {'a': {'names': ['x'], 'at': [0, 0]}, 'b': {'values': [1, None]}, 'c': {'like': 'b'}, 'd': {'values': [None, 3]}}
    """
    found: dict[str, Any] = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name) for row in rows]
        if all(isinstance(value, str) for value in values):
            places = {word: place for place, word in enumerate(dict.fromkeys(values))}
            found[name] = {"names": list(places), "at": [places[word] for word in values]}
        else:
            same = next((other for other, column in found.items() if column.get("values") == values), None)
            found[name] = {"like": same} if same else {"values": values}
    return found


def _spec(panel: Panel) -> dict[str, Any]:
    whole = panel.chart.to_dict(validate=False)  # tests validate; here it would take most of the time
    spec = {name: part for name, part in whole.items() if name not in ("$schema", "config")}
    return {**spec, "data": {"values": panel.rows}, "height": panel.height}


@functools.cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_vegalite())


def _vegalite() -> str:
    """The Vega-Lite that Altair writes for, as vl-convert spells it: v6.4.1 -> 6.4."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
