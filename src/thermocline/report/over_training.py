"""Figures with training steps across: ranks, norms, accuracy, temperature, alignment, OrthoDev."""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.record import Loaded
from thermocline.report import marks
from thermocline.report.curves import Point, curve
from thermocline.report.facts import HEADLINE, Case, parameters, rank_rule
from thermocline.report.figure import Figure
from thermocline.report.marks import Panel
from thermocline.report.theme import Temperatures


def ranks(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """When the rank of the logits falls, and whether it comes back."""
    layers = case.groups[0].first(lambda one: one.layers)
    rank = curve(case, runs, "solution_rank", x="step", where=lambda row: rank_rule(row) == HEADLINE)
    entropy = curve(case, runs, "entropy_rank", x="step", where=lambda row: row["depth"] == layers)
    panels = [
        _panel("Numerical rank", rank, scale, marks.count("rank")) or "solution_rank",
        _panel("Entropy rank", entropy, scale, marks.count("rank")) or "entropy_rank",
    ]
    sentence = "The rank of the logits as training goes on: when the deficit arises, and whether training longer fills it."
    measures = ("solution_rank", "entropy_rank")
    return Figure("rank-training", "Rank of the logits over training", sentence, measures, panels, columns=2)


def norms(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """How the logits grow, as they are and as the softmax sees them."""
    panels: list[Panel | str] = []
    for measure, title in (("logit_norm", "Logit norm"), ("tempered_logit_norm", "Logit norm divided by T")):
        rows = [row for row in curve(case, runs, measure, x="step") if row["low"] > 0]
        panels.append(_panel(title, rows, scale, marks.decades("norm", marks.ends(rows)), marks.count("norm")) or measure)
    sentence = (
        "What the softmax sees is the norm divided by T. In theory it starts near zero at high temperature, and the network"
        " has to grow the raw norm before the classes separate."
    )
    measures = ("logit_norm", "tempered_logit_norm")
    return Figure("norms", "Logit norm over training", sentence, measures, panels, columns=2)


def accuracy(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """Whether the nets were trained to the same end."""
    panels: list[Panel | str] = []
    for split, title in (("train", "Training images"), ("test", "Test images")):
        rows = curve(case, runs, "accuracy", x="step", where=lambda row, split=split: row["split"] == split)
        panels.append(_panel(title, rows, scale, marks.share("accuracy")) or f"accuracy ({split})")
    sentence = "Whether the networks being compared were trained to the same end, and what temperature costs in accuracy."
    return Figure("accuracy", "Accuracy over training", sentence, ("accuracy",), panels, columns=2)


def heat(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure | None:
    """The temperature, where it moved; there is nothing to show, nor to miss, where it did not."""
    rows = curve(case, runs, "temperature", x="step")
    if not any(row["value"] != other["value"] for row in rows for other in rows if row["series"] == other["series"]):
        return None
    panels = [_panel("Temperature", rows, scale, marks.decades("T", marks.ends(rows)), marks.count("T")) or "temperature"]
    sentence = "The temperature of the loss as training goes on; curves carry the name of the temperature they began with."
    return Figure("heat", "Temperature over training", sentence, ("temperature",), panels, columns=1)


def turning(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """How weights turn towards their inputs, and other data away from the classes, while a net trains."""
    panels: list[Panel | str] = []
    for measure, title, words, wanted in (
        ("alignment", "Alignment, mean over layers", "|cosine|", {"part": "max"}),
        ("orthodev", "OrthoDev, mean over sets", "|cosine| to class means", {"centered": "false"}),
    ):
        rows = curve(
            case, runs, measure, x="step", where=lambda row, wanted=wanted: wanted.items() <= parameters(row["params"]).items()
        )
        moving = rows if len({row["x"] for row in rows}) > 1 else []
        panels.append(_panel(title, moving, scale, marks.fraction(words)) or f"{measure} over training")
    if not any(isinstance(panel, Panel) for panel in panels):
        panels = ["alignment and orthodev over training"]
    sentence = (
        "Two things that theory expects of high temperature: weights that turn towards their inputs in many layers at once, and"
        " other data whose mean turns orthogonal to those of the classes."
    )
    return Figure("turning", "Alignment and OrthoDev over training", sentence, ("alignment", "orthodev"), panels, columns=2)


MAKERS = (ranks, norms, accuracy, heat, turning)


def _panel(title: str, rows: list[Point], scale: Temperatures, y: marks.Axis, even: marks.Axis | None = None) -> Panel | None:
    """Curves by step, and on axes without bends for whoever asks; None where there are no rows."""
    return marks.curves(title, rows, scale, x=marks.STEP, y=y, other=(marks.LINEAR_STEP, even or y)) if rows else None
