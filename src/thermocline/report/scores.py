"""Panels about trust: detectors, their scores, confidence, collapse, and which classes are taken for each other."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from thermocline.report import marks
from thermocline.report.curves import Point
from thermocline.report.theme import Temperatures


def dots(title: str, rows: Sequence[Point], scale: Temperatures, *, columns: int, order: Sequence[str]) -> marks.Panel:
    """AUROC of each detector, one dot a temperature; few enough to be read are also written. Chance is marked."""
    count = len({row["detector"] for row in rows})
    roomy = count <= 4
    lowest = min([0.45, *(row["low"] - (0.12 if roomy else 0.03) for row in rows)])
    look = {"scale": alt.Scale(domain=[lowest, 1.0], nice=False, zero=False), "axis": alt.Axis(format="~g", tickCount=5)}
    x, low = alt.X("value:Q", title="AUROC", **look), alt.X("low:Q", title="AUROC", **look)
    offset = alt.YOffset("series:N", scale=alt.Scale(paddingInner=0.2, paddingOuter=0.6 if roomy else 0.3), sort=scale.labels())
    # A line between detectors, so that the eye finds the name of a dot far to the right.
    y = alt.Y("detector:N", title=None, sort=list(order), axis=alt.Axis(grid=not roomy, tickBand="extent"))
    base = alt.Chart().encode(y=y, yOffset=offset, color=marks.colour(scale))
    tooltip = [
        marks.TEMPERATURE,
        alt.Tooltip("detector:N"),
        alt.Tooltip("value:Q", title="AUROC", format=".3f"),
        alt.Tooltip("low:Q", title="from", format=".3f"),
        alt.Tooltip("high:Q", title="to", format=".3f"),
        alt.Tooltip("fpr:Q", title="FPR at 95 % TPR", format=".3f"),
    ]
    spread = base.mark_rule(strokeWidth=2 if roomy else 1.5).encode(x=low, x2="high:Q")
    dot = base.mark_point(filled=True, size=110 if roomy else 45, opacity=1).encode(
        x=x, shape=marks.shape(scale), tooltip=tooltip
    )
    words = base.mark_text(align="right", dx=-10).encode(
        x=low, text=alt.Text("value:Q", format=".3f"), color=alt.value("var(--ink)")
    )
    chance = alt.Chart(marks.data([{"value": 0.5}])).mark_rule(color="var(--muted)", strokeDash=[3, 3]).encode(x=x)
    height = max(90, count * (24 * columns + 20 if roomy else max(20, 9 * columns + 6)))
    layers = (chance, spread, dot, words) if roomy else (chance, spread, dot)
    return marks.Panel(title, marks.layered(*layers), rows, height, f"AUROC of each detector on {title}", zoom=False)


def reliability(title: str, rows: Sequence[Point], scale: Temperatures) -> marks.Panel:
    """Accuracy by confidence, one line a temperature, each point as large as its share of the samples; the diagonal."""
    x, y = marks.share("confidence"), marks.share("accuracy")
    base = alt.Chart().encode(x=x.x(), y=y.y(), color=marks.colour(scale))
    line = base.mark_line(strokeWidth=2).encode(strokeDash=marks.dash(scale))
    tooltip = [
        marks.TEMPERATURE,
        alt.Tooltip("x:Q", title="confidence", format=".1%"),
        alt.Tooltip("value:Q", title="accuracy", format=".1%"),
        alt.Tooltip("count:Q", title="images", format=",d"),
    ]
    size = alt.Size("share:Q", scale=alt.Scale(domain=[0, 1], range=[18, 420]), legend=None)
    point = base.mark_point(**marks.POINT)
    layers = (marks.diagonal(x, y), line, point.encode(shape=marks.shape(scale), size=size, tooltip=tooltip))
    return marks.Panel(title, marks.layered(*layers), rows, 300, f"Accuracy by confidence, {title[0].lower()}{title[1:]}")


def histogram(title: str, rows: Sequence[Point], hue: str) -> marks.Panel:
    """The scores of test images and of another set, as shares of each; only the detector chosen on the page."""
    base = alt.Chart().transform_filter(f"datum.detector === {marks.SHOWN}")
    x = alt.X(
        "x:Q",
        axis=alt.Axis(title="score (higher: taken for its own)", tickCount=4, format=".3~g"),
        scale=alt.Scale(zero=False, nice=False),
    )
    y = alt.Y("value:Q", axis=alt.Axis(title="share of images", format="~%", tickCount=4), stack=None)
    tooltip = [
        alt.Tooltip("side:N", title="images"), alt.Tooltip("detector:N"), alt.Tooltip("x:Q", title="from", format=".4~g"),
        alt.Tooltip("x2:Q", title="to", format=".4~g"), alt.Tooltip("value:Q", title="share", format=".1%"),
    ]  # fmt: skip
    bars = [
        base.transform_filter(f"datum.side === '{side}'")
        .mark_rect(opacity=0.5, color=fill)
        .encode(x=x, x2="x2:Q", y=y, y2=alt.datum(0), tooltip=tooltip)
        for side, fill in (("other data", "var(--muted)"), ("test images", hue))
    ]
    return marks.Panel(title, marks.layered(*bars), rows, 250, f"Histogram of scores, {title}", zoom=False)


def roc(title: str, rows: Sequence[Point], scale: Temperatures) -> marks.Panel:
    """The share of test images kept, by the share of other data let through; chance is the diagonal."""
    x, y = marks.share("other data let through"), marks.share("test images kept")
    base = alt.Chart().transform_filter(f"datum.detector === {marks.SHOWN}").encode(x=x.x(), y=y.y(), color=marks.colour(scale))
    tooltip = [
        marks.TEMPERATURE, alt.Tooltip("detector:N"),
        alt.Tooltip("x:Q", title=x.title, format=".1%"), alt.Tooltip("value:Q", title=y.title, format=".1%"),
    ]  # fmt: skip
    line = base.mark_line(strokeWidth=2).encode(strokeDash=marks.dash(scale))
    some = base.transform_filter("indexof([0.05, 0.2, 0.4, 0.6, 0.8], datum.x) >= 0")
    point = some.mark_point(size=60, **marks.POINT).encode(shape=marks.shape(scale))
    hover = base.mark_point(size=60, opacity=0).encode(tooltip=tooltip)
    return marks.Panel(title, marks.layered(marks.diagonal(x, y), line, point, hover), rows, 250, f"ROC, {title}")


def collapse(title: str, rows: Sequence[Point], scale: Temperatures, order: Sequence[str]) -> marks.Panel:
    """Each part of neural collapse on a log axis, one mark a temperature: further left is closer to collapse."""
    axis = marks.decades("distance from collapse", marks.ends(rows))
    y = alt.Y("part:N", title=None, sort=list(order), axis=alt.Axis(grid=True, tickBand="extent", labelLimit=220))
    look = {"scale": alt.Scale(**axis.scale), "axis": alt.Axis(title=axis.title, format=axis.format, **(axis.ticks or {}))}
    offset = alt.YOffset("series:N", scale=alt.Scale(paddingInner=0.2, paddingOuter=0.3), sort=scale.labels())
    base = alt.Chart().encode(y=y, yOffset=offset, color=marks.colour(scale))
    tooltip = [
        marks.TEMPERATURE, alt.Tooltip("part:N"),
        alt.Tooltip("value:Q", title="value", format=".3~g"),
    ]  # fmt: skip
    spread = base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q", **look), x2="high:Q")
    dot = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=alt.X("value:Q", **look), shape=marks.shape(scale), tooltip=tooltip
    )
    height = len(order) * max(26, 10 * len({row["series"] for row in rows}) + 8)
    return marks.Panel(title, marks.layered(spread, dot), rows, height, title, zoom=False)


def confusion(title: str, rows: Sequence[Point], hue: str) -> marks.Panel:
    """The pairs most often confused, as bars; the nearer two class means, the fuller the bar."""
    y = alt.Y("pair:N", title=None, sort="-x", axis=alt.Axis(labelLimit=200))
    x = alt.X("value:Q", axis=alt.Axis(title="share of the class", format="~%", tickCount=4))
    strength = alt.Opacity("cosine:Q", scale=alt.Scale(domain=[-0.2, 1], range=[0.25, 1], clamp=True), legend=None)
    tooltip = [
        alt.Tooltip("label:N", title="is"), alt.Tooltip("predicted:N", title="taken for"),
        alt.Tooltip("value:Q", title="share of the class", format=".1%"),
        alt.Tooltip("cosine:Q", title="cosine of the class means", format=".2f"),
    ]  # fmt: skip
    bars = alt.Chart().mark_bar(color=hue).encode(x=x, y=y, opacity=strength, tooltip=tooltip)
    return marks.Panel(title, marks.layered(bars), rows, max(60, 19 * len(rows)), f"Most confused classes, {title}", zoom=False)
