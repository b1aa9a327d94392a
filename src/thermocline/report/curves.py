"""Rows -> the points of a chart: mean and range over the seeds of each temperature. Standard library and pyarrow only."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from thermocline.record import Loaded
from thermocline.report import facts
from thermocline.report.facts import Case, parameters, points

Point = dict[str, Any]

SHOWN = ("neco", "neco-maxlogit", "msp", "energy", "knn", "vim", "mahalanobis")  # whose scores and curves are drawn
DECADE = 20  # places of the tolerance slider to a factor of ten
LOWEST = 6  # decades it goes down
HEADLINE_PLACE = round(-DECADE * math.log10(facts.HEADLINE[1]) / 2)  # squares of singular values are a covariance's


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
    for place, shares in _spectra(case, runs):
        shown = ((i, shares[i]) for i in _thin(range(len(shares)), most))
        found += [{**place, "x": i + 1, "value": _round(share)} for i, share in shown if share >= 10.0**-LOWEST]
    return found


def recounted(case: Case, runs: Mapping[str, Loaded]) -> list[Point]:
    """The rank of every layer at each tolerance the slider can have, from all singular values: `counts[place]`."""
    cuts = [10.0 ** (-place / DECADE) for place in range(LOWEST * DECADE + 1)]
    found = []
    for place, shares in _spectra(case, runs):
        rising = shares[::-1]
        counts = [len(rising) - bisect.bisect_right(rising, cut) for cut in cuts]
        found.append({"series": place["series"], "x": place["depth"], "layer": place["layer"], "counts": counts})
    return found


def _spectra(case: Case, runs: Mapping[str, Loaded]) -> Iterator[tuple[Point, list[float]]]:
    """Each layer of the first finished seed of each temperature, and its sigma_i / sigma_1, falling."""
    for group in case.groups:
        run = runs[group.members[0].key]
        for (depth, layer), values in facts.spectra(run).items() if run.finished else ():
            if top := values[0]:
                place = {"series": group.label, "depth": depth, "layer": layer}
                yield place, [value / top for value in values]


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


def histograms(case: Case, runs: Mapping[str, Loaded]) -> list[Point]:
    """The bars of every shown detector's scores, for the first seed of each temperature."""
    found = []
    for group in case.groups:
        parts: dict[tuple[str, str], dict[str, Any]] = {}
        for row in points(runs[group.members[0].key], "score_histogram", last=True):
            given = parameters(row["params"])
            bins = parts.setdefault((facts.set_of(row), given["detector"]), {"id": {}, "ood": {}})
            if given["part"] in ("id", "ood"):
                bins[given["part"]][int(given["bin"])] = row["value"]
            else:
                bins[given["part"]] = row["value"]
            bins["bins"] = int(given["bins"])
        for (name, detector), bins in parts.items():
            if detector in SHOWN:
                edges = [bins["low"] + (bins["high"] - bins["low"]) * i / bins["bins"] for i in range(bins["bins"] + 1)]
                place = {"series": group.label, "set": name, "detector": detector}
                for side, words in (("id", "test images"), ("ood", "other data")):
                    found += [
                        {**place, "side": words, "x": _round(edges[i]), "x2": _round(edges[i + 1]), "value": _round(value)}
                        for i, value in sorted(bins[side].items())
                        if value
                    ]
    return found


def rocs(case: Case, runs: Mapping[str, Loaded]) -> list[Point]:
    """The share of test images kept by the share of other data let through; the mean over seeds."""
    found = []
    for label, rows in _members(case, runs, "roc", last=True):
        values: dict[tuple[str, str, float], list[float]] = {}
        for row in rows:
            given = parameters(row["params"])
            if given["detector"] in SHOWN:
                key = (facts.set_of(row), given["detector"], float(given["fpr"]))
                values.setdefault(key, []).append(row["value"])
        for (name, detector, x), some in values.items():
            place = {"series": label, "set": name, "detector": detector}
            found.append({**place, "x": x, "value": _round(statistics.fmean(some))})
    return found


def confused(run: Loaded) -> list[Point]:
    """The pairs of classes most often confused, most often first."""
    names = run.provenance.get("classes", [])
    found = sorted(facts.parts(run, "confusion", "label", "predicted").items(), key=lambda pair: -pair[1]["share"])
    return [
        {"pair": f"{label} as {predicted}", "label": label, "predicted": predicted, "value": _round(parts["share"]),
         "cosine": _round(parts.get("cosine", 1.0))}
        for pair, parts in found
        for label, predicted in [[names[one] if one < len(names) else str(one) for one in pair]]
    ]  # fmt: skip


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
