"""How numbers, claims and provenance are written, the same on every page."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thermocline import spec
from thermocline.experiments._claims import Claim, Quantity
from thermocline.report.estimates import RANGES, Estimate
from thermocline.reproduce.sources import Found, Source
from thermocline.reproduce.study import Study
from thermocline.reproduce.study import unmeasured as gaps_of
from thermocline.reproduce.verdict import SEEDS, Finding

DASH = "–"
WIDE = (-math.inf, math.inf)
COPIES = {  # what a fingerprint of images and labels stands for, where it is known
    "560f193a4d5c": "JPEG copy", "3e76941f57c9": "JPEG copy", "29d58d594a28": "JPEG copy", "014dc031b0f5": "JPEG copy",
    "48b756871254": "JPEG copy", "077bfc62c782": "JPEG copy",
}  # fmt: skip
REDUCED = {
    "value": "", "start": ", first step", "growth": ", last step over first", "lowest": ", lowest of all steps after the first",
    "layers": ", mean over layers", "first half": ", mean over the first half of the layers",
    "second half": ", mean over the second half of the layers", "best layer": ", best layer", "last layer": ", last layer",
    "drop before the last": ", lost at the layer before the last, as a share of the best layer's",
}  # fmt: skip


def number(value: float, quantity: Quantity) -> str:
    """A number as its quantity wants it.

    >>> number(0.5031, Quantity("", "", shown=".1%"))
    '50.3 %'
    """
    return f"{value:{quantity.shown}}".replace("%", " %")


def mean(finding: Finding, place: int) -> str:
    """The mean of an arm over all its seeds."""
    found = finding.arm(place)
    return DASH if found is None else number(found.mean, finding.claim.quantity)


def arm(finding: Finding, place: int) -> str:
    """The mean of an arm over all its seeds, with its interval from three seeds on."""
    found = finding.arm(place)
    return DASH if found is None else _spread(mean(finding, place), _possible(found, finding.claim.quantity), finding.claim)


def _possible(found: Estimate, quantity: Quantity) -> Estimate:
    """The interval, cut where the number cannot be.

    >>> _possible(Estimate(0.9, 0.7, 1.1, 3), Quantity("", "auroc")).high
    1.0
    """
    least, most = WIDE if quantity.by == "growth" else RANGES.get(quantity.measure, WIDE)
    return replace(found, low=max(found.low, least), high=min(found.high, most))


def difference(finding: Finding) -> str:
    """The paired difference with its interval, or the factor; of one arm, which has none, nothing."""
    found, quantity = finding.difference, finding.claim.quantity
    if found is None or len(finding.claim.arms) == 1:
        return DASH
    if quantity.factors:
        found = found.map(math.exp)
        return _spread(f"x {number(found.mean, quantity)}", found, finding.claim)
    return _spread(f"{'+' if found.mean > 0 else ''}{number(found.mean, quantity)}", found, finding.claim)


def _spread(shown: str, found: Estimate, claim: Claim) -> str:
    """A mean with its interval; two seeds are too few for one to say anything, and seeds that are all equal have none."""
    if found.count < SEEDS or claim.exact or found.low == found.high:
        return shown
    return f"{shown} [{number(found.low, claim.quantity)}, {number(found.high, claim.quantity)}]"


def published(claim: Claim) -> str:
    """The numbers printed for its arms, if any are."""
    derived = " (derived)" if claim.derived else ""
    return " → ".join(number(value, claim.quantity) + derived for value in claim.published)


def claimed(claim: Claim) -> str:
    """The claim in words, without its quantity.

    >>> from thermocline.experiments._claims import Arm
    >>> claimed(Claim(Quantity("", "", shown=".0%"), "at least", (Arm("hot"),), bound=0.9))
    'at least 90 % at hot'
    """
    if claim.bound is not None:
        return f"{claim.says} {number(claim.bound, claim.quantity)} at {claim.arms[0].label}"
    if claim.says == "equals":
        return f"equals {number(claim.published[0], claim.quantity)} at {claim.arms[0].label}"
    return f"{claim.says} from {claim.arms[0].label} to {claim.arms[1].label}"


def rows(quantity: Quantity) -> str:
    """Which rows a quantity is made of."""
    parts = [f"measure `{quantity.measure}`", *([f"split `{quantity.split}`"] if quantity.split else [])]
    parts += [f"params with `{', '.join(quantity.where)}`"] if quantity.where else []
    return ", ".join(parts) + REDUCED[quantity.by]


def seeds(finding: Finding) -> str:
    """The seeds that every arm has: 0-2, 5."""
    return ranges(finding.shared) or DASH


def ranges(numbers: Sequence[int]) -> str:
    """Whole numbers in order, neighbours joined.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7, 8'
    """
    found: list[list[int]] = []
    for one in numbers:
        if found and found[-1][-1] == one - 1:
            found[-1].append(one)
        else:
            found.append([one])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in found)


def runs(study: Study) -> str:
    """How many of its runs are there, how many stopped themselves, and how many are of other seeds."""
    found, asked = study.found, study.experiment.runs
    total = len(asked) + bool(study.experiment.computed)
    idle = len({run.name for run in asked} & {one.name for one in found.stopped})
    there = total - len(found.missing) - found.lacks_table - idle
    more = sum(bool(source.settings) for source in found.sources) - (there - (total - len(asked) - found.lacks_table))
    told = [f"{there} of {total}", *([f"{idle} stopped"] if idle else []), *([f"{more} more"] if more else [])]
    return ", ".join(told) if total else DASH


def minutes(source: Source) -> str:
    """How long it took."""
    seconds = source.provenance.get("wall_seconds")
    return f"{seconds / 60:.1f}" if seconds is not None else DASH


def card(source: Source) -> str:
    """What it ran on."""
    hardware: Mapping[str, Any] = source.provenance.get("hardware", {})
    return str(hardware.get("gpu") or hardware.get("cpu") or DASH)


def code(source: Source) -> str:
    """Which code made it: the commit, or where there was no git the fingerprint of the package."""
    given: Mapping[str, Any] = source.provenance
    commit, source_ = given.get("commit"), given.get("source")
    if commit:
        return commit[:7] + ("+changes" if commit.endswith("+changes") else "")
    return f"source {source_}" if source_ else DASH


def images(found: Found) -> list[str]:
    """Every data set that was read, its fingerprint, and whether it is a copy that is known."""
    prints: dict[str, str] = {}
    for source in found.sources:
        for split, fingerprint in source.provenance.get("data", {}).items():
            name = split if "/" in split else f"{source.settings['data.name']}/{split}"
            kind = COPIES.get(fingerprint, "")
            prints.setdefault(f"{name} `{fingerprint}`", f"{name} `{fingerprint}`" + (f" ({kind})" if kind else ""))
    return [prints[key] for key in sorted(prints)]


def lacking(found: Found) -> list[str]:
    """What is still to be run, setting by setting; of runs whose names are alike, with the settings that tell them apart."""
    known = [(_start(run.name), dict(spec.leaves(run))) for run in found.missing]
    known += [(_start(source.name), source.settings) for source in found.sources if source.settings]
    by_setting: dict[str, list[int]] = {}
    for run in found.missing:
        own, alike = dict(spec.leaves(run)), [settings for name, settings in known if name == _start(run.name)]
        apart = [path for path in own if path != "seed" and any(settings.get(path) != own[path] for settings in alike)]
        more = ", ".join(f"{path}={_setting(own[path])}" for path in apart)
        by_setting.setdefault(_start(run.name) + (f" ({more})" if more else ""), []).append(run.seed)
    return [f"{name}: {_seeds(numbers)}" for name, numbers in by_setting.items()]


def _start(name: str) -> str:
    return name.rsplit("-s", 1)[0]


def _setting(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def unmeasured(study: Study, *, of: Collection[str] = ()) -> list[str]:
    """Which finished runs have no number (of some quantities, or all), those with the same gap together, and what would."""
    there = (*study.experiment.runs, *study.found.sources, *study.found.stopped)
    known = 1 + max((one.seed for one in there), default=-1)
    lines = []
    for (numbers, reason), quantities in gaps_of(study, of=of).items():
        by_arms: dict[str, list[str]] = {}
        for quantity, arms in quantities.items():
            by_arms.setdefault(" and ".join(arms), []).append(quantity)
        what = "; ".join(f"{'; '.join(some)} ({arms})" for arms, some in by_arms.items())
        many = len(numbers) > 1
        why = {
            "did not learn": "did not learn", "before the measure": f"{'were' if many else 'was'} made before this measure",
            "not finite": f"{'have' if many else 'has'} no finite value",
        }[reason]  # fmt: skip
        lines.append(f"{what}: {_seeds(numbers)} {why}; `--seeds {known + len(numbers)}` adds others")
    return lines


def _seeds(numbers: Sequence[int]) -> str:
    return f"seed{'s' if len(numbers) > 1 else ''} {ranges(sorted(numbers))}"
