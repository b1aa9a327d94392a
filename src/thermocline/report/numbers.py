"""Facts -> the comparison table by itself: LaTeX for a paper, CSV for whatever reads tables. Standard library only."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

from thermocline.report import table, view
from thermocline.report.facts import Case, Group

_ESCAPED = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\u202f": r"\,"}
_HEADS = ("nets", "temperature", "state", "part", "quantity", "measure", "seeds", "mean", "low", "high", "interval")


def tex(cases: Sequence[Case]) -> str:
    """One tabular, a column for each temperature of each net; under a mean over seeds stands its interval."""
    groups = tuple(group for case in cases for group in case.groups)
    whole = Case("", groups)
    said = ["% needs \\usepackage{booktabs}", *(f"% under each mean: {kind}" for kind in view.intervals(whole))]
    said += [rf"\begin{{tabular}}{{l{'r' * len(groups)}}}", r"\toprule"]
    if len(cases) > 1:
        said.append(_row("", *(rf"\multicolumn{{{len(case.groups)}}}{{c}}{{{plain(case.title)}}}" for case in cases)))
    said.append(_row("", *(plain(_label(group)) for group in groups)))
    for part, lines in table.parts(table.lines(whole)):
        said += [r"\midrule", _row(rf"\multicolumn{{{len(groups) + 1}}}{{l}}{{\emph{{{plain(part)}}}}}")]
        for line in lines:
            said.append(_row(plain(line.label), *(plain(cell.text) for cell in line.cells)))
            if any(cell.interval for cell in line.cells):
                small = (cell.interval and rf"{{\scriptsize {plain(cell.interval)}}}" for cell in line.cells)
                said.append(_row("", *small))
    return "\n".join([*said, r"\bottomrule", r"\end{tabular}", ""])


def rows(cases: Sequence[Case]) -> str:
    """The same numbers unrounded, a row each; of one seed there is no interval."""
    written = io.StringIO()
    out = csv.writer(written, lineterminator="\n")
    out.writerow(_HEADS)
    for case in cases:
        for line in table.lines(case):
            for group, cell in zip(case.groups, line.cells, strict=True):
                if (value := cell.value) is not None:
                    about = (case.title, group.temperature, _state(group), line.part.split(" (")[0], line.label, line.measure)
                    spread = (value.low, value.high, value.kind) if value.count > 1 else ("", "", "")
                    out.writerow((*about, value.count, value.mean, *spread))
    return written.getvalue()


WRITERS: dict[str, Callable[[Sequence[Case]], str]] = {"tex": tex, "csv": rows}


def plain(text: str) -> str:
    r"""Text that LaTeX sets as it is.

    >>> plain("T = 1, a_b & 5 %")
    '$T = 1$, a\\_b \\& 5 \\%'
    """
    whole = "".join(_ESCAPED.get(letter, rf"\{letter}" if letter in "#$%&_{}" else letter) for letter in text)
    return re.sub(r"T = ([\d.e+-]*\d)", r"$T = \1$", whole)


def _label(group: Group) -> str:
    return group.label + ("" if _state(group) == "finished" else f" ({_state(group)})")


def _state(group: Group) -> str:
    """What the words of a report say beside such numbers."""
    return "unfinished" if not group.finished else "finished" if group.learned else "not learned"


def _row(*cells: str) -> str:
    return " & ".join(cells) + r" \\"
