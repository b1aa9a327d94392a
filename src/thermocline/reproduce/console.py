"""Studies for the terminal: the same table and the same words as their pages."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from thermocline.reproduce import verdict, wording
from thermocline.reproduce.study import Study
from thermocline.reproduce.verdict import Finding

_COLOURS = {verdict.HOLDS: "green", verdict.DIRECTION: "cyan", verdict.FAILS: "red", verdict.UNDECIDED: "yellow"}


def glance(studies: Sequence[Study]) -> RenderableType:
    """Several of them, a line each, and what could not be read."""
    grid = Table(Column("experiment", no_wrap=True), "runs", "verdict")
    for study in studies:
        grid.add_row(Text(study.experiment.name), Text(wording.runs(study)), Text(study.line))
    problems = dict.fromkeys(line for study in studies for line in study.found.problems)
    return Group(grid, *(Text(f" not read: {line}", style="yellow") for line in problems))


def _ours(finding: Finding) -> RenderableType:
    """What two arms have and how far they are apart, or what one has; the intervals of arms are on the page."""
    by = f"seed{'' if len(finding.shared) == 1 else 's'} {wording.seeds(finding)}"
    if len(finding.claim.arms) == 1:
        return Text(f"{wording.arm(finding, 0)}, {by}")
    means = " → ".join(wording.mean(finding, place) for place in range(len(finding.claim.arms)))
    return Text(f"{means}\n{wording.difference(finding)}, {by}")


def terminal(study: Study) -> Group:
    """The comparison, claim by claim, and what is missing."""
    experiment, found = study.experiment, study.found
    grid = Table(title=Text(f"{experiment.name}: {experiment.says}"), title_justify="left", title_style="bold")
    for head in ("claim", "published", "ours", "verdict"):
        grid.add_column(head, overflow="fold")
    for finding in study.findings:
        claim = finding.claim
        word = Text(finding.verdict.word, style=_COLOURS.get(finding.verdict.word, "dim")) + Text(f": {finding.verdict.why}")
        said_of = f"{claim.quantity.name} {wording.claimed(claim)}"
        grid.add_row(Text(said_of), Text(wording.published(claim) or wording.DASH), _ours(finding), word)
    said: list[RenderableType] = [grid]
    if experiment.why:
        said.append(Text(f" {verdict.ABSENT}: {experiment.why}"))
    elif found.wanting:
        lacking = "; ".join([*wording.lacking(found), *(["computed rows"] if found.lacks_table else [])])
        said.append(Text(f" missing: {lacking}\n run it with: {experiment.command} ({experiment.cost.words})"))
    gaps = [] if experiment.why else wording.unmeasured(study)
    said += [Text(f" without a number: {line}".replace("`", "")) for line in gaps]
    said += [Text(f" stopped itself: {one.name}, {one.why}") for one in found.stopped]
    said += [Text(f" not read: {line}", style="yellow") for line in found.problems]
    return Group(*said)
