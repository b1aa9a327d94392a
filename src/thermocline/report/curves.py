"""Rows -> the points of a chart: mean and range over the seeds of each temperature. Standard library and pyarrow only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from thermocline.record import Loaded
from thermocline.report import facts
from thermocline.report.facts import Case, parameters, points

Point = dict[str, Any]


def curve(
    case: Case, runs: Mapping[str, Loaded], measure: str, *, x: str, last: bool = False, where: Callable[[Point], bool] = bool
) -> list[Point]:
    """One point for each temperature and value of column `x`; `last`: from the last step only."""
    found = []
    for label, rows in _members(case, runs, measure, last=last):
        values: dict[Any, list[float]] = {}
        layers: dict[Any, str] = {}
        for row in filter(where, rows):
            values.setdefault(row[x], []).append(row["value"])
            layers[row[x]] = row["layer"]
        found += [{"series": label, "x": at, "layer": layers[at], **_spread(values[at])} for at in sorted(values)]
    return found


def spectra(case: Case, runs: Mapping[str, Loaded], *, most: int) -> list[Point]:
    """sigma_i / sigma_1 of every layer by index from 1, for the first finished seed of each temperature.

    A long spectrum is thinned to about `most` indices, evenly spaced on a log axis; values below 1e-6 are left out.
    """
    found = []
    for group in case.groups:
        run = runs[group.members[0].key]
        if not run.finished:
            continue
        layers: dict[tuple[int, str], dict[int, float]] = {}
        for row in points(run, "singular_value", last=True):
            index = int(parameters(row["params"])["index"])
            layers.setdefault((row["depth"], row["layer"]), {})[index] = row["value"]
        for (depth, layer), values in sorted(layers.items()):
            shown = [(i, values[i] / values[0]) for i in _thin(sorted(values), most) if values.get(0)]
            found += [
                {"series": group.label, "depth": depth, "layer": layer, "x": i + 1, "value": _round(share)}
                for i, share in shown
                if share >= 1e-6
            ]
    return found


def reliability(case: Case, runs: Mapping[str, Loaded], at: str) -> list[Point]:
    """Accuracy by confidence, one point for each temperature and bin, its seeds pooled as if they were one set of samples."""
    found = []
    for group in case.groups:
        bins: dict[int, list[dict[str, float]]] = {}
        for member in group.members:
            for index, part in facts.reliability(runs[member.key], at).items():
                bins.setdefault(index, []).append(part)
        total = sum(part["count"] for parts in bins.values() for part in parts)
        for _, parts in sorted(bins.items()):
            count = sum(part["count"] for part in parts)
            confidence, accuracy = (sum(p["count"] * p[name] for p in parts) / count for name in ("confidence", "accuracy"))
            numbers = {"x": confidence, "value": accuracy, "share": count / total}
            found.append({"series": group.label, "count": count, **{name: _round(value) for name, value in numbers.items()}})
    return found


def _members(case: Case, runs: Mapping[str, Loaded], measure: str, *, last: bool) -> Iterator[tuple[str, list[Point]]]:
    for group in case.groups:
        rows = [row for member in group.members for row in points(runs[member.key], measure, last=last)]
        yield group.label, rows


def _spread(values: Sequence[float]) -> Point:
    return {"value": _round(statistics.fmean(values)), "low": _round(min(values)), "high": _round(max(values))}


def _thin(indices: Sequence[int], most: int) -> list[int]:
    """At most about `most` of the indices, the first and last among them.

    >>> _thin(range(1000), 4)
    [0, 9, 99, 999]
    """
    if len(indices) <= most:
        return list(indices)
    top = math.log(len(indices))
    return sorted({indices[round(math.exp(top * i / (most - 1))) - 1] for i in range(most)})


def _round(value: float) -> float:
    """Five digits are more than a chart can show, and keep the page small."""
    return float(f"{value:.5g}")
