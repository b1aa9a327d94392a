"""Figures with layers across: probes, ranks, spectra, alignment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from thermocline.record import Loaded
from thermocline.report import marks
from thermocline.report.curves import Point, curve, recounted, spectra
from thermocline.report.facts import HEADLINE, Case, parameters, points, rank_rule
from thermocline.report.figure import Figure
from thermocline.report.marks import Panel
from thermocline.report.theme import Temperatures


def probes(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """How well each layer can be read, in and out of distribution."""
    splits = dict.fromkeys(row["split"] for one in case.members for row in points(runs[one.key], "probe_accuracy"))
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
    return Figure("probes", "Probe accuracy by layer", sentence, measures, panels or ["probe_accuracy"])


def deficit(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """How many directions the logits use, and how far that hangs on the threshold."""
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
        extra = [marks.threshold(y), marks.last_above(scale, x=x, y=y)]
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
    return Figure("deficit", "The rank deficit", sentence, ("solution_rank", "singular_value"), panels, columns=2)


def layer_ranks(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """How many directions each layer uses, counted three ways."""
    panels: list[Panel | str] = []
    names = {"rank": "Numerical rank", "entropy_rank": "Entropy rank", "stable_rank": "Stable rank"}
    for measure, title in names.items():
        rows = curve(case, runs, measure, x="depth", last=True, where=lambda row: rank_rule(row) in (None, HEADLINE))
        panels.append(_counted(title, rows, scale) if rows else measure)
    sentence = (
        "How many directions each layer's features use at the end of training, counted three ways: above a threshold, by the"
        " entropy of the spectrum, and by its energy relative to the first direction."
    )
    return Figure("layer-ranks", "Rank by layer", sentence, tuple(names), panels)


def _counted(title: str, rows: list[Point], scale: Temperatures) -> Panel:
    """Ranks by layer, on a log axis where that is asked for."""
    log = marks.decades("rank", (max(end, 1.0) for end in marks.ends(rows)))
    return marks.curves(title, rows, scale, x=marks.LAYER, y=marks.count("rank"), other=(marks.LAYER, log))


def layer_spectra(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """Every layer's spectrum, the threshold, and the rank that follows from it."""
    rows = spectra(case, runs, most=48)
    by_series: dict[str, list[Point]] = {}
    for row in rows:
        by_series.setdefault(row["series"], []).append(row)
    panels: list[Panel | str] = []
    if rows:
        y, longest = _ratio(rows), max(row["x"] for row in rows)
        hues = {group.label: scale.colour(group.temperature) for group in case.groups}
        panels += [marks.fan(name, some, hues[name], y=y, longest=longest) for name, some in by_series.items()]
        panels.append(marks.recount("Rank at the threshold", recounted(case, runs), scale))
    sentence = (
        "Singular values of each layer's features relative to the first, from the first layer (faint) to the logits (strong)."
        " A curve that falls early is a layer that uses few directions; the rank counts those above the dashed line."
        " First seed of each temperature; values below 1e-6 are not drawn."
    )
    measures = ("singular_value", "rank")
    controls = "The tolerance slider moves the line."
    return Figure("spectra", "Spectra of the layers", sentence, measures, panels or ["singular_value"], controls=controls)


def alignment(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """How far weights are turned towards their inputs, with what chance would give."""
    panels: list[Panel | str] = []
    chance = curve(case, runs, "alignment", x="depth", last=True, where=_part("null"))
    for part, title in (("max", "Largest of the 15 x 15 cosines"), ("first", "Cosine of the two first directions")):
        first = [row for row in chance if row["series"] == chance[0]["series"] and part == "max"]
        extra = [marks.reference(first)] if first else []
        if rows := curve(case, runs, "alignment", x="depth", last=True, where=_part(part)):
            panels.append(marks.curves(title, rows, scale, x=marks.LAYER, y=marks.fraction("|cosine|"), extra=extra))
    sentence = (
        "Whether a layer's weight looks along the directions its inputs vary in most. High temperature is said to turn many"
        " layers at once, which is how a few singular values come to outgrow the rest. Grey: what the largest would be by"
        " chance, which in small layers is a lot."
    )
    title = "Alignment of weights and inputs"
    return Figure("alignment", title, sentence, ("alignment",), panels or ["alignment"], columns=2)


def _part(name: str) -> Callable[[Point], bool]:
    return lambda row: parameters(row["params"]).get("part") == name


def _ratio(rows: Sequence[Point], *more: float) -> marks.Axis:
    return marks.decades("relative to the first", [*(row["value"] for row in rows), *more])


def _logits(rows: Sequence[Point]) -> list[Point]:
    last = max((row["depth"] for row in rows), default=0)
    return [{**row, "low": row["value"], "high": row["value"]} for row in rows if row["depth"] == last]
