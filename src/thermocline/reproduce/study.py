"""An experiment and what a results folder says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from thermocline.experiments._claims import TRAIN_ACCURACY, Arm, Quantity
from thermocline.reproduce import catalogue, quantities, verdict
from thermocline.reproduce.catalogue import Experiment
from thermocline.reproduce.sources import Found, Shelf, Source
from thermocline.reproduce.verdict import Finding

Reason = Literal["did not learn", "before the measure", "not finite"]


@dataclass(frozen=True)
class Study:
    """An experiment with what was found of it, and its findings in the order of its claims."""

    experiment: Experiment
    found: Found
    findings: tuple[Finding, ...]

    def origin(self, finding: Finding) -> str:
        """The earlier experiment that has the same finding from the same runs, or nothing."""
        return catalogue.origin(self.experiment, finding.claim)

    @property
    def summary(self) -> str:
        """The verdict in a line; what an earlier experiment has too is named, not counted again."""
        shared = Counter(f"as in {name}" for finding in self.findings if (name := self.origin(finding)))
        own = counted(finding for finding in self.findings if not self.origin(finding))
        return words({**own, **shared})

    @property
    def line(self) -> str:
        """The verdict in a line or, where nothing was run, why not."""
        absent = all(finding.verdict.word == verdict.ABSENT for finding in self.findings)
        return f"{verdict.ABSENT}: {self.why}" if absent else self.summary

    @property
    def why(self) -> str:
        """Why it was not run, where it was not."""
        if self.experiment.why:
            return self.experiment.why
        if not self.found.begun:
            return f"it needs a GPU ({self.experiment.cost.words})" if self.experiment.cost.gpu else "nobody has run it yet"
        if {finding.verdict.word for finding in self.findings} != {verdict.ABSENT}:
            return ""
        if missing := len(self.found.missing):
            return f"{missing} of its {len(self.experiment.runs)} runs are missing"
        if not self.found.sources:
            return f"its runs stopped themselves, all {len(self.found.stopped)} of them"
        return "its runs were made before its measures"


def unmeasured(study: Study, *, of: Collection[str] = ()) -> dict[tuple[tuple[int, ...], Reason], dict[str, list[str]]]:
    """By the seeds of finished runs that give some quantity (of these, or all) no number, and why: which, and of which arms."""
    gaps: dict[tuple[tuple[int, ...], Reason], dict[str, list[str]]] = {}
    for finding in study.findings:
        quantity = finding.claim.quantity
        if of and quantity.name not in of:
            continue
        for arm, known in zip(finding.claim.arms, finding.values):
            seeds: dict[Reason, set[int]] = {}
            for source in study.found.sources:
                if arm.settings and quantities.belongs(source, arm) and source.seed not in known:
                    seeds.setdefault(_why(source, quantity, arm), set()).add(source.seed)
            for why, some in seeds.items():
                arms = gaps.setdefault((tuple(sorted(some)), why), {}).setdefault(quantity.name, [])
                arms += [] if arm.label in arms else [arm.label]
    return gaps


def _why(source: Source, quantity: Quantity, arm: Arm) -> Reason:
    if quantities.needs_learning(quantity) and not quantities.learned(source):
        return "did not learn"
    return "not finite" if quantities.select(source, quantity, arm.where) else "before the measure"


def counted(findings: Iterable[Finding]) -> dict[str, int]:
    """How many findings have which verdict."""
    told = Counter(finding.verdict.word for finding in findings)
    return {word: told[word] for word in verdict.WORDS if told[word]}


def words(counts: dict[str, int]) -> str:
    """Verdicts and how many claims have each.

    >>> words({"holds": 2, "undecided": 1})
    'holds: 2, undecided: 1'
    """
    return ", ".join(f"{word}: {count}" for word, count in counts.items())


def study(experiment: Experiment, shelf: Shelf) -> Study:
    """Read, compare and judge. What training made of a net is read of those that learned.

    A claim that an earlier experiment makes of the same runs is judged by the numbers printed there: one verdict for both.
    """
    found = shelf.find(experiment)
    able = [source for source in found.sources if quantities.learned(source)]
    findings = []
    for claim in (catalogue.published(experiment, claim) for claim in experiment.claims):
        needs = quantities.needs_learning(claim.quantity)
        values = [quantities.values(able if needs else found.sources, claim.quantity, arm) for arm in claim.arms]
        finding = verdict.judge(claim, values)
        idle = [arm.label for arm in claim.arms if not _any(arm, able if needs else found.sources)]
        tried = all(_any(arm, [*found.sources, *found.stopped]) for arm in claim.arms)
        if idle and tried:
            finding = verdict.without(finding, idle, why="learned" if needs else "came to its end")
        elif needs:
            finding = verdict.beside(finding, [quantities.reached(able, TRAIN_ACCURACY, arm) for arm in claim.arms])
        findings.append(finding)
    return Study(experiment, found, tuple(findings))


def _any(arm: Arm, sources: Iterable[Source]) -> bool:
    return any(quantities.belongs(source, arm) for source in sources)
