"""Facts and verdicts for the terminal: the same table and the same sentences as the page."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from thermocline.report import judge, table
from thermocline.report.facts import Case, Summary, cases

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

_COLOURS = {"present": "green", "reversed": "red", "unclear": "yellow", "caution": "yellow"}
_COLOURS |= {"calibrated": "green", "over": "yellow", "under": "yellow", "off": "yellow"}


def terminal(summaries: Sequence[Summary]) -> Group:
    """The comparison table and the verdicts of every case, as something rich can print."""
    from rich.console import Group

    return Group(*itertools.chain.from_iterable(map(_case, cases(summaries))))


def _case(case: Case) -> list[RenderableType]:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=Text(case.title), title_justify="left", title_style="bold")
    grid.add_column("")
    for group in case.groups:
        grid.add_column(group.label if group.finished else f"{group.label} (unfinished)", justify="right")
    for part, lines in itertools.groupby(table.lines(case), key=lambda line: line.part):
        grid.add_section()
        grid.add_row(Text(part, style="bold"))
        for line in lines:
            cells = (f"{text}\n{interval}" if interval else text or "-" for text, interval in line.cells)
            grid.add_row(Text(f"  {line.label}"), *map(Text, cells))
    said: list[RenderableType] = [grid]
    for verdict in judge.judge(case):
        word = Text(f"{verdict.word}: ", style=_COLOURS.get(verdict.status, "bold"))
        said.append(Padding(word + Text(verdict.sentence), (0, 0, 0, 1)))
    return said
