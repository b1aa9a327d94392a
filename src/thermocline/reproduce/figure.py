"""The figure of a study as one SVG, from a Vega-Lite description: curves where it has some, else numbers by arm."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from thermocline.experiments._claims import Curve
from thermocline.record import parameters
from thermocline.report import theme
from thermocline.reproduce import quantities
from thermocline.reproduce.study import Study
from thermocline.reproduce.verdict import Finding
from thermocline.spec import InputError

COLOURS = ("#1f52b8", "#d6650a", "#7042b2", "#2a8a5c", "#b0308c", "#5c6570")
INK, MUTED, GRID = (theme.INK["light"][name] for name in ("ink", "muted", "grid"))
PANELS, COLUMNS = 12, 3
NAMES = {"depth": "layer", "step": "training step"}


def svg(study: Study) -> str | None:
    """The figure, or None where there is nothing to draw."""
    panels = list(_curves(study)) or list(_dots(study))
    if not panels:
        return None
    try:
        import vl_convert
    except ImportError:
        raise InputError("a figure needs vl-convert, which is not installed: pip install '.[report]' in the clone") from None
    font = theme.FILE_FONT
    colours = {"labelColor": MUTED, "titleColor": MUTED, "gridColor": GRID, "domainColor": GRID, "tickColor": GRID}
    axis = {**colours, "labelFont": font, "titleFont": font, "titleFontWeight": "normal"}
    title = {"font": font, "fontSize": 12, "anchor": "start", "color": INK, "limit": 300}
    legend = {"labelFont": font, "labelColor": INK, "title": None, "orient": "bottom", "labelLimit": 300, "symbolOpacity": 1}
    config = {"background": "white", "view": {"stroke": None}, "axis": axis, "title": title, "legend": legend}
    whole = {"concat": panels[:PANELS], "columns": COLUMNS, "spacing": 32, "config": config}
    return vl_convert.vegalite_to_svg(json.dumps(whole, sort_keys=True))


def caption(study: Study) -> str:
    """What the marks of its figure are."""
    if any(_curves(study)):
        return "Means over seeds, with their range."
    printed = "; a diamond is what was published" if any(finding.claim.published for finding in study.findings) else ""
    return f"Points are seeds, bars their means and 95 % intervals{printed}."


def _curves(study: Study) -> Iterator[dict[str, Any]]:
    """A panel for each curve that has rows: the mean over seeds as a line, their range as a band."""
    for curve in study.experiment.curves:
        points = [point for arm in curve.arms for point in _line(study, curve, arm)]
        if len({point["x"] for point in points}) < 2:
            continue
        positive = curve.log and all(point["low"] > 0 for point in points)
        spaced = curve.x not in NAMES and all(point["x"] > 0 for point in points)
        label = f"format(datum.value, '{'~g' if spaced else '~s'}')"
        x = {"field": "x", "type": "quantitative", "title": NAMES.get(curve.x, curve.x),
             "scale": {"type": "log" if spaced else "sqrt" if curve.x == "step" else "linear", "nice": False},
             "axis": {"grid": False, "labelExpr": label, "tickCount": 6}}  # fmt: skip
        scale = {"type": "log" if positive else "linear", "zero": False}
        y = {"field": "value", "type": "quantitative", "title": curve.quantity.measure.replace("_", " "), "scale": scale}
        colour = _colour([arm.label for arm in curve.arms])
        layers = [
            {"mark": {"type": "area", "opacity": 0.16}, "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}}},
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y}},
            {"mark": {"type": "point", "filled": True, "size": 30, "opacity": 1}, "encoding": {"y": y}},
        ]
        yield _panel(curve.title, points, {"x": x, "color": colour}, layers)


def _line(study: Study, curve: Curve, arm: Any) -> Iterator[dict[str, Any]]:
    found: dict[float, list[float]] = {}
    needs = quantities.needs_learning(curve.quantity)  # then those that verdicts leave out are left out here too
    for source in study.found.sources:
        if not quantities.belongs(source, arm) or (needs and not quantities.learned(source)):
            continue
        rows = quantities.select(source, curve.quantity, arm.where)
        if curve.x == "depth":
            rows = [row for row in rows if row["step"] == rows[-1]["step"]]
        mine: dict[float, list[float]] = {}  # of one run: at one x there may be several layers
        for row in rows:
            x = float(row[curve.x] if curve.x in NAMES else parameters(row["params"]).get(curve.x, math.nan))
            if math.isfinite(x) and math.isfinite(row["value"]):
                mine.setdefault(x, []).append(row["value"])
        for x, values in mine.items():
            found.setdefault(x, []).append(statistics.fmean(values))
    for x, values in sorted(found.items()):
        ends = {"value": statistics.fmean(values), "low": min(values), "high": max(values)}
        yield {"x": x, "arm": arm.label, **{name: _rounded(value) for name, value in ends.items()}}


def _dots(study: Study) -> Iterator[dict[str, Any]]:
    """A panel for each quantity: every seed a dot, the mean with its interval, and the published number as a diamond."""
    by_quantity: dict[str, list[Finding]] = {}
    for finding in study.findings:
        if any(finding.values):
            by_quantity.setdefault(finding.claim.quantity.name, []).append(finding)
    for name, findings in by_quantity.items():
        points = list({json.dumps(point): point for finding in findings for point in _marks(finding)}.values())
        order = list(dict.fromkeys(point["arm"] for point in points))
        x = {
            "field": "arm",
            "type": "nominal",
            "title": None,
            "sort": order,
            "axis": {"labelAngle": 0 if len(order) < 4 else -40},
        }
        scale = {"type": "log", "nice": False} if findings[0].claim.quantity.factors else {}
        y = {"field": "value", "type": "quantitative", "title": None, "scale": {"zero": False, "padding": 8, **scale}}
        y |= {"axis": {"tickCount": 4}} if scale else {}
        layers = [
            _mark("rule", "mean", {"strokeWidth": 2}, {"y": {**y, "field": "low"}, "y2": {"field": "high"}}),
            _mark("tick", "mean", {"thickness": 2, "width": 18}, {"y": y}),
            _mark("point", "seed", {"filled": True, "size": 36, "opacity": 0.8}, {"y": y}),
            _mark("point", "published", {"shape": "diamond", "size": 90, "color": INK}, {"y": y, "color": {"value": INK}}),
        ]
        yield _panel(name, points, {"x": x, "color": {**_colour(order), "legend": None}}, layers)


def _marks(finding: Finding) -> Iterator[dict[str, Any]]:
    for place, (arm, values) in enumerate(zip(finding.claim.arms, finding.values)):
        found = finding.arm(place)
        if found is None:
            continue
        mean = {"value": found.mean, "low": found.low, "high": found.high}
        yield {"arm": arm.label, "kind": "mean", **{name: _rounded(value) for name, value in mean.items()}}
        for seed, value in values.items():
            yield {"arm": arm.label, "kind": "seed", "seed": seed, "value": _rounded(value)}
        if place < len(finding.claim.published):
            yield {"arm": arm.label, "kind": "published", "value": finding.claim.published[place]}


def _mark(kind: str, which: str, look: dict[str, Any], encoding: dict[str, Any]) -> dict[str, Any]:
    return {"mark": {"type": kind, **look}, "encoding": encoding, "transform": [{"filter": f"datum.kind === '{which}'"}]}


def _panel(title: str, points: Sequence[dict[str, Any]], encoding: dict[str, Any], layers: list[Any]) -> dict[str, Any]:
    return {
        "title": title,
        "width": 260,
        "height": 190,
        "data": {"values": list(points)},
        "encoding": encoding,
        "layer": layers,
    }


def _colour(labels: Sequence[str]) -> dict[str, Any]:
    colours = [COLOURS[place % len(COLOURS)] for place in range(len(labels))]
    return {"field": "arm", "type": "nominal", "scale": {"domain": list(labels), "range": colours}}


def _rounded(value: float) -> float:
    """Enough digits to draw, so that the last bit of a sum cannot move a line."""
    return float(f"{value:.6g}")
