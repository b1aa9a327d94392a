"""An experiment and what a results folder says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from thermocline.reproduce import quantities, verdict
from thermocline.reproduce.catalogue import Experiment
from thermocline.reproduce.sources import Found, Shelf
from thermocline.reproduce.verdict import Finding


@dataclass(frozen=True)
class Study:
    """An experiment with what was found of it, and its findings in the order of its claims."""

    experiment: Experiment
    found: Found
    findings: tuple[Finding, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many claims have which verdict; words that none has are left out."""
        told = Counter(finding.verdict.word for finding in self.findings)
        return {word: told[word] for word in verdict.WORDS if told[word]}

    @property
    def summary(self) -> str:
        """The verdict in a line.

        >>> words({"holds": 2, "undecided": 1})
        'holds: 2, undecided: 1'
        """
        return words(self.counts)

    @property
    def why(self) -> str:
        """Why it was not run, where it was not."""
        if self.experiment.why:
            return self.experiment.why
        if not self.found.sources:
            return f"it needs a GPU ({self.experiment.cost.words})" if self.experiment.cost.gpu else "nobody has run it yet"
        if set(self.counts) == {verdict.ABSENT}:
            return f"{len(self.found.missing)} of its {len(self.experiment.runs)} runs are missing"
        return ""


def words(counts: dict[str, int]) -> str:
    """Verdicts and how many claims have each."""
    return ", ".join(f"{word}: {count}" for word, count in counts.items())


def study(experiment: Experiment, shelf: Shelf) -> Study:
    """Read, compare and judge."""
    found = shelf.find(experiment)
    findings = []
    for claim in experiment.claims:
        values = [quantities.values(found.sources, claim.quantity, arm) for arm in claim.arms]
        findings.append(verdict.judge(claim, values))
    return Study(experiment, found, tuple(findings))


def studies(experiments: Iterable[Experiment], shelf: Shelf) -> list[Study]:
    """All of them, over one shelf."""
    return [study(experiment, shelf) for experiment in experiments]
