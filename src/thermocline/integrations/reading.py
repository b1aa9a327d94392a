"""Rows about attention -> what they say: heads by how fast they disperse, means by length, sentences and terminal tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from thermocline.record import Loaded, parameters

DISPERSING = 0.5  # nats of entropy a nat of log n: half of what full dispersion has


@dataclass(frozen=True)
class Head:
    """One head: its measures by length, and how much of the growth of log n its entropy takes up."""

    depth: int
    layer: str
    number: int
    curves: dict[str, dict[int, float]]

    @property
    def slope(self) -> float | None:
        """d H / d log n by least squares: 1 where attention stays spread over all it sees, 0 where length changes nothing."""
        curve = self.curves["attention_entropy"]
        return statistics.linear_regression(list(map(math.log, curve)), list(curve.values())).slope if len(curve) > 1 else None


def heads(run: Loaded) -> list[Head]:
    """Every head that was measured, layer by layer."""
    found: dict[tuple[int, str, int], dict[str, dict[int, float]]] = {}
    for row in run.rows.to_pylist():
        if row["measure"].startswith("attention_"):
            given = parameters(row["params"])
            curves = found.setdefault((row["depth"], row["layer"], int(given["head"])), {})
            curves.setdefault(row["measure"], {})[int(given["n"])] = row["value"]
    return [Head(*key, curves) for key, curves in sorted(found.items())]


def accuracies(run: Loaded) -> dict[str, dict[int, float]]:
    """How often the maximum was named, by rule and by numbers in the list."""
    found: dict[str, dict[int, float]] = {}
    for row in run.rows.to_pylist():
        if row["measure"] == "maximum_accuracy":
            given = parameters(row["params"])
            found.setdefault(given["rule"], {})[int(given["items"])] = row["value"]
    return found


RULES = {
    "plain": "the model as it is",
    "published": "every head sharpened by the published polynomial of its entropy [velickovic2024softmax]",
    "effective-items": "every head held to as many effective items, exp(entropy), as it has on the shortest lists",
}
"""What the accuracies of a list stand for."""


def evidence(run: Loaded) -> str:
    """What was read, and which of its tokens count."""
    given = [parameters(row["params"]) for row in run.rows.to_pylist() if row["measure"] == "attention_entropy"]
    prompts = {(one["n"], one["queries"]): int(one["prompts"]) for one in given}
    counted = {"last": "last token", "all": "all tokens"}
    words = " or ".join(dict.fromkeys(counted[queries] for _, queries in prompts))
    total = max(sum(count for (_, one), count in prompts.items() if one == queries) for _, queries in prompts)
    return f"{total} inputs, {words} of each"


def lengths(found: Iterable[Head]) -> list[int]:
    """Every length n that was measured, ascending."""
    return sorted({n for head in found for n in head.curves["attention_entropy"]})


def mean(found: Iterable[Head], measure: str, n: int) -> float:
    """Over heads, at one length."""
    return statistics.fmean(head.curves[measure][n] for head in found if n in head.curves[measure])


def most(found: Iterable[Head], n: int) -> float:
    """The mean entropy of heads that spread over every key they see, at one length: log n, or less where windows hide keys."""
    return statistics.fmean(math.log(head.curves["attention_keys"][n]) for head in found if n in head.curves["attention_keys"])


def sentence(found: Sequence[Head]) -> str:
    """Whether attention disperses, with the numbers."""
    at = lengths(found)
    low, high = (mean(found, "attention_entropy", n) for n in (at[0], at[-1]))
    if len(at) == 1:
        return f"One length only, n = {at[0]}: entropy {low:.2f} of at most {most(found, at[0]):.2f} nats, over all heads."
    slopes = [head.slope or 0.0 for head in found]
    many = sum(one >= DISPERSING for one in slopes)
    return (
        f"Mean entropy goes from {low:.2f} nats at n = {at[0]} to {high:.2f} at n = {at[-1]}, where log n grows by"
        f" {math.log(at[-1] / at[0]):.2f}; {many} of {len(slopes)} heads take up at least half of that growth and disperse."
    )


def table(found: Sequence[Head]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Means over all heads by length: titles and lines."""
    titles = ("n", "entropy", "at most", "effective items", "largest weight", "bound", "logit spread")
    lines = []
    for n in lengths(found):
        h, largest, bound, spread = (mean(found, f"attention_{name}", n) for name in ("entropy", "largest", "upper", "spread"))
        numbers = (f"{h:.2f}", f"{most(found, n):.2f}", f"{math.exp(h):.1f}", f"{largest:.3f}", f"{bound:.3f}", f"{spread:.1f}")
        lines.append((str(n), *numbers))
    return titles, lines


def right(run: Loaded) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Accuracy by length of the list and rule: titles and lines; no lines where it was not measured."""
    found = accuracies(run)
    items = sorted({n for curve in found.values() for n in curve})
    return ("numbers in the list", *found), [(str(n), *(f"{curve[n]:.1%}" for curve in found.values())) for n in items]


def steepest(found: Sequence[Head], count: int = 10) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Of the heads that disperse, the fastest: titles and lines."""
    at = lengths(found)
    known = [(head.slope, head) for head in found if head.slope is not None and head.slope >= DISPERSING]
    first = sorted(known, key=lambda one: -one[0])[:count]
    titles = ("layer", "head", "dH / d log n", f"entropy at {at[0]}", f"at {at[-1]}")
    ends = [(head.curves["attention_entropy"].get(at[0]), head.curves["attention_entropy"].get(at[-1])) for _, head in first]
    lines = [
        (f"{head.depth} ({head.layer})", str(head.number), f"{rate:.2f}", *(f"{h:.2f}" if h is not None else "-" for h in both))
        for (rate, head), both in zip(first, ends)
    ]
    return titles, lines


def terminal(run: Loaded) -> Group:
    """The tables and the sentence, as something rich can print."""
    found = heads(run)
    shown: list[Any] = []
    tables = {"attention, means over all heads": table(found), "find the maximum": right(run)}
    tables["heads that disperse fastest"] = steepest(found)
    for title, (titles, lines) in tables.items():
        if lines:
            grid = Table(*titles, title=title, title_justify="left", title_style="bold")
            for line in lines:
                grid.add_row(*line)
            shown.append(grid)
        shown += [Text(f"  {rule}: {words}") for rule, words in RULES.items() if rule in titles and lines]
    return Group(*shown, Text(sentence(found)))
