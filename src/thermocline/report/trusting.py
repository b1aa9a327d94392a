"""Figures about trust: detection and its scores, confidence, collapse, confusion, and what is traded for what."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from thermocline.record import Loaded
from thermocline.report import marks, scores
from thermocline.report.curves import Point, confused, curve, histograms, reliability, rocs
from thermocline.report.facts import Case, detected, parameters
from thermocline.report.figure import Figure
from thermocline.report.marks import Panel
from thermocline.report.theme import Temperatures
from thermocline.report.trading import traded


def detection(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """How well every score tells other data apart."""
    found = {name: _detectors(case, name) for name in detected(case.members)}
    values: dict[str, list[float]] = {}
    for row in (row for rows in found.values() for row in rows):
        values.setdefault(row["detector"], []).append(row["value"])
    order = sorted(values, key=lambda name: -statistics.fmean(values[name]))
    panels = [scores.dots(f"{name} (OOD)", rows, scale, columns=len(case.groups), order=order) for name, rows in found.items()]
    sentence = (
        "How well each score tells the data trained on from another set: 1 is perfect, 0.5 is chance. NECO is the detector"
        " that high temperature is said to help; the others are there for comparison, the best on average first. Bars: with"
        " one seed the 95 % interval over images, where it was recorded; with more, that over seeds (two: their range)."
    )
    measures = ("auroc", "auroc_interval", "fpr")
    return Figure("detection", "Detecting other data", sentence, measures, panels or ["auroc"], columns=2)


def _detectors(case: Case, name: str) -> list[Point]:
    found = []
    for group in case.groups:
        for detector in detected(group.members).get(name, ()):
            key = (name, detector)
            value = group.estimate(lambda one, key=key: one.auroc.get(key), of="auroc")
            false_alarms = group.estimate(lambda one, key=key: one.fpr.get(key), of="fpr")
            if value:
                low, high = value.low, value.high
                if value.count == 1:
                    low, high = group.first(lambda one, key=key: one.auroc_interval.get(key)) or (low, high)
                numbers = {"value": value.mean, "low": low, "high": high, "fpr": false_alarms and false_alarms.mean}
                rounded = {column: number and round(number, 4) for column, number in numbers.items()}
                found.append({"series": group.label, "detector": detector, **rounded})
    return found


def confidence(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """Whether probabilities mean what they say."""
    panels: list[Panel | str] = []
    for at, title in (("training", "At the training temperature"), ("fitted", "At the fitted temperature")):
        rows = reliability(case, runs, at)
        panels.append(scores.reliability(title, rows, scale) if rows else f"reliability ({at})")
    if not any(isinstance(panel, Panel) for panel in panels):
        panels = ["reliability"]
    sentence = (
        "Whether probabilities mean what they say: of the test images predicted with about the same confidence, the share"
        " that is right. Below the diagonal a net is surer than it is right. The larger a point, the more images it stands"
        " for. Then: the same at the one temperature that fits the labels best."
    )
    measures = ("reliability", "ece", "brier", "fitted_temperature")
    return Figure("reliability", "Confidence against accuracy", sentence, measures, panels, columns=2)


def score_shapes(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """What lies behind an AUROC: the scores of both sets, and the curve of every threshold."""
    panels: list[Panel | str] = []
    bars, lines = histograms(case, runs), rocs(case, runs)
    names = list(dict.fromkeys(row["detector"] for row in lines or bars))
    for name in dict.fromkeys(row["set"] for row in [*lines, *bars]):
        some = [row for row in lines if row["set"] == name]
        panels.append(scores.roc(f"{name}: ROC", some, scale) if some else "roc")
        for group in case.groups:
            own = [row for row in bars if (row["set"], row["series"]) == (name, group.label)]
            if own:
                panels.append(scores.histogram(f"{name}: scores, {group.label}", own, scale.colour(group.temperature)))
    sentence = (
        "The curve says which share of test images is kept, and of the other set let through, as the threshold moves. Beside it"
        " the scores themselves: those of test images in colour, those of the other set in grey; where they overlap, samples"
        " cannot be told apart. Scores are of the first seed, curves of the mean over seeds."
    )
    more: dict[str, Any] = {"choices": names, "settings": {marks.SHOWN: names[0]} if names else {}}
    more["controls"] = "Another detector can be chosen above."
    measures = ("roc", "score_histogram")
    return Figure("scores", "Scores and ROC", sentence, measures, panels or ["score_histogram"], **more)


_COLLAPSE = {
    "nc1": "NC1 within over between", "nc1_trace": "NC1 by traces", "nc2_equinorm": "NC2 equal norms",
    "nc2_equiangular": "NC2 equal angles", "nc3": "NC3 head and means", "nc4": "NC4 nearest mean",
}  # fmt: skip


def collapse(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """How far the last features are from neural collapse, part by part."""
    rows = []
    for point in curve(case, runs, "neural_collapse", x="params", last=True):
        part = parameters(point["x"]).get("part", "")
        if part in _COLLAPSE and point["low"] > 0:  # zero has no place on a log axis
            rows.append({**point, "part": _COLLAPSE[part], "x": part})
    order = [words for words in _COLLAPSE.values() if any(row["part"] == words for row in rows)]
    panels: list[Panel | str] = (
        [scores.collapse("Features before the head", rows, scale, order)] if rows else ["neural_collapse"]
    )
    sentence = (
        "Every part is 0 where a net has collapsed: images of a class share one point (NC1), class means stand at equal lengths"
        " and angles (NC2), the head is their mirror (NC3), and the nearest mean decides (NC4). A part that is exactly 0 is not"
        " drawn."
    )
    return Figure("collapse", "Neural collapse", sentence, ("neural_collapse",), panels, columns=1)


def confusions(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """Which classes are most often taken for each other, and how near their means lie."""
    panels: list[Panel | str] = []
    for group in case.groups:
        if rows := confused(runs[group.members[0].key])[:12]:
            panels.append(scores.confusion(group.label, rows, scale.colour(group.temperature)))
    sentence = (
        "The pairs of classes that test images are most often confused in, as the share of the first class that is taken for"
        " the second. A full bar: the means of the two classes point the same way in the last features; a faint one: they do"
        " not."
        " First seed of each temperature."
    )
    right = all(group.members[0].test_accuracy == 1 for group in case.groups)
    missing = "confused classes" if right else "confusion"
    return Figure("confusion", "Most confused classes", sentence, ("confusion",), panels or [missing])


def tradeoff(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """What each temperature keeps for other data, against how well it notices them, and those that no other beats."""
    panels: list[Panel | str] = []
    for name in dict.fromkeys(name for one in case.members for name in one.ood_drop):
        if len(settings := traded(case, name)) > 1:
            panels.append(marks.scatter(name, settings, scale, y="detection (NECO AUROC)"))
    sentence = (
        "Across: the share of the best layer's probe accuracy that the last layer keeps on another set. Up: how well NECO tells"
        " that set apart. The dashed line joins temperatures that none other beats in both; small marks are seeds."
    )
    missing = ["ood_drop and auroc at two temperatures"]
    return Figure("tradeoff", "Transfer against detection", sentence, ("ood_drop", "auroc"), panels or missing, columns=2)
