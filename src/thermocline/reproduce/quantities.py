"""Rows -> the one number of a run that a quantity names."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable
from typing import Any

from thermocline.experiments._claims import TRAIN_ACCURACY, Arm, Quantity
from thermocline.report import facts
from thermocline.reproduce.sources import Source

Rows = list[dict[str, Any]]


def value(source: Source, quantity: Quantity, arm: Arm) -> float | None:
    """The number of one run; None where it has no such rows, or where what they come to (or its logarithm) is not finite.

    Of several kinds of probe the first is read, as in reports. Rows that leave more than one number open are an error: the
    quantity then does not say which.
    """
    rows = select(source, quantity, arm.where)
    number = _reduced(rows, quantity) if rows else None
    sound = number is not None and math.isfinite(number) and (number > 0 or not quantity.factors)
    return number if sound else None


def belongs(source: Source, arm: Arm) -> bool:
    """Whether a run is one of an arm's; computed rows, which have no settings, belong to arms that ask for none."""
    return all(path in source.settings and source.settings[path] == wanted for path, wanted in arm.settings.items()) and (
        bool(source.settings) or not arm.settings
    )


def values(sources: Iterable[Source], quantity: Quantity, arm: Arm) -> dict[int, float]:
    """The number of every run of an arm, by seed."""
    found: dict[int, float] = {}
    for source in sources:
        if belongs(source, arm) and (number := value(source, quantity, arm)) is not None:
            found.setdefault(source.seed, number)
    return dict(sorted(found.items()))


def reached(sources: Iterable[Source], quantity: Quantity, arm: Arm) -> dict[int, float]:
    """An accuracy of every run of an arm, which rows of some probe or detector that tell the arm apart are not."""
    return values(sources, quantity, dataclasses.replace(arm, where=()) if arm.settings else arm)


def needs_learning(quantity: Quantity) -> bool:
    """Whether it is about what training made of a net, and is not itself how well that went."""
    return quantity.measure not in ("accuracy", "loss") and quantity.by != "start"


def learned(source: Source) -> bool:
    """Whether a run ended with several times as many training images right as guessing gets, or where older runs began."""
    rows = select(source, TRAIN_ACCURACY)
    return len(rows) < 2 or facts.learned(rows[-1]["value"], guessing=source.provenance.get("guessing", rows[0]["value"]))


def select(source: Source, quantity: Quantity, more: Iterable[str] = ()) -> Rows:
    """The rows that a quantity is made of, in order of step and layer."""
    wanted = {*quantity.where, *more}
    rows = [row for row in source.of(quantity.measure) if not quantity.split or row["split"] == quantity.split]
    rows = [row for row in rows if wanted <= set(row["params"].split(","))]
    kinds = list(dict.fromkeys(_probe(row) for row in rows))
    rows = [row for row in rows if _probe(row) == kinds[0]]
    return sorted(rows, key=lambda row: (row["step"], row["depth"]))


def _probe(row: dict[str, Any]) -> str:
    return next((word for word in row["params"].split(",") if word.startswith("probe=")), "")


def _reduced(rows: Rows, quantity: Quantity) -> float | None:
    first, last = (_at(rows, rows[end]["step"]) for end in (0, -1))
    by_layer, deepest = [row["value"] for row in last], last[-1]["depth"]
    match quantity.by:
        case "value":
            return _one(last, quantity)
        case "start":
            return _one(first, quantity)
        case "growth":
            begun = _one(first, quantity)
            return _one(last, quantity) / begun if begun else None
        case "lowest":
            later = sorted({row["step"] for row in rows})[1:]
            return _of_finite(min, [_one(_at(rows, step), quantity) for step in later])
        case "layers":
            return statistics.fmean(by_layer)
        case "first half" | "second half":
            some = [row["value"] for row in last if (row["depth"] <= deepest / 2) == (quantity.by == "first half")]
            return statistics.fmean(some) if some else None
        case "best layer":
            return _of_finite(max, by_layer)
        case "last layer":
            return _one([row for row in last if row["depth"] == deepest], quantity)
        case "drop before the last":
            best = _of_finite(max, by_layer)
            return (best - by_layer[-2]) / best if best and len(by_layer) > 1 else None


def _at(rows: Rows, step: int) -> Rows:
    return [row for row in rows if row["step"] == step]


def _one(rows: Rows, quantity: Quantity) -> float:
    if len(rows) != 1:
        names = sorted({f"{row['split']} {row['layer']} {row['params']}".strip() for row in rows})
        raise ValueError(f"{quantity.name!r} is {len(rows)} rows, not one: {', '.join(names[:4])}")
    return rows[0]["value"]


def _of_finite(pick: Callable[[list[float]], float], numbers: list[float]) -> float | None:
    """The least or largest of some, or none: what is not finite might be it."""
    return pick(numbers) if numbers and all(map(math.isfinite, numbers)) else None
