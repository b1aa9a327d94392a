"""Panels by layer, step or index: curves, a fan of spectra, a scatter; and the marks laid over them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from thermocline.report.curves import DECADE, HEADLINE_PLACE, Point
from thermocline.report.facts import Case
from thermocline.report.theme import Temperatures
from thermocline.report.trading import Setting

HEIGHT = 250
POINT: dict[str, Any] = {"filled": True, "opacity": 1, "stroke": "var(--paper)", "strokeWidth": 1}  # parted from what is below
GUIDE: dict[str, Any] = {"color": "var(--muted)", "strokeDash": [3, 3], "strokeWidth": 1}  # a line to compare with
TEMPERATURE = alt.Tooltip("series:N", title="temperature")


@dataclass(frozen=True)
class Panel:
    """One chart with its title, of fixed height and any width. Its rows stay outside: Altair would copy them many times.

    `other` is the same on the other kind of scale, for the page's button; `zoom`: whether its axes can be dragged.
    """

    title: str
    chart: alt.LayerChart
    rows: Sequence[Point]
    height: int = HEIGHT
    description: str = ""
    other: alt.LayerChart | None = None
    zoom: bool = True


@dataclass(frozen=True)
class Axis:
    """What an axis is called, how it is scaled, and how its numbers are written."""

    title: str
    scale: dict[str, Any]
    format: str = "~g"
    ticks: dict[str, Any] | None = None

    def x(self) -> alt.X:
        axis = alt.Axis(title=self.title, format=self.format, **(self.ticks or {}))
        return alt.X("x:Q", axis=axis, scale=alt.Scale(**self.scale))

    def y(self, column: str = "value") -> alt.Y:
        axis = alt.Axis(title=self.title, format=self.format, **(self.ticks or {"tickCount": 5}))
        return alt.Y(f"{column}:Q", axis=axis, scale=alt.Scale(**self.scale))


# Of few places there are ticks between them in spite of the step, and "d" would round 2.5 to 2.
_WHOLE = {"tickMinStep": 1, "labelExpr": "datum.value % 1 ? '' : datum.label"}
LAYER = Axis("layer", {"zero": False, "nice": False, "padding": 12}, "d", _WHOLE)
STEP = Axis(
    "training step",
    {"type": "sqrt", "nice": False, "padding": 8},
    ",d",
    {"tickCount": 6, "labelOverlap": "greedy", "labelSeparation": 8},
)
LINEAR_STEP = Axis(STEP.title, {"nice": False, "padding": 8}, STEP.format, STEP.ticks)
INDEX = Axis("index i", {"zero": False, "nice": False, "padding": 8}, "d", _WHOLE)

# What the page sets and charts may read: the layer chosen (0: none), the tolerance as a place on the slider, the detector.
CHOSEN, CUT, SHOWN = "chosenLayer", "cutAt", "shownDetector"
TOLERANCE = f"pow(10, -{CUT} / {DECADE})"
SETTINGS: dict[str, Any] = {CHOSEN: 0, CUT: HEADLINE_PLACE, SHOWN: "neco"}

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def share(title: str) -> Axis:
    return Axis(title, {"domain": [0, 1.03], "nice": False}, ".0%")  # a mark at 1 needs room


def fraction(title: str) -> Axis:
    return Axis(title, {"domain": [0, 1.03], "nice": False}, ".1f")


def count(title: str, most: float | None = None) -> Axis:
    return Axis(title, {"domain": [0, most], "nice": False} if most else {"zero": True, "nice": 5}, ",.6~g")


def decades(title: str, values: Iterable[float], **scale: Any) -> Axis:
    """A log axis of whole decades, written as powers of ten."""
    exponents = [math.log10(value) for value in values] or [0.0]
    low, high = math.floor(min(exponents) + 1e-9), math.ceil(max(exponents) - 1e-9)
    high = max(high, low + 1)
    names = {str(k).replace("-", "\u2212"): "10" + str(k).translate(_SUPERSCRIPT) for k in range(low, high + 1)}
    # Vega writes its minus as U+2212, so the keys do too.
    label = f"({json.dumps(names)})[format(log(datum.value) / LN10, 'd')]"
    every = 1 if high - low < 8 else 2
    ticks = {"values": [10.0**k for k in range(low, high + 1, every)], "labelExpr": label}
    return Axis(title, {"type": "log", "domain": [10.0**low, 1.3 * 10.0**high], "nice": False, **scale}, "~g", ticks)


def ends(rows: Sequence[Point]) -> list[float]:
    """The ends of the ranges over seeds."""
    return [row[end] for row in rows for end in ("low", "high")]


def curves(
    title: str,
    rows: Sequence[Point],
    scale: Temperatures,
    *,
    x: Axis,
    y: Axis,
    extra: Sequence[alt.Chart | alt.LayerChart] = (),
    dots: bool = True,
    other: tuple[Axis, Axis] | None = None,
) -> Panel:
    """Mean over seeds as a line with points, the range over seeds as a band; `other`: the axes to change to on request."""
    layers = _curves(rows, scale, x=x, y=y, dots=dots)
    second = layered(*_curves(rows, scale, x=other[0], y=other[1], dots=dots), *extra) if other else None
    return Panel(title, layered(*layers, *extra), rows, description=f"{title}: {y.title} by {x.title}", other=second)


def _curves(rows: Sequence[Point], scale: Temperatures, *, x: Axis, y: Axis, dots: bool) -> list[alt.Chart]:
    base = alt.Chart().encode(x=x.x(), color=colour(scale))
    band = base.mark_area(opacity=0.16).encode(y=y.y("low"), y2="high:Q")
    line = base.mark_line(strokeWidth=2, clip=True).encode(y=y.y(), strokeDash=dash(scale))
    tooltip = [
        TEMPERATURE,
        alt.Tooltip("x:Q", title=x.title),
        alt.Tooltip("value:Q", title=y.title, format=".4~g"),
        *([alt.Tooltip("layer:N", title="name")] if any(row["layer"] for row in rows) else []),
    ]
    look = {"size": 60} if dots else {"size": 40, "opacity": 0}
    point = base.mark_point(**{**POINT, **look})
    layers = [line, point.encode(y=y.y(), shape=shape(scale), tooltip=tooltip)]
    if any(row["low"] < row["high"] for row in rows):
        layers.insert(0, band)
    return [*([chosen_layer()] if x is LAYER else []), *layers]


def chosen_layer() -> alt.Chart:
    """A band at the layer that was chosen on the page; placed by pixel, so that it has no say in the axis."""
    look = {"strokeWidth": 9, "color": "var(--ink)", "opacity": alt.ExprRef(f"{CHOSEN} ? 0.16 : 0")}
    return alt.Chart(data([{}])).mark_rule(**look).encode(x=alt.XValue(alt.ExprRef(f"scale('x', {CHOSEN})")))


def threshold(y: Axis) -> alt.LayerChart:
    """The tolerance that ranks are counted at, as a line that the page's slider moves."""
    base = alt.Chart(data([{}])).transform_calculate(value=TOLERANCE).encode(y=y.y())
    words = base.transform_calculate(words=f"'threshold ' + format({TOLERANCE}, '.2~g')")
    named = haloed(words, alt.Text("words:N"), x=alt.XValue(4), align="left", baseline="top", dy=5)
    return alt.LayerChart(layer=[base.mark_rule(**GUIDE), *named])


def depth_marks(case: Case, rows: Sequence[Point], scale: Temperatures) -> list[alt.Chart]:
    """A line dropped from each curve at its effective depth, with the depth written beside it."""
    heights = {(row["series"], row["x"]): row["value"] for row in rows}
    deepest = max((row["x"] for row in rows), default=1)
    found = []
    for place, group in enumerate(case.groups):
        depth = group.estimate(lambda one: one.effective_depth)
        if depth is None:
            continue
        layer = round(depth.mean * deepest)
        height = heights.get((group.label, layer))
        if height is None:
            continue
        at = {"x": layer, "value": height, "series": group.label, "floor": 0}
        base = alt.Chart(data([at])).encode(x=LAYER.x())
        rule = base.mark_rule(strokeWidth=1.5).encode(y="value:Q", y2="floor:Q", strokeDash=dash(scale), color=colour(scale))
        found.append(rule)
        words = f"{group.label}: layer {layer}"
        side = {"align": "right", "dx": -6} if layer > deepest * 0.6 else {"align": "left", "dx": 6}
        found += haloed(base, words, y=alt.YValue(HEIGHT - 10 - 16 * place), **side)
    # Words go over every line, so that no line crosses them.
    return sorted(found, key=lambda chart: chart.mark.type == "text")


def last_above(scale: Temperatures, *, x: Axis, y: Axis) -> alt.Chart:
    """A mark on each falling curve at its last point above the threshold: where the count stops."""
    kept = alt.Chart().transform_filter(f"datum.value > {TOLERANCE}")
    kept = kept.transform_joinaggregate(last="max(x)", groupby=["series"]).transform_filter("datum.x === datum.last")
    mark = kept.mark_point(size=90, **POINT)
    tooltip = [TEMPERATURE, alt.Tooltip("x:Q", title="singular values above the line")]
    return mark.encode(x=x.x(), y=y.y(), color=colour(scale), shape=shape(scale), tooltip=tooltip)


def reference(rows: Sequence[Point]) -> alt.Chart:
    """A grey line to compare curves with, one for all of them."""
    line = alt.Chart(data(rows)).mark_line(**{**GUIDE, "strokeWidth": 1.2})
    return line.encode(x="x:Q", y="value:Q")


def diagonal(x: Axis, y: Axis) -> alt.Chart:
    """The line from (0, 0) to (1, 1)."""
    ends = alt.Chart(data([{"x": 0, "value": 0}, {"x": 1, "value": 1}])).encode(x=x.x(), y=y.y())
    return ends.mark_line(**GUIDE)


def best_layer(rows: Sequence[Point], scale: Temperatures) -> alt.Chart:
    """A ring round the highest point of each curve."""
    best = [max((row for row in rows if row["series"] == name), key=lambda row: row["value"]) for name in _series(rows)]
    ring = alt.Chart(data(best)).mark_point(size=190, filled=False, strokeWidth=1.5, shape="circle")
    return ring.encode(x=LAYER.x(), y="value:Q", color=colour(scale))


def horizontal(value: float, words: str, *, above: bool = False) -> alt.LayerChart:
    """A reference line across the panel, with its name at its left end, above or below."""
    base = alt.Chart(data([{"value": value}])).encode(y="value:Q")
    side = {"baseline": "bottom", "dy": -5} if above else {"baseline": "top", "dy": 5}
    return alt.LayerChart(layer=[base.mark_rule(**GUIDE), *haloed(base, words, x=alt.XValue(4), align="left", **side)])


def fan(title: str, rows: Sequence[Point], hue: str, *, y: Axis, longest: int) -> Panel:
    """One line a layer, early layers faint; the first and the last carry their names, and a chosen one stands out."""
    room = {"type": "log", "domain": [1, longest * 2.4], "nice": False, "padding": 6}
    x = Axis("index i", room, "~g", {"values": [1, 10, 100, 1000, 10000]})
    plain = Axis("index i", {"domain": [1, longest * 1.25], "nice": False, "padding": 6}, "~g", {"tickCount": 5})
    cut = threshold(y)
    drawn = (layered(*_fan(rows, hue, x=one, y=y), cut) for one in (x, plain))
    return Panel(title, next(drawn), rows, description=f"Spectra of the layers at {title}", other=next(drawn))


def _fan(rows: Sequence[Point], hue: str, *, x: Axis, y: Axis) -> list[alt.Chart]:
    strength = alt.Opacity("depth:Q", scale=alt.Scale(range=[0.28, 1], zero=False, nice=False), legend=None)
    base = alt.Chart().encode(x=x.x(), y=y.y())
    line = base.transform_filter(f"datum.depth !== {CHOSEN}").mark_line(strokeWidth=1.8, color=hue)
    chosen = base.transform_filter(f"datum.depth === {CHOSEN}").mark_line(strokeWidth=3.5, color="var(--ink)")
    tooltip = [
        alt.Tooltip("depth:Q", title="layer"),
        alt.Tooltip("layer:N", title="name"),
        alt.Tooltip("x:Q", title="index"),
        alt.Tooltip("value:Q", title="relative value", format=".3~g"),
    ]
    # A point to hover for each of very many values would be most of what a page has to draw.
    hover = [base.mark_point(size=40, opacity=0).encode(tooltip=tooltip)] if len(rows) < 1200 else []
    ends = []
    for depth in sorted({min(row["depth"] for row in rows), max(row["depth"] for row in rows)}):
        own = [row for row in rows if row["depth"] == depth]
        ends.append(next((row for row in reversed(own) if row["value"] > 3e-6), own[-1]))  # so that its name has room
    names = []
    for end, side in zip(sorted(ends, key=lambda row: row["value"]), ("top", "bottom")):  # away from each other
        place = alt.Chart(data([end])).encode(x=x.x(), y=y.y())
        names += haloed(place, f"layer {end['depth']}", align="left", baseline=side, dx=6)
    return [line.encode(detail="depth:O", opacity=strength, tooltip=tooltip[:2]), chosen, *hover, *names]


def recount(title: str, rows: Sequence[Point], scale: Temperatures) -> Panel:
    """How many singular values of each layer lie above the threshold, counted anew wherever the page's slider puts it."""
    y = Axis("singular values above it", {"zero": True, "nice": 5}, ",.6~g")
    base = alt.Chart().transform_calculate(value=f"datum.counts[{CUT}]").encode(x=LAYER.x(), y=y.y(), color=colour(scale))
    tooltip = [
        TEMPERATURE,
        alt.Tooltip("x:Q", title="layer"),
        alt.Tooltip("layer:N", title="name"),
        alt.Tooltip("value:Q", title="rank"),
    ]
    line = base.mark_line(strokeWidth=2).encode(strokeDash=dash(scale))
    point = base.mark_point(size=60, **POINT)
    layers = (chosen_layer(), line, point.encode(shape=shape(scale), tooltip=tooltip))
    return Panel(title, layered(*layers), rows, description=f"{title}: rank by layer at the threshold of the slider")


def scatter(title: str, settings: Sequence[Setting], scale: Temperatures, *, y: str) -> Panel:
    """Settings by both numbers with their intervals, the runs behind them small, and a line through those on the front."""
    rows, x = [mark for at in settings for mark in at.marks()], "transfer (1 - rho)"
    room = {"zero": False, "nice": True, "padding": 14}
    across, up = Axis(x, room, ".2~f", {"tickCount": 6}), Axis(y, room, ".2~f")
    base = alt.Chart().encode(x=across.x(), y=up.y(), color=colour(scale))
    means = base.transform_filter("datum.kind === 'mean'")
    front = alt.Chart().transform_filter("datum.front").encode(x=across.x(), y=up.y(), order="x:Q")
    tooltip = [
        alt.Tooltip("label:N", title="setting"),
        alt.Tooltip("seeds:N"),
        alt.Tooltip("x:Q", title=x, format=".3f"),
        alt.Tooltip("value:Q", title=y, format=".3f"),
    ]
    bars = [
        means.mark_rule(strokeWidth=1.5).encode(x=alt.X("x_low:Q"), x2="x_high:Q"),
        means.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q"),
    ]
    seeds = base.transform_filter("datum.kind === 'seed'").mark_point(filled=True, size=20, opacity=1)
    dot = means.mark_point(size=130, **POINT)
    layers = [
        front.mark_line(**{**GUIDE, "strokeWidth": 1.5}),
        *bars,
        *([seeds.encode(shape=shape(scale), tooltip=tooltip)] if any(row["kind"] == "seed" for row in rows) else []),
        dot.encode(shape=shape(scale), tooltip=tooltip),
    ]
    return Panel(title, layered(*layers), rows, 300, f"{title}: {y} by {x}")


def haloed(
    base: alt.Chart, words: str | alt.Text, *, align: str, baseline: str = "middle", dx: int = 0, dy: int = 0, **at: Any
) -> list[alt.Chart]:
    """Words, or those of a column, that stay readable over lines: a thick outline in the paper's colour, then ink."""
    text = alt.TextValue(words) if isinstance(words, str) else words
    place = {"align": align, "baseline": baseline, "dx": dx, "dy": dy}
    outline = base.mark_text(stroke="var(--paper)", strokeWidth=4, strokeJoin="round", **place)
    return [mark.encode(text=text, **at) for mark in (outline, base.mark_text(color="var(--ink)", **place))]


def layered(*charts: alt.Chart | alt.LayerChart) -> alt.LayerChart:
    """Charts on top of each other; those without data of their own take the panel's rows."""
    return alt.LayerChart(data=alt.NamedData("rows"), layer=list(charts))


def data(rows: Sequence[Point]) -> alt.InlineData:
    """Rows of a chart's own."""
    return alt.InlineData(values=list(rows))


def _series(rows: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(row["series"] for row in rows))


def colour(scale: Temperatures) -> alt.Color:
    """How a series looks: its colour,"""
    return alt.Color("series:N", title=None, scale=alt.Scale(domain=scale.labels(), range=scale.colours()))


def dash(scale: Temperatures) -> alt.StrokeDash:
    """its dashes,"""
    return alt.StrokeDash("series:N", title=None, scale=alt.Scale(domain=scale.labels(), range=scale.dashes()))


def shape(scale: Temperatures) -> alt.Shape:
    """and its marks."""
    return alt.Shape("series:N", title=None, scale=alt.Scale(domain=scale.labels(), range=scale.shapes()))
