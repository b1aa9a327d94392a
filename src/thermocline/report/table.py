"""Facts -> the comparison table: measures down, temperatures across. Standard library only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from thermocline.report.estimates import Estimate, meet
from thermocline.report.facts import Case, Group, Summary

DETECTORS = ("neco", "neco-maxlogit", "msp")
"""Those the table shows where a run has them: the one that temperature is said to help [benammar2024neco], and a baseline."""

MARKS = {"higher": "▲ ", "lower": "▼ ", "": ""}
"""What stands before a number, by whether it lies outside the noise of seeds."""

LEGEND = "▲ ▼: higher or lower than the first column by more than the seeds differ, from three seeds on"

Spell = Callable[[float], str]


class Cell(NamedTuple):
    """A number, its interval over seeds, whether it is "higher" or "lower" than the first column's; `cut`: the interval.

    `value`: both unrounded.
    """

    text: str = ""
    interval: str = ""
    apart: str = ""
    cut: bool = False
    value: Estimate | None = None


@dataclass(frozen=True)
class Line:
    """One measure: a number for each temperature, and under it the interval over seeds."""

    part: str
    label: str
    measure: str
    cells: tuple[Cell, ...]


def lines(case: Case) -> list[Line]:
    """Every number worth comparing; a measure that no run has is left out."""
    found = [
        Line(part, label, measure, tuple(_cell(group, case.groups[0], measure, pick, spell) for group in case.groups))
        for part, label, measure, pick, spell in _wanted(case)
    ]
    return [line for line in found if any(cell.text for cell in line.cells)]


def parts(lines: Iterable[Line]) -> list[tuple[str, list[Line]]]:
    """The same under the titles of their parts."""
    return [(part, list(some)) for part, some in itertools.groupby(lines, key=lambda line: line.part)]


def _cell(group: Group, first: Group, measure: str, pick: Callable[[Summary], float | None], spell: Spell) -> Cell:
    value, base = (one.estimate(pick, of=measure) for one in (group, first))
    if value is None:
        return Cell()
    interval = f"{spell(value.low)} to {spell(value.high)}" if value.count > 1 else ""
    written = spell(value.mean)
    seen = base is not None and written != spell(base.mean)  # a mark between two numbers that read alike would puzzle
    return Cell(written, interval, apart(base, value, group.change(first, pick)) if base and seen else "", value.cut, value)


def apart(base: Estimate, value: Estimate, paired: Estimate | None = None) -> str:
    """Whether two means differ by more than their seeds do, of which both have three at least.

    Two seeds have a range only, and two ranges of two draws from one distribution are disjoint once in three times.

    >>> apart(Estimate(1.0, 0.9, 1.1, 3), Estimate(2.0, 1.5, 2.5, 3))
    'higher'
    >>> apart(Estimate(1.0, 0.9, 1.1, 2), Estimate(2.0, 1.5, 2.5, 3))
    ''
    """
    if min(base.count, value.count) < 3 or meet(base, value, paired):
        return ""
    return "higher" if value.mean > base.mean else "lower"


def _wanted(case: Case) -> Iterator[tuple[str, str, str, Callable[[Summary], float | None], Spell]]:
    members = case.members
    classes, layers = (_common(getattr(one, name) for one in members) for name in ("classes", "layers"))
    yield "Fit", "Training accuracy", "accuracy", lambda one: one.train_accuracy, _percent
    yield "Fit", "Test accuracy", "accuracy", lambda one: one.test_accuracy, _percent
    part = f"Rank of the logits (classes - 1 = {classes - 1})" if classes else "Rank of the logits"
    yield part, "Numerical rank", "solution_rank", lambda one: one.solution_rank, _number
    yield part, "Entropy rank", "entropy_rank", lambda one: one.solution_entropy_rank, _number
    yield part, "Stable rank", "stable_rank", lambda one: one.solution_stable_rank, _number
    part = f"Depth (share of {layers} layers)" if layers else "Depth"
    yield part, "Effective depth", "effective_depth", lambda one: one.effective_depth, _fraction
    for name in dict.fromkeys(name for one in members for name in one.ood_drop):
        yield "OOD drop", name, "ood_drop", lambda one, name=name: one.ood_drop.get(name), _fraction
    for key in _detections(one.auroc for one in members):
        yield "Detection: AUROC", ", ".join(key), "auroc", lambda one, key=key: one.auroc.get(key), "{:.3f}".format
    for key in _detections(one.fpr for one in members):
        part = "Detection: false positive rate"
        yield part, ", ".join(key), "fpr", lambda one, key=key: one.fpr.get(key), "{:.3f}".format
    part = "Calibration (test images)"
    yield part, "ECE at the training temperature", "ece", lambda one: one.ece.get("training"), "{:.3f}".format
    yield part, "ECE at the fitted one", "ece", lambda one: one.ece.get("fitted"), "{:.3f}".format
    yield part, "Brier score", "brier", lambda one: one.brier.get("training"), "{:.3f}".format
    yield part, "Fitted temperature over T", "fitted_temperature", lambda one: one.softening, _number
    yield "Logit norm", "Raw", "logit_norm", lambda one: one.logit_norm, _number
    yield "Logit norm", "Divided by T", "tempered_logit_norm", lambda one: one.tempered_logit_norm, _number


def _common(values: Iterable[int | None]) -> int | None:
    """The one value of those that are known, if there is only one."""
    known = {value for value in values if value}
    return known.pop() if len(known) == 1 else None


def _detections(found: Iterable[Mapping[tuple[str, str], float]]) -> list[tuple[str, str]]:
    """The (set, detector) pairs to show, set by set; where a figure has room for all detectors, a table has not."""
    keys = list(dict.fromkeys(key for one in found for key in one))
    sets = list(dict.fromkeys(name for name, _ in keys))
    shown = [key for key in keys if key[1] in DETECTORS] or keys
    return sorted(shown, key=lambda key: sets.index(key[0]))


def _percent(value: float) -> str:
    return f"{value:.1%}".replace("%", "\u202f%")


def _fraction(value: float) -> str:
    return f"{value:.2f}"


def _number(value: float) -> str:
    """Three digits or all of the whole part, without an exponent; a count as one.

    >>> _number(12345.6), _number(73.0), _number(5.601), _number(0.01234)
    ('12346', '73', '5.60', '0.0123')
    """
    return f"{value:.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:#.3g}".rstrip(".")
