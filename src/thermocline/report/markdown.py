"""Facts and verdicts as Markdown: the same sentences and the same table as the page. Standard library only."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from thermocline.report import advice, judge, table, view
from thermocline.report.facts import Case
from thermocline.report.figure import Figure

if TYPE_CHECKING:
    from thermocline.report.page import Report


def page(made: Report, links: Mapping[str, str]) -> str:
    """The whole report; `links` leads from the name of a figure to its file."""
    said = [f"# {plain(view.title(made.summaries))}", plain(view.subtitle(made.summaries))]
    said += [f"> {plain(note)}" for note in made.notes]
    for number, (case, figures) in enumerate(made.drawn, 1):
        if len(made.drawn) > 1:
            said.append(f"## {plain(case.title)}")
        said += _case(case)
        for figure in figures:
            said += _figure(figure, links.get(made.file_name(number, figure), ""))
    said.append("## Glossary")
    for name, words in view.glossary(made.runs.values()).items():
        formula = f" `{words['formula'].replace('`', '')}`" if words["formula"] else ""
        said.append(f"**{plain(name)}** {plain(words['meaning'])}{formula} {plain(words['reference'])}".rstrip())
    return "\n\n".join(said) + "\n"


def _case(case: Case) -> Iterator[str]:
    yield "### Verdicts"
    if found := advice.given(case):
        rows = [(one.group, one.word, one.sentence) for one in found]
        yield _table(("", "verdict", "what it means"), rows)
    if said := advice.note(found):
        yield said
    for verdict in judge.judge(case):
        if verdict.status != "alone":  # else a number that the table has
            yield f"- **{plain(verdict.word)}**: {plain(verdict.sentence)}"
    yield "### Comparison" if len(case.groups) > 1 else "### Numbers"
    rows = []
    for part, lines in table.parts(table.lines(case)):
        rows.append((f"*{part}*", *("" for _ in case.groups)))
        rows += [(line.label, *map(_cell, line.cells)) for line in lines]
    yield _table(("", *(group.label for group in case.groups)), rows)
    kinds = view.intervals(case)
    marks = f"; {table.LEGEND}" if len(case.groups) > 1 else ""
    yield f"Means over seeds, in brackets: {'; '.join(kinds)}{marks}." if kinds else "One seed for each temperature."
    yield "### Figures"


def _figure(figure: Figure, link: str) -> Iterator[str]:
    if link:
        yield f"#### {plain(figure.title)}\n\n![{plain(figure.title)}]({quote(link)})\n\n{plain(figure.sentence)}"
    for name in figure.missing:
        yield f"*{plain(figure.title)}*: not drawn, these runs have no rows of {plain(name)}. {plain(view.hint(name))}"


def _cell(cell: table.Cell) -> str:
    return f"{table.MARKS[cell.apart]}{cell.text}" + (f" [{cell.interval}]" if cell.interval else "")


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(map(_inside, line)) + " |" for line in lines)


def _inside(text: str) -> str:
    emphasis = text[:1] == text[-1:] == "*" and len(text) > 2
    return f"*{plain(text[1:-1])}*" if emphasis else text if text == "---" else plain(text)


def plain(text: str) -> str:
    r"""Text that Markdown shows as it is: no tag, no link, no emphasis, no cell's end, no line's end.

    >>> plain("<b>|_a_|")
    '&lt;b&gt;\\|\\_a\\_\\|'
    """
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", html.escape(" ".join(text.split()), quote=False))
