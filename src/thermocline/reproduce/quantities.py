"""Rows -> the one number of a run that a quantity names."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable
from typing import Any

from thermocline.experiments._claims import TRAIN_ACCURACY, Arm, Quantity
from thermocline.report import facts
from thermocline.reproduce.sources import Source, Stopped

Rows = list[dict[str, Any]]


def value(source: Source, quantity: Quantity, arm: Arm) -> float | None:
    """The number of one run; None where it has no such rows, or where what they come to (or its logarithm) is not finite.

    Of several kinds of probe the first is read, as in reports. Rows that leave more than one number open are an error: the
    quantity then does not say which.
    """
    rows = select(source, quantity, arm.where)
    number = _REDUCTIONS[quantity.by](rows, quantity) if rows else None
    if number is not None and quantity.over is not None:
        whole = value(source, quantity.over, arm)
        number = number / whole if whole else None
    sound = number is not None and math.isfinite(number) and (number > 0 or not quantity.factors)
    return number if sound else None


def belongs(source: Source | Stopped, arm: Arm) -> bool:
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


def _one(rows: Rows, quantity: Quantity) -> float:
    if len(rows) != 1:
        names = sorted({f"{row['split']} {row['layer']} {row['params']}".strip() for row in rows})
        raise ValueError(f"{quantity.name!r} is {len(rows)} rows, not one: {', '.join(names[:4])}")
    return rows[0]["value"]


def _at(rows: Rows, end: int) -> Rows:
    return [row for row in rows if row["step"] == rows[end]["step"]]


def _value(rows: Rows, quantity: Quantity) -> float:
    return _one(_at(rows, -1), quantity)


def _start(rows: Rows, quantity: Quantity) -> float:
    return _one(_at(rows, 0), quantity)


def _growth(rows: Rows, quantity: Quantity) -> float | None:
    first, last = _one(_at(rows, 0), quantity), _one(_at(rows, -1), quantity)
    return last / first if first else None


def _lowest(rows: Rows, quantity: Quantity) -> float | None:
    steps = sorted({row["step"] for row in rows})[1:]
    found = [_one([row for row in rows if row["step"] == step], quantity) for step in steps]
    return min(found, default=None) if all(map(math.isfinite, found)) else None


def _layers(rows: Rows, quantity: Quantity) -> float:
    return statistics.fmean(row["value"] for row in _at(rows, -1))


def _half(rows: Rows, quantity: Quantity) -> float:
    last = _at(rows, -1)
    middle = last[-1]["depth"] / 2
    some = [row["value"] for row in last if (row["depth"] <= middle) == (quantity.by == "first half")]
    return statistics.fmean(some) if some else math.nan


def _best_layer(rows: Rows, quantity: Quantity) -> float:
    by_layer = [row["value"] for row in _at(rows, -1)]
    return max(by_layer) if all(map(math.isfinite, by_layer)) else math.nan


def _last_layer(rows: Rows, quantity: Quantity) -> float:
    last = _at(rows, -1)
    return _one([row for row in last if row["depth"] == last[-1]["depth"]], quantity)


def _early_drop(rows: Rows, quantity: Quantity) -> float | None:
    by_layer = [row["value"] for row in _at(rows, -1)]
    sound = len(by_layer) > 1 and all(map(math.isfinite, by_layer)) and max(by_layer)
    return (max(by_layer) - by_layer[-2]) / max(by_layer) if sound else None


_REDUCTIONS: dict[str, Callable[[Rows, Quantity], float | None]] = {
    "value": _value, "start": _start, "growth": _growth, "lowest": _lowest, "layers": _layers, "first half": _half,
    "second half": _half, "best layer": _best_layer, "last layer": _last_layer, "drop before the last": _early_drop,
}  # fmt: skip
