"""The few kinds of panel that every figure is made of: curves, a fan of spectra, dots; and the marks laid over them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from thermocline.report.curves import Point
from thermocline.report.facts import Case
from thermocline.report.theme import Temperatures

HEIGHT = 250


@dataclass(frozen=True)
class Panel:
    """One chart with its title, of fixed height and any width. Its rows stay outside: Altair would copy them many times."""

    title: str
    chart: alt.LayerChart
    rows: Sequence[Point]
    height: int = HEIGHT
    description: str = ""


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


LAYER = Axis("layer", {"zero": False, "nice": False, "padding": 12}, "d", {"tickMinStep": 1})
STEP = Axis(
    "training step",
    {"type": "sqrt", "nice": False, "padding": 8},
    ",d",
    {"tickCount": 6, "labelOverlap": "greedy", "labelSeparation": 8},
)
INDEX = Axis("index i", {"zero": False, "nice": False, "padding": 8}, "d")

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def share(title: str) -> Axis:
    return Axis(title, {"domain": [0, 1]}, ".0%")


def count(title: str, most: float | None = None) -> Axis:
    return Axis(title, {"domain": [0, most], "nice": False} if most else {"zero": True, "nice": 5}, "~s")


def decades(title: str, values: Iterable[float], **scale: Any) -> Axis:
    """A log axis of whole decades, written as powers of ten."""
    exponents = [math.log10(value) for value in values]
    low, high = math.floor(min(exponents) + 1e-9), math.ceil(max(exponents) - 1e-9)
    high = max(high, low + 1)
    names = {str(k).replace("-", "\u2212"): "10" + str(k).translate(_SUPERSCRIPT) for k in range(low, high + 1)}
    # Vega writes its minus as U+2212, so the keys do too.
    label = f"({json.dumps(names)})[format(log(datum.value) / LN10, 'd')]"
    every = 1 if high - low < 8 else 2
    ticks = {"values": [10.0**k for k in range(low, high + 1, every)], "labelExpr": label}
    return Axis(title, {"type": "log", "domain": [10.0**low, 10.0**high], "nice": False, **scale}, "~g", ticks)


def curves(
    title: str,
    rows: Sequence[Point],
    scale: Temperatures,
    *,
    x: Axis,
    y: Axis,
    extra: Sequence[alt.Chart | alt.LayerChart] = (),
    dots: bool = True,
) -> Panel:
    """Mean over seeds as a line with points, the range over seeds as a band."""
    base = alt.Chart().encode(x=x.x(), color=_colour(scale))
    band = base.mark_area(opacity=0.16).encode(y=y.y("low"), y2="high:Q")
    line = base.mark_line(strokeWidth=2, clip=True).encode(y=y.y(), strokeDash=_dash(scale))
    tooltip = [
        alt.Tooltip("series:N", title="temperature"),
        alt.Tooltip("x:Q", title=x.title),
        alt.Tooltip("value:Q", title=y.title, format=".4~g"),
        *([alt.Tooltip("layer:N", title="name")] if any(row["layer"] for row in rows) else []),
    ]
    look: dict[str, Any] = {"size": 60, "opacity": 1} if dots else {"size": 40, "opacity": 0}
    point = base.mark_point(filled=True, stroke="var(--paper)", strokeWidth=1, **look)
    layers = [line, point.encode(y=y.y(), shape=_shape(scale), tooltip=tooltip)]
    if any(row["low"] < row["high"] for row in rows):
        layers.insert(0, band)
    return Panel(title, _layered(*layers, *extra), rows, description=f"{title}: {y.title} by {x.title}")


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
        base = alt.Chart(_data([at])).encode(x=LAYER.x())
        rule = base.mark_rule(strokeWidth=1.5).encode(y="value:Q", y2="floor:Q", strokeDash=_dash(scale), color=_colour(scale))
        found.append(rule)
        words = f"{group.label}: layer {layer}"
        side = {"align": "right", "dx": -6} if layer > deepest * 0.6 else {"align": "left", "dx": 6}
        found += _haloed(base, words, y=alt.value(HEIGHT - 10 - 16 * place), **side)
    # Words go over every line, so that no line crosses them.
    return sorted(found, key=lambda chart: chart.mark.type == "text")


def last_above(rows: Sequence[Point], cut: float, scale: Temperatures, *, x: Axis, y: Axis) -> alt.Chart:
    """A mark on each falling curve at its last point above the cut: where the count stops."""
    last = [[row for row in rows if row["series"] == name and row["value"] > cut][-1] for name in _series(rows)]
    mark = alt.Chart(_data(last)).mark_point(filled=True, size=90, opacity=1, stroke="var(--paper)", strokeWidth=1)
    tooltip = [alt.Tooltip("series:N", title="temperature"), alt.Tooltip("x:Q", title="singular values above the line")]
    return mark.encode(x=x.x(), y=y.y(), color=_colour(scale), shape=_shape(scale), tooltip=tooltip)


def best_layer(rows: Sequence[Point], scale: Temperatures) -> alt.Chart:
    """A ring round the highest point of each curve."""
    best = [max((row for row in rows if row["series"] == name), key=lambda row: row["value"]) for name in _series(rows)]
    ring = alt.Chart(_data(best)).mark_point(size=190, filled=False, strokeWidth=1.5, shape="circle")
    return ring.encode(x=LAYER.x(), y="value:Q", color=_colour(scale))


def horizontal(value: float, words: str, *, above: bool = False) -> alt.LayerChart:
    """A reference line across the panel, with its name at its left end, above or below."""
    base = alt.Chart(_data([{"value": value}])).encode(y="value:Q")
    rule = base.mark_rule(color="var(--muted)", strokeDash=[3, 3], strokeWidth=1)
    side = {"baseline": "bottom", "dy": -5} if above else {"baseline": "top", "dy": 5}
    return alt.LayerChart(layer=[rule, *_haloed(base, words, x=alt.value(4), align="left", **side)])


def fan(title: str, rows: Sequence[Point], colour: str, *, y: Axis, longest: int) -> Panel:
    """One line a layer, early layers faint; the first and the last carry their names."""
    room = {"type": "log", "domain": [1, longest * 2.4], "nice": False, "padding": 6}
    x = Axis("index i", room, "~g", {"values": [1, 3, 10, 30, 100, 300, 1000, 3000]})
    strength = alt.Opacity("depth:Q", scale=alt.Scale(range=[0.28, 1], zero=False, nice=False), legend=None)
    base = alt.Chart().encode(x=x.x(), y=y.y())
    line = base.mark_line(strokeWidth=1.8, color=colour).encode(detail="depth:O", opacity=strength)
    tooltip = [
        alt.Tooltip("depth:Q", title="layer"),
        alt.Tooltip("layer:N", title="name"),
        alt.Tooltip("x:Q", title="index"),
        alt.Tooltip("value:Q", title="relative value", format=".3~g"),
    ]
    hover = base.mark_point(size=40, opacity=0).encode(tooltip=tooltip)
    names = []
    for depth in sorted({min(row["depth"] for row in rows), max(row["depth"] for row in rows)}):
        end = [row for row in rows if row["depth"] == depth][-1]
        place = alt.Chart(_data([end])).encode(x=x.x(), y=y.y())
        names += _haloed(place, f"layer {depth}", align="left", dx=6)
    return Panel(title, _layered(line, hover, *names), rows, description=f"Spectra of the layers at {title}")


def dots(title: str, rows: Sequence[Point], scale: Temperatures, *, columns: int, order: Sequence[str]) -> Panel:
    """AUROC of each detector, one dot a temperature; few enough to be read are also written. Chance is marked."""
    count = len({row["detector"] for row in rows})
    roomy = count <= 4
    lowest = min([0.45, *(row["low"] - 0.05 for row in rows)])
    look = {"scale": alt.Scale(domain=[lowest, 1.0], nice=False, zero=False), "axis": alt.Axis(format="~g", tickCount=5)}
    x, low = alt.X("value:Q", title="AUROC", **look), alt.X("low:Q", title="AUROC", **look)
    offset = alt.YOffset("series:N", scale=alt.Scale(paddingInner=0.2, paddingOuter=0.6 if roomy else 0.3), sort=scale.labels())
    # A line between detectors, so that the eye finds the name of a dot far to the right.
    y = alt.Y("detector:N", title=None, sort=list(order), axis=alt.Axis(grid=not roomy, tickBand="extent"))
    base = alt.Chart().encode(y=y, yOffset=offset, color=_colour(scale))
    tooltip = [
        alt.Tooltip("series:N", title="temperature"),
        alt.Tooltip("detector:N"),
        alt.Tooltip("value:Q", title="AUROC", format=".3f"),
        alt.Tooltip("low:Q", title="from", format=".3f"),
        alt.Tooltip("high:Q", title="to", format=".3f"),
        alt.Tooltip("fpr:Q", title="FPR at 95 % TPR", format=".3f"),
    ]
    spread = base.mark_rule(strokeWidth=2 if roomy else 1.5).encode(x=low, x2="high:Q")
    dot = base.mark_point(filled=True, size=110 if roomy else 45, opacity=1).encode(x=x, shape=_shape(scale), tooltip=tooltip)
    words = base.mark_text(align="right", dx=-10).encode(
        x=low, text=alt.Text("value:Q", format=".3f"), color=alt.value("var(--ink)")
    )
    chance = alt.Chart(_data([{"value": 0.5}])).mark_rule(color="var(--muted)", strokeDash=[3, 3]).encode(x=x)
    height = max(90, count * (24 * columns + 20 if roomy else max(20, 9 * columns + 6)))
    layers = (chance, spread, dot, words) if roomy else (chance, spread, dot)
    return Panel(title, _layered(*layers), rows, height, f"AUROC of each detector on {title}")


def reliability(title: str, rows: Sequence[Point], scale: Temperatures) -> Panel:
    """Accuracy by confidence, one line a temperature, each point as large as its share of the samples; the diagonal."""
    x, y = share("confidence"), share("accuracy")
    ends = alt.Chart(_data([{"x": 0, "value": 0}, {"x": 1, "value": 1}])).encode(x=x.x(), y=y.y())
    diagonal = ends.mark_line(color="var(--muted)", strokeDash=[3, 3], strokeWidth=1)
    base = alt.Chart().encode(x=x.x(), y=y.y(), color=_colour(scale))
    line = base.mark_line(strokeWidth=2).encode(strokeDash=_dash(scale))
    tooltip = [
        alt.Tooltip("series:N", title="temperature"),
        alt.Tooltip("x:Q", title="confidence", format=".1%"),
        alt.Tooltip("value:Q", title="accuracy", format=".1%"),
        alt.Tooltip("count:Q", title="images", format=",d"),
    ]
    size = alt.Size("share:Q", scale=alt.Scale(domain=[0, 1], range=[18, 420]), legend=None)
    point = base.mark_point(filled=True, opacity=1, stroke="var(--paper)", strokeWidth=1)
    layers = (diagonal, line, point.encode(shape=_shape(scale), size=size, tooltip=tooltip))
    return Panel(title, _layered(*layers), rows, 300, f"Accuracy by confidence, {title[0].lower()}{title[1:]}")


def scatter(title: str, rows: Sequence[Point], scale: Temperatures, *, x: str, y: str) -> Panel:
    """Settings by two numbers with their intervals, the runs behind them small, and a line through those on the front."""
    room = {"zero": False, "nice": True, "padding": 14}
    across, up = Axis(x, room, ".2~f", {"tickCount": 6}), Axis(y, room, ".2~f")
    base = alt.Chart().encode(x=across.x(), y=up.y(), color=_colour(scale))
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
    dot = means.mark_point(filled=True, size=130, opacity=1, stroke="var(--paper)", strokeWidth=1)
    layers = [
        front.mark_line(color="var(--muted)", strokeWidth=1.5, strokeDash=[3, 3]),
        *bars,
        seeds.encode(shape=_shape(scale), tooltip=tooltip),
        dot.encode(shape=_shape(scale), tooltip=tooltip),
    ]
    return Panel(title, _layered(*layers), rows, 300, f"{title}: {y} by {x}")


def _haloed(
    base: alt.Chart, words: str, *, align: str, baseline: str = "middle", dx: int = 0, dy: int = 0, **at: Any
) -> list[alt.Chart]:
    """Words that stay readable over lines: once as a thick outline in the paper's colour, once in ink."""
    place = {"align": align, "baseline": baseline, "dx": dx, "dy": dy}
    outline = base.mark_text(stroke="var(--paper)", strokeWidth=4, strokeJoin="round", **place)
    return [mark.encode(text=alt.value(words), **at) for mark in (outline, base.mark_text(color="var(--ink)", **place))]


def _layered(*charts: alt.Chart | alt.LayerChart) -> alt.LayerChart:
    """Charts on top of each other; those without data of their own take the panel's rows."""
    return alt.LayerChart(data=alt.NamedData("rows"), layer=list(charts))


def _data(rows: Sequence[Point]) -> alt.InlineData:
    return alt.InlineData(values=list(rows))


def _series(rows: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(row["series"] for row in rows))


def _colour(scale: Temperatures) -> alt.Color:
    return alt.Color("series:N", title=None, scale=alt.Scale(domain=scale.labels(), range=scale.colours()))


def _dash(scale: Temperatures) -> alt.StrokeDash:
    return alt.StrokeDash("series:N", title=None, scale=alt.Scale(domain=scale.labels(), range=scale.dashes()))


def _shape(scale: Temperatures) -> alt.Shape:
    return alt.Shape("series:N", title=None, scale=alt.Scale(domain=scale.labels(), range=scale.shapes()))
