"""The first paper's tables as one: a net a line, what is claimed of it across, ours before what was printed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from thermocline.experiments._claims import Quantity
from thermocline.reproduce import wording
from thermocline.reproduce.study import Study
from thermocline.reproduce.verdict import ABSENT, DIRECTION, FAILS, HOLDS, UNDECIDED, Finding

MARKS = {HOLDS: "✓", DIRECTION: "↗", FAILS: "✗", UNDECIDED: "?"}
COLUMNS = {
    ("effective_depth", "value"): "effective depth",
    ("ood_drop", "value"): "OOD drop",
    ("probe_accuracy", "drop before the last"): "before the head",
    ("solution_rank", "value"): "rank of the logits",
    ("auroc", "value"): "NECO, AUROC",
    ("neco_oracle", "value"): "at its oracle",
}
LEGEND = (
    f"{', '.join(f'{mark} {word}' for word, mark in MARKS.items())}. Means over seeds from T = 1 to T = 100 (on runes: 500); in"
    " brackets, the published ones. OOD drops are for SVHN (on runes: another alphabet), at the logits and at the layer before"
    " the head; the second was found on these rows, except for the ResNet-34 and the VGG-19s. NECO is tried on the other CIFAR;"
    " its oracle is the number of axes that is best in hindsight. Seeds, intervals and the rule are below."
)


@dataclass(frozen=True)
class Cell:
    """What was found of one claim; `word` is empty where it was not claimed, or not run."""

    word: str = ""
    ours: str = ""
    printed: str = ""

    def __str__(self) -> str:
        """Ours and what was printed may stand on two lines, but neither is broken."""
        parts = [f"{MARKS[self.word]} {self.ours}", f"({self.printed})" if self.printed else ""] if self.word else []
        return " ".join(part.replace(" ", "\u00a0") for part in parts if part)


def lines(studies: Iterable[Study]) -> dict[str, tuple[str, list[Cell]]]:
    """By net and data: the experiment whose page has it first, and a cell for each of `COLUMNS`."""
    found: dict[str, tuple[str, dict[str, Cell]]] = {}
    for study in studies:
        group, _, tail = study.experiment.name.partition("/")
        if group in ("table1", "table2", "table3") and study.found.begun:
            _, cells = found.setdefault(tail, (study.experiment.name, {}))
            for finding in study.findings:
                if (column := _column(finding.claim.quantity)) and finding.verdict.word != ABSENT:
                    cells[column] = _cell(finding)
    return {tail: (name, [cells.get(column, Cell()) for column in COLUMNS.values()]) for tail, (name, cells) in found.items()}


def _column(quantity: Quantity) -> str | None:
    return COLUMNS.get((quantity.measure, quantity.by))


def _cell(finding: Finding) -> Cell:
    claim = finding.claim
    means = [found.mean for place in range(len(claim.arms)) if (found := finding.arm(place))]
    ours = " → ".join(wording.number(mean, claim.quantity) for mean in means)
    return Cell(finding.verdict.word, ours, wording.published(claim))
