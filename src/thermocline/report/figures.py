"""Facts and curves -> figures: each a title, a sentence and panels drawn by Altair."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt
import vl_convert

from thermocline.record import Loaded
from thermocline.report import marks, theme
from thermocline.report.curves import Point, curve, reliability, spectra
from thermocline.report.facts import HEADLINE, Case, parameters, points, rank_rule
from thermocline.report.marks import Panel
from thermocline.report.theme import Temperatures


@dataclass(frozen=True)
class Figure:
    """What one figure shows, the measures behind it, and its panels; `missing` names what could not be drawn."""

    key: str
    title: str
    sentence: str
    measures: tuple[str, ...]
    panels: list[Panel] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    columns: int = 3


def draw(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> list[Figure]:
    """Every figure of a case, in the order of the argument."""
    makers: list[Callable[..., Figure]] = [
        _probes, _deficit, _layer_ranks, _spectra, _rank_training, _norms, _accuracy, _detection, _reliability,
    ]  # fmt: skip
    return [make(case, runs, scale) for make in makers]


def to_svg(figure: Figure, scale: Temperatures) -> str:
    """A figure as one SVG with its legend, in the light colours."""
    return vl_convert.vegalite_to_svg(_whole(figure, scale), vl_version=_vegalite())


def to_png(figure: Figure, scale: Temperatures) -> bytes:
    """The same as pixels, two for each of the page's."""
    return vl_convert.vegalite_to_png(_whole(figure, scale), vl_version=_vegalite(), scale=2)


def _whole(figure: Figure, scale: Temperatures) -> str:
    panels = [{**_spec(panel), "title": panel.title, "width": 300} for panel in figure.panels]
    whole = {
        "datasets": {name: rows for panel in panels for name, rows in panel.pop("datasets", {}).items()},
        "concat": panels,
        "columns": figure.columns,
        "spacing": 36,
        "resolve": {"scale": {"color": "shared", "shape": "shared", "strokeDash": "shared"}},
        "config": theme.config(font=theme.FILE_FONT, legend=True),
    }
    return scale.written_out(json.dumps(whole))


def to_spec(panel: Panel) -> dict[str, Any]:
    """A panel as Vega-Lite for the page: as wide as its container, without what the page says itself."""
    return {**_spec(panel), "width": "container", "autosize": {"type": "fit-x", "contains": "padding", "resize": True}}


def _spec(panel: Panel) -> dict[str, Any]:
    spec = {name: part for name, part in panel.chart.to_dict().items() if name not in ("$schema", "config")}
    return {**spec, "data": {"values": panel.rows}, "height": panel.height}


def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_vegalite())


def _vegalite() -> str:
    """The Vega-Lite that Altair writes for, as vl-convert spells it: v6.4.1 -> 6.4."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def _figure(key: str, title: str, sentence: str, measures: Sequence[str], panels: Sequence[Panel | str], **more: int) -> Figure:
    drawn = [panel for panel in panels if isinstance(panel, Panel)]
    return Figure(key, title, sentence, tuple(measures), drawn, [name for name in panels if isinstance(name, str)], **more)


def _probes(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    splits = dict.fromkeys(row["split"] for run in _runs(case, runs) for row in points(run, "probe_accuracy"))
    panels: list[Panel | str] = []
    for split in sorted(splits, key=lambda name: name != "test"):
        rows = curve(case, runs, "probe_accuracy", x="depth", last=True, where=lambda row, split=split: row["split"] == split)
        title = f"{case.groups[0].members[0].data} (in distribution)" if split == "test" else split.rsplit("/", 1)[0] + " (OOD)"
        extra = marks.depth_marks(case, rows, scale) if split == "test" else [marks.best_layer(rows, scale)]
        panels.append(marks.curves(title, rows, scale, x=marks.LAYER, y=marks.share("probe accuracy"), extra=extra))
    sentence = (
        "How well a linear read-out of each layer does on held-out images. A drop line marks the effective depth: the first"
        " layer as good as the last, within its threshold. On the other sets a ring marks the best layer; what is lost from"
        " there to the last layer is the OOD drop."
    )
    measures = ("probe_accuracy", "effective_depth", "ood_drop")
    return _figure("probes", "Probe accuracy by layer", sentence, measures, panels or ["probe_accuracy"])


def _deficit(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    logits = _logits(spectra(case, runs, most=160))
    sweep = curve(
        case, runs, "solution_rank", x="params", last=True, where=lambda row: (rank_rule(row) or "")[:1] == ("features",)
    )
    for row in sweep:
        row["x"] = float(parameters(row["x"])["rtol"])
    classes = case.groups[0].first(lambda one: one.classes)
    cut = math.sqrt(HEADLINE[1])  # a covariance's eigenvalues are the squares of the features' singular values
    full = [marks.horizontal(classes - 1, f"classes - 1 = {classes - 1}", above=True)] if classes else []
    panels: list[Panel | str] = ["singular_value", "solution_rank at several thresholds"]
    if logits:
        x, y = marks.INDEX, _ratio(logits, cut)
        extra = [marks.horizontal(cut, f"threshold {cut:.3g}"), marks.last_above(logits, cut, scale, x=x, y=y)]
        panels[0] = marks.curves("Singular values of the logits", logits, scale, x=x, y=y, extra=extra, dots=False)
    if sweep:
        x = marks.decades("threshold, relative to the largest", (row["x"] for row in sweep), reverse=True, padding=12)
        y = marks.count("rank", most=classes and 1.15 * max(classes, *(row["high"] for row in sweep)))
        panels[1] = marks.curves("Rank at other thresholds", sweep, scale, x=x, y=y, extra=full)
    sentence = (
        "How many directions the logits use. First: singular values relative to the largest; the rank counts those above the"
        f" line ({HEADLINE[1]:g} on covariance eigenvalues, {cut:.3g} here), down to the mark on each curve. Then: the count"
        " as that line moves; a comparison is sound where the order of the curves does not hang on the threshold."
    )
    return _figure("deficit", "The rank deficit", sentence, ("solution_rank", "singular_value"), panels, columns=2)


def _layer_ranks(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    panels: list[Panel | str] = []
    names = {"rank": "Numerical rank", "entropy_rank": "Entropy rank", "stable_rank": "Stable rank"}
    for measure, title in names.items():
        rows = curve(case, runs, measure, x="depth", last=True, where=lambda row: rank_rule(row) in (None, HEADLINE))
        panels.append(marks.curves(title, rows, scale, x=marks.LAYER, y=marks.count("rank")) if rows else measure)
    sentence = (
        "How many directions each layer's features use at the end of training, counted three ways: above a threshold, by the"
        " entropy of the spectrum, and by its energy relative to the first direction."
    )
    return _figure("layer-ranks", "Rank by layer", sentence, tuple(names), panels)


def _spectra(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    rows = spectra(case, runs, most=48)
    panels: list[Panel | str] = []
    for group in case.groups:
        if some := [row for row in rows if row["series"] == group.label]:
            longest = max(row["x"] for row in rows)
            panels.append(marks.fan(group.label, some, scale.colour(group.temperature), y=_ratio(rows), longest=longest))
    sentence = (
        "Singular values of each layer's features relative to the first, from the first layer (faint) to the logits (strong)."
        " A curve that falls early is a layer that uses few directions. First seed of each temperature; values below 1e-6"
        " are not drawn."
    )
    return _figure("spectra", "Spectra of the layers", sentence, ("singular_value",), panels or ["singular_value"])


def _rank_training(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    layers = case.groups[0].first(lambda one: one.layers)
    rank = curve(case, runs, "solution_rank", x="step", where=lambda row: rank_rule(row) == HEADLINE)
    entropy = curve(case, runs, "entropy_rank", x="step", where=lambda row: row["depth"] == layers)
    panels = [
        marks.curves(title, rows, scale, x=marks.STEP, y=marks.count("rank")) if rows else measure
        for title, rows, measure in (("Numerical rank", rank, "solution_rank"), ("Entropy rank", entropy, "entropy_rank"))
    ]
    sentence = "The rank of the logits as training goes on: when the deficit arises, and whether training longer fills it."
    return _figure(
        "rank-training", "Rank of the logits over training", sentence, ("solution_rank", "entropy_rank"), panels, columns=2
    )


def _norms(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    panels: list[Panel | str] = []
    for measure, title in (("logit_norm", "Logit norm"), ("tempered_logit_norm", "Logit norm divided by T")):
        rows = [row for row in curve(case, runs, measure, x="step") if row["low"] > 0]
        if rows:
            y = marks.decades("norm", (row[end] for row in rows for end in ("low", "high")))
            panels.append(marks.curves(title, rows, scale, x=marks.STEP, y=y))
        else:
            panels.append(measure)
    sentence = (
        "What the softmax sees is the norm divided by T. In theory it starts near zero at high temperature, and the network"
        " has to grow the raw norm before the classes separate."
    )
    measures = ("logit_norm", "tempered_logit_norm")
    return _figure("norms", "Logit norm over training", sentence, measures, panels, columns=2)


def _accuracy(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    panels: list[Panel | str] = []
    for split, title in (("train", "Training images"), ("test", "Test images")):
        rows = curve(case, runs, "accuracy", x="step", where=lambda row, split=split: row["split"] == split)
        panel = marks.curves(title, rows, scale, x=marks.STEP, y=marks.share("accuracy"))
        panels.append(panel if rows else f"accuracy ({split})")
    sentence = "Whether the networks being compared were trained to the same end, and what temperature costs in accuracy."
    return _figure("accuracy", "Accuracy over training", sentence, ("accuracy",), panels, columns=2)


def _detection(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    names = dict.fromkeys(name for group in case.groups for one in group.members for name, _ in one.auroc)
    found = {name: _detectors(case, name) for name in names}
    values: dict[str, list[float]] = {}
    for row in (row for rows in found.values() for row in rows):
        values.setdefault(row["detector"], []).append(row["value"])
    order = sorted(values, key=lambda name: -statistics.fmean(values[name]))
    panels = [marks.dots(f"{name} (OOD)", rows, scale, columns=len(case.groups), order=order) for name, rows in found.items()]
    sentence = (
        "How well each score tells the data trained on from another set: 1 is perfect, 0.5 is chance. NECO is the detector"
        " that high temperature is said to help; the others are there for comparison, the best on average first. Bars: with"
        " one seed the 95 % interval over images, where it was recorded; with more, that over seeds (two: their range)."
    )
    measures = ("auroc", "auroc_interval", "fpr")
    return _figure("detection", "Detecting other data", sentence, measures, panels or ["auroc"], columns=2)


def _detectors(case: Case, name: str) -> list[Point]:
    found = []
    for group in case.groups:
        for detector in dict.fromkeys(key for one in group.members for where, key in one.auroc if where == name):
            key = (name, detector)
            value = group.estimate(lambda one, key=key: one.auroc.get(key))
            false_alarms = group.estimate(lambda one, key=key: one.fpr.get(key))
            if value:
                low, high = value.low, value.high
                if value.count == 1:
                    low, high = group.first(lambda one, key=key: one.auroc_interval.get(key)) or (low, high)
                numbers = {"value": value.mean, "low": low, "high": high, "fpr": false_alarms and false_alarms.mean}
                rounded = {column: number and round(number, 4) for column, number in numbers.items()}
                found.append({"series": group.label, "detector": detector, **rounded})
    return found


def _reliability(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    panels: list[Panel | str] = []
    for at, title in (("training", "At the training temperature"), ("fitted", "At the fitted temperature")):
        rows = reliability(case, runs, at)
        panels.append(marks.reliability(title, rows, scale) if rows else f"reliability ({at})")
    if not any(isinstance(panel, Panel) for panel in panels):
        panels = ["reliability"]
    sentence = (
        "Whether probabilities mean what they say: of the test images predicted with about the same confidence, the share"
        " that is right. Below the diagonal a net is surer than it is right. The larger a point, the more images it stands"
        " for. Then: the same with the one temperature that makes the labels likeliest."
    )
    measures = ("reliability", "ece", "brier", "fitted_temperature")
    return _figure("reliability", "Confidence against accuracy", sentence, measures, panels, columns=2)


def _ratio(rows: Sequence[Point], *more: float) -> marks.Axis:
    return marks.decades("relative to the first", [*(row["value"] for row in rows), *more])


def _logits(rows: Sequence[Point]) -> list[Point]:
    last = max((row["depth"] for row in rows), default=0)
    return [{**row, "low": row["value"], "high": row["value"]} for row in rows if row["depth"] == last]


def _runs(case: Case, runs: Mapping[str, Loaded]) -> list[Loaded]:
    return [runs[member.key] for group in case.groups for member in group.members]
