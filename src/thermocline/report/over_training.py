"""Figures with training steps across: ranks, norms, accuracy, temperature, alignment, OrthoDev."""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.record import Loaded
from thermocline.report import marks
from thermocline.report.curves import curve
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
        marks.curves(title, rows, scale, x=marks.STEP, y=marks.count("rank"), other=_even(marks.count("rank")))
        if rows
        else measure
        for title, rows, measure in (("Numerical rank", rank, "solution_rank"), ("Entropy rank", entropy, "entropy_rank"))
    ]
    sentence = "The rank of the logits as training goes on: when the deficit arises, and whether training longer fills it."
    return Figure(
        "rank-training", "Rank of the logits over training", sentence, ("solution_rank", "entropy_rank"), panels, columns=2
    )


def norms(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure:
    """How the logits grow, as they are and as the softmax sees them."""
    panels: list[Panel | str] = []
    for measure, title in (("logit_norm", "Logit norm"), ("tempered_logit_norm", "Logit norm divided by T")):
        rows = [row for row in curve(case, runs, measure, x="step") if row["low"] > 0]
        if rows:
            y = marks.decades("norm", (row[end] for row in rows for end in ("low", "high")))
            panels.append(marks.curves(title, rows, scale, x=marks.STEP, y=y, other=_even(marks.count("norm"))))
        else:
            panels.append(measure)
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
        panel = marks.curves(title, rows, scale, x=marks.STEP, y=marks.share("accuracy"), other=_even(marks.share("accuracy")))
        panels.append(panel if rows else f"accuracy ({split})")
    sentence = "Whether the networks being compared were trained to the same end, and what temperature costs in accuracy."
    return Figure("accuracy", "Accuracy over training", sentence, ("accuracy",), panels, columns=2)


def heat(case: Case, runs: Mapping[str, Loaded], scale: Temperatures) -> Figure | None:
    """The temperature, where it moved; there is nothing to show, nor to miss, where it did not."""
    rows = curve(case, runs, "temperature", x="step")
    if not any(row["value"] != other["value"] for row in rows for other in rows if row["series"] == other["series"]):
        return None
    y = marks.decades("T", (row[end] for row in rows for end in ("low", "high")))
    panel = marks.curves("Temperature", rows, scale, x=marks.STEP, y=y, other=_even(marks.count("T")))
    sentence = "The temperature of the loss as training goes on; curves carry the name of the temperature they began with."
    return Figure("heat", "Temperature over training", sentence, ("temperature",), [panel], columns=1)


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
        if len({row["x"] for row in rows}) > 1:
            y = marks.fraction(words)
            panels.append(marks.curves(title, rows, scale, x=marks.STEP, y=y, other=_even(y)))
        else:
            panels.append(f"{measure} over training")
    if not any(isinstance(panel, Panel) for panel in panels):
        panels = ["alignment and orthodev over training"]
    sentence = (
        "Two things that theory expects of high temperature: weights that turn towards their inputs in many layers at once, and"
        " other data whose mean turns orthogonal to those of the classes."
    )
    return Figure("turning", "Alignment and OrthoDev over training", sentence, ("alignment", "orthodev"), panels, columns=2)


MAKERS = (ranks, norms, accuracy, heat, turning)


def _even(y: marks.Axis) -> tuple[marks.Axis, marks.Axis]:
    """Axes without bends, for whoever asks."""
    return marks.LINEAR_STEP, y
