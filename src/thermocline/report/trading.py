"""Transfer against detection: settings that have both, which of them no other beats, and how they are marked in a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thermocline.report.estimates import Estimate
from thermocline.report.facts import Case


@dataclass(frozen=True)
class Setting:
    """Runs alike but for the seed: their means, with intervals over seeds; `front`: whether it is on the Pareto front.

    `seeds` are (seed, transfer, AUROC). Both numbers lie in [0, 1], and so does a mean of them: the part of a t-interval that
    reaches beyond is cut off.
    """

    label: str
    temperature: float
    transfer: Estimate
    auroc: Estimate
    seeds: tuple[tuple[int, float, float], ...]
    front: bool = False

    @property
    def means(self) -> tuple[float, float]:
        """Rounded: those of one number over 3 and over 4 seeds differ in the last bit, which is neither a rank nor a slope."""
        return round(self.transfer.mean, 12), round(self.auroc.mean, 12)

    def marks(self) -> list[dict[str, Any]]:
        """One for the means and, of several seeds, a small one for each."""
        place, many = {"series": f"T = {self.temperature:g}", "label": self.label}, self.auroc.count > 1
        ends = {"x_low": self.transfer.low, "x_high": self.transfer.high, "low": self.auroc.low, "high": self.auroc.high}
        seeds = f"mean of {self.auroc.count}" if many else "one"
        mean = {"kind": "mean", "x": self.transfer.mean, "value": self.auroc.mean, **ends, "seeds": seeds, "front": self.front}
        small = [{"kind": "seed", "x": x, "value": y, "seeds": str(seed), "front": False} for seed, x, y in self.seeds]
        return [{**place, **mark} for mark in [mean, *(small if many else [])]]


def traded(case: Case, name: str) -> list[Setting]:
    """Each temperature by what it keeps for another set, and by how well NECO tells that set apart."""
    found = []
    for group in case.groups:
        drop = group.estimate(lambda one: one.ood_drop.get(name), of="ood_drop")
        auroc = group.estimate(lambda one: one.auroc.get((name, "neco")), of="auroc")
        if drop and auroc and group.judged:
            kept = replace(drop, mean=1 - drop.mean, low=1 - drop.high, high=1 - drop.low)
            both = [one for one in group.members if name in one.ood_drop and (name, "neco") in one.auroc]
            seeds = tuple((one.seed, 1 - one.ood_drop[name], one.auroc[name, "neco"]) for one in both)
            found.append(Setting(group.label, group.temperature, kept, auroc, seeds))
    return fronted(found)


def fronted(settings: Iterable[Setting]) -> list[Setting]:
    """The same, those on the front marked."""
    found = list(settings)
    return [replace(at, front=on) for at, on in zip(found, pareto_front([at.means for at in found]))]


def pareto_front(pairs: Sequence[tuple[float, float]]) -> list[bool]:
    """Which points no other beats, that is, is at least as high in both numbers and higher in one.

    Equal points do not beat each other: they are on the front together or not at all.

    >>> pareto_front([(1, 3), (2, 2), (1, 2), (3, 1), (3, 1)])
    [True, True, False, True, True]
    """
    return [not any(x >= a and y >= b and (x, y) != (a, b) for x, y in pairs) for a, b in pairs]
