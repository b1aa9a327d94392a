"""Facts and verdicts for the terminal: the same table and the same sentences as the page."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from thermocline.report import advice, judge, table, view
from thermocline.report.facts import Case, Summary, cases

_COLOURS = {"present": "green", "reversed": "red", "unclear": "yellow", "neither": "yellow", "caution": "yellow"}
_COLOURS |= {"good": "green", "warn": "yellow", "calm": "bold"}
_COLOURS |= {"calibrated": "green", "over": "yellow", "under": "yellow", "off": "yellow"}


def terminal(summaries: Sequence[Summary]) -> Group:
    """The comparison table and the verdicts of every case, as something rich can print."""
    return Group(*itertools.chain.from_iterable(map(_case, cases(summaries))))


def as_text(shown: RenderableType) -> str:
    """What rich would print, as text without colours."""
    console = Console(width=100, no_color=True)
    with console.capture() as text:
        console.print(shown)
    return text.get()


def line(one: Summary) -> str:
    """A run in one line: what it is of, and the numbers people ask for first, as far as it has them."""
    percent = {"training accuracy": one.train_accuracy, "test accuracy": one.test_accuracy}
    parts = [f"{name} {value:.1%}".replace("%", " %") for name, value in percent.items() if value is not None]
    of = f" (classes - 1 = {one.classes - 1})" if one.classes else ""
    parts += [] if one.solution_rank is None else [f"rank {one.solution_rank:.3g}{of}"]
    parts += [] if one.effective_depth is None else [f"effective depth {one.effective_depth:.2f} of {one.layers} layers"]
    parts += [f"OOD drop {drop:.2f} on {name}" for name, drop in one.ood_drop.items()]
    return f"{one.net} on {one.data}, T = {one.temperature:g}: {', '.join(parts) or 'no headline number was measured'}"


def _case(case: Case) -> list[RenderableType]:
    kinds = view.intervals(case)
    marks = [table.LEGEND] if len(case.groups) > 1 else []
    legend = f"under each mean: {'; '.join([*kinds, *marks])}" if kinds else None
    grid = Table(title=Text(case.title), title_justify="left", title_style="bold", caption=legend, caption_justify="left")
    grid.add_column("")
    for group in case.groups:
        grid.add_column(group.label if group.finished else f"{group.label} (unfinished)", justify="right")
    for part, lines in table.parts(table.lines(case)):
        grid.add_section()
        grid.add_row(Text(part, style="bold"))
        for line in lines:
            grid.add_row(Text(f"  {line.label}"), *map(_cell, line.cells))
    none = Text(f"{case.title}: no headline number was measured; the rows have what was, and the page draws it")
    said: list[RenderableType] = [grid if grid.row_count else none, *_advice(case)]
    for verdict in judge.judge(case):
        if verdict.status == "alone":  # a number that the table has
            continue
        word = Text(f"{verdict.word}: ", style=_COLOURS.get(verdict.status, "bold"))
        said.append(Padding(word + Text(verdict.sentence), (0, 0, 0, 1)))
    return said


def _cell(cell: table.Cell) -> Text:
    return Text(f"{table.MARKS[cell.apart]}{cell.text or '-'}" + (f"\n{cell.interval}" if cell.interval else ""))


def _advice(case: Case) -> list[RenderableType]:
    """What to make of each net, as a table."""
    found = advice.given(case)
    if not found:
        return []
    grid = Table("", "verdict", "what it means", title="What to do with these nets", title_justify="left", title_style="bold")
    grid.caption, grid.caption_justify = advice.note(found) or None, "left"
    for one in found:
        grid.add_row(Text(one.group), Text(one.word, style=_COLOURS[one.status]), Text(one.sentence))
    return [grid]
