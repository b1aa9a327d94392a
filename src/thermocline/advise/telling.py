"""Advice for its readers: a table in the terminal, and what each advised setting costs, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from thermocline.advise.choosing import Advice, Change, Choice, Goal, Option
from thermocline.report.estimates import Estimate

_COLOURS = {"better": "green", "unclear": "yellow"}


def told(advice: Advice) -> Group:
    """Every choice as a line of a table, then what else comes with the settings that are advised."""
    said: list[RenderableType] = []
    for subject in dict.fromkeys(one.subject for one in advice.choices):
        choices = [one for one in advice.choices if one.subject == subject]
        said.append(_table(subject, choices))
        said += [Padding(Text(line), (0, 0, 0, 1)) for line in [*besides(choices), _brackets(choices)]]
    return Group(*said)


def besides(choices: Sequence[Choice]) -> list[str]:
    """A sentence for every setting to take: what it costs, and gains besides, as far as seeds tell."""
    found = []
    for setting in dict.fromkeys(one.setting for one in choices if one.change.status == "better"):
        own = [one for one in choices if one.setting == setting]
        # Of a goal it is taken for, the table speaks.
        changes = [change for change in own[0].besides if change.goal not in [one.goal for one in own]]
        worse, better = ([_moved(one) for one in changes if one.status == status] for status in ("worse", "better"))
        costs = f"What {setting} costs: {'; '.join(worse) or 'nothing that these seeds can tell'}."
        found.append(f"{costs} What it gains besides: {'; '.join(better)}." if better else costs)
    return found


def _table(subject: str, choices: Sequence[Choice]) -> RenderableType:
    usual, others = ({getattr(one, which).setting for one in choices} for which in ("usual", "other"))
    heads = (_head("usual", usual), _head("best of the others", others))
    table = Table(
        "goal", *heads, "change", "advice", title=f"{subject}, {_seeds(choices)}", title_justify="left", title_style="bold"
    )
    for one in choices:
        goal = f"{'high' if one.goal.better > 0 else 'low'} {one.goal.number}"
        before = _at(one.goal, one.change.before, one.usual, named=len(usual) > 1)
        after = _at(one.goal, one.change.after, one.other, named=len(others) > 1)
        table.add_row(goal, before, after, _difference(one.change), Text(one.words, style=_COLOURS.get(one.change.status, "")))
    for column in table.columns:
        column.overflow = "fold"
    return table


def _head(word: str, settings: set[str]) -> str:
    """One setting that is that of all lines stands above them."""
    return word if len(settings) > 1 else f"{next(iter(settings))} (usual)" if word == "usual" else next(iter(settings))


def _at(goal: Goal, value: Estimate, option: Option, *, named: bool) -> str:
    return ", ".join([f"{value.mean:{goal.digits}}", *filter(None, (option.detector, option.setting if named else ""))])


def _moved(change: Change) -> str:
    return f"{change.goal.number} {_difference(change)}"


def _difference(change: Change) -> str:
    by, digits = change.by, change.goal.digits
    scale, digits, unit = (100, ".1f", " points") if digits.endswith("%") else (1, digits, "")
    spread = "" if by.count == 1 else f" [{scale * by.low:+{digits}} to {scale * by.high:+{digits}}]"
    return f"{scale * by.mean:+{digits}}{unit}{spread}"


def _seeds(choices: Iterable[Choice]) -> str:
    counts = sorted({one.seeds for one in choices})
    return f"{' to '.join(dict.fromkeys(map(str, (counts[0], counts[-1]))))} seed{'s' if counts[-1] > 1 else ''}"


def _brackets(choices: Sequence[Choice]) -> str:
    most = max(one.seeds for one in choices)
    many = (
        "In brackets: 95 % intervals over seeds, each line by itself; in the table they allow for choosing the best setting. "
    )
    kind = {1: "", 2: "In brackets: the range of two seeds. "}.get(most, many)
    found = ["detectors"] if any(one.usual.detector for one in choices) else []
    found += ["layers"] if any(one.goal.title.startswith("best layer") for one in choices) else []
    best = f"{' and '.join(found).capitalize()} are the best of those measured. " if found else ""
    *others, last = ["Settings", *found]
    chosen = f"{', '.join(others)} and {last}" if others else last
    return f"{kind}{best}{chosen} were chosen on the images they are judged by."
