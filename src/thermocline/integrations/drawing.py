"""A diagnosis of attention as one page, or its figure alone: entropy, largest weight and spread of logits by length."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from thermocline.integrations import reading
from thermocline.integrations.reading import Head
from thermocline.record import Loaded
from thermocline.report import marks, page, theme, view
from thermocline.report.figure import Figure

_MOST = 400  # heads drawn; of more, as many spread evenly
_DASHES = ([1, 0], [6, 3], [2, 2])
SENTENCE = (
    "Thin lines are heads, thick ones the means of layers, from the first (blue) to the last (orange). Dotted: attention spread"
    " over everything it sees. Dashed, under the largest weight: what no weight can exceed given the spread of logits, where"
    " that says more than 1."
)


def save(run: Loaded, path: str | Path) -> Path:
    """Write it as its name ends: .html a page, .svg, .png or .pdf the figure."""
    page.write(Path(path), _WRITERS[page.known_ending(path, _WRITERS)](run))
    return Path(path)


def _html(run: Loaded) -> bytes:
    artist, found = page.drawing(), reading.heads(run)
    scale = _scale(found)
    figure = _figure(run, found, scale)
    charts = {chart: artist.to_spec(panel) for chart, panel in figure.charts(1).items()}
    shown = list(zip(charts, figure.panels))
    tables = [
        ("By length, means over all heads", *reading.table(found)),
        ("Find the maximum", *reading.right(run)),
        ("Heads that disperse fastest", *reading.steepest(found)),
    ]
    context = {
        "title": f"Attention of {run.spec.net.name}",
        "subtitle": f"{len(scale.values)} layers, {len(found)} heads, on {run.spec.data.name}: {reading.evidence(run)}",
        "sentence": reading.sentence(found),
        "caption": SENTENCE,
        "panels": [{"id": id_, "title": one.title, "height": one.height, "description": one.description} for id_, one in shown],
        "tables": [table for table in tables if table[2]],
        "glossary": view.glossary([run]),
        **page.colours(scale),
    }
    return page.compose("attention.html.jinja", context, charts, artist.bundle()).encode()


def _drawing(run: Loaded, kind: str) -> bytes:
    found = reading.heads(run)
    scale = _scale(found)
    return page.drawing().FILES[kind](_figure(run, found, scale), scale)


_WRITERS: dict[str, Callable[[Loaded], bytes]] = {
    ".html": _html,
    **{f".{kind}": functools.partial(_drawing, kind=kind) for kind in ("svg", "png", "pdf")},
}


def _scale(found: Iterable[Head]) -> theme.Temperatures:
    """Layers in the order of depth take the colours that temperatures have elsewhere."""
    return theme.temperatures(float(head.depth) for head in found)


def _figure(run: Loaded, found: Sequence[Head], scale: theme.Temperatures) -> Figure:
    at = reading.lengths(found)
    entropy, keys = "attention_entropy", {n: reading.mean(found, "attention_keys", n) for n in at}
    full = {n: reading.most(found, n) for n in at}
    panels = [
        _panel("Entropy, nats", found, entropy, scale, limit=full),
        _panel("Effective items, exp(H)", found, entropy, scale, limit={n: math.exp(h) for n, h in full.items()},
               value=math.exp, log=True),
        _panel("Largest weight", found, "attention_largest", scale, limit={n: 1 / seen for n, seen in keys.items()},
               bound="attention_upper", log=True),
        _panel("Spread of logits, delta", found, "attention_spread", scale),
    ]  # fmt: skip
    if right := reading.accuracies(run):
        panels.append(_accuracy(right))
    return Figure("attention", "Attention by length", SENTENCE, tuple(found[0].curves), panels, columns=2)


def _panel(
    title: str, found: Sequence[Head], measure: str, scale: theme.Temperatures, *, limit: dict[int, float] | None = None,
    bound: str | None = None, value: Callable[[float], float] = float, log: bool = False,
) -> marks.Panel:  # fmt: skip
    """Thin lines for heads, thick ones for the means of layers, and what full dispersion would be."""
    drawn = found[:: -(-len(found) // _MOST)]
    rows = [_point(head, "head", n, value(h)) for head in drawn for n, h in head.curves[measure].items()]
    for kind, name in (("mean", measure), ("bound", bound)):
        for depth in scale.values if name else ():
            layer = [head for head in found if head.depth == depth]
            rows += [_point(layer[0], kind, n, value(reading.mean(layer, str(name), n))) for n in reading.lengths(layer)]
    across = _lengths("tokens n", reading.lengths(found))
    up = _values([*(row["value"] for row in rows), *(limit or {}).values()], log)
    colour = alt.Color(
        "depth:O", title="layer", scale=alt.Scale(domain=list(scale.values), range=scale.colours()),
        legend=alt.Legend(values=_some(scale.values), symbolType="stroke", symbolStrokeWidth=3),
    )  # fmt: skip
    base = alt.Chart().encode(x=across, y=up, color=colour, detail="head:N", tooltip=_tooltip(title))
    of = {kind: base.transform_filter(f"datum.kind === '{kind}'") for kind in ("head", "mean", "bound")}
    layers: list[Any] = [
        of["head"].mark_line(strokeWidth=0.8, opacity=0.45, point={"size": 8, "opacity": 0.45}),
        of["mean"].mark_line(strokeWidth=2.5),
    ]
    if bound:
        layers.append(of["bound"].mark_line(strokeWidth=1.2, strokeDash=[6, 3]))
    if limit:
        ends = alt.Chart(marks.data([{"x": n, "value": at} for n, at in limit.items()])).encode(x=across, y=up)
        layers.append(ends.mark_line(color="var(--muted)", strokeDash=[2, 3], strokeWidth=1.5))
    return marks.Panel(title, marks.layered(*layers), rows, description=f"{title}, by tokens")


def _accuracy(right: dict[str, dict[int, float]]) -> marks.Panel:
    """How often the maximum was named, a line a rule."""
    rows = [{"rule": rule, "x": n, "value": share} for rule, curve in right.items() for n, share in curve.items()]
    across = _lengths("numbers in the list", sorted({row["x"] for row in rows}))
    up = alt.Y("value:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".0%"))
    layers: list[Any] = []
    for place, rule in enumerate(right):
        base = alt.Chart().encode(x=across, y=up, tooltip=[alt.Tooltip("rule:N"), alt.Tooltip("value:Q", format=".1%")])
        look = {"color": "var(--ink)", "strokeDash": _DASHES[place % len(_DASHES)]}
        layers.append(
            base.transform_filter(f"datum.rule === '{rule}'").mark_line(strokeWidth=2, point={"color": "var(--ink)"}, **look)
        )
        # Their names in a column: at the ends of lines that end together they would lie on top of each other.
        key = alt.Chart(marks.data([{}])).encode(x=alt.value(34), y=alt.value(150 + 18 * place))
        dash = alt.Chart(marks.data([{}])).encode(x=alt.value(4), x2=alt.value(28), y=alt.value(150 + 18 * place))
        layers += [dash.mark_rule(strokeWidth=2, **look), key.mark_text(align="left", color="var(--ink)", text=rule)]
    words = "Accuracy by numbers in the list, a line a rule"
    return marks.Panel("Maximum named", marks.layered(*layers), rows, description=words)


def _point(head: Head, kind: str, n: int, value: float) -> dict[str, Any]:
    name = {"head": str(head.number), "mean": "mean of the layer", "bound": "bound, mean of the layer"}[kind]
    return {"kind": kind, "depth": float(head.depth), "layer": head.layer, "head": name, "x": n, "value": float(f"{value:.4g}")}


def _lengths(title: str, at: Sequence[int]) -> alt.X:
    axis = alt.Axis(title=title, format=",d", values=_some(at, 8), labelOverlap="greedy")
    return alt.X("x:Q", axis=axis, scale=alt.Scale(type="log", base=2, nice=False, padding=8))


def _values(values: Sequence[float], log: bool) -> alt.Y:
    """An axis from 0, or of whole decades."""
    if not log:
        return alt.Y("value:Q", title=None, scale=alt.Scale(zero=True, nice=True), axis=alt.Axis(tickCount=6))
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    ticks = [10.0**k for k in range(low, max(high, low + 1) + 1)]
    return alt.Y("value:Q", title=None, axis=alt.Axis(values=ticks, format="~g"),
                 scale=alt.Scale(type="log", domain=[ticks[0], ticks[-1]], nice=False))  # fmt: skip


def _some(values: Sequence[Any], most: int = 6) -> list[Any]:
    """At most so many of them, spread evenly, both ends among them.

    >>> _some(range(1, 33), 3)
    [1, 17, 32]
    """
    last = len(values) - 1
    return [values[i] for i in sorted({round(last * j / (most - 1)) for j in range(most)})]


def _tooltip(title: str) -> list[alt.Tooltip]:
    words = {"depth:Q": "layer", "layer:N": "name", "head:N": "head", "x:Q": "tokens"}
    return [*(alt.Tooltip(key, title=name) for key, name in words.items()), alt.Tooltip("value:Q", title=title, format=".4~g")]
