"""Numbers by seed -> a verdict in words. The rule is written once, here.

d_s = hot_s - cold_s over the seeds s that both arms have,   mean(d) +- t_{0.975, n-1} std(d) / sqrt(n)   [student1908mean]

and of what moves by factors d_s = ln(hot_s / cold_s).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scipy.special import stdtr

from thermocline.experiments._claims import Claim
from thermocline.report.estimates import Estimate, estimate, plural, student

HOLDS, DIRECTION, FAILS, UNDECIDED, ABSENT = "holds", "holds in direction", "does not hold", "undecided", "not run here"
WORDS = (HOLDS, DIRECTION, FAILS, UNDECIDED, ABSENT)
SEEDS = 3  # that a verdict needs
MOST = 100  # seeds beyond which it is not said how many are needed
ALIKE = 0.05  # training accuracies that differ by more are said beside a verdict
RULE = (
    "A claim is judged by the difference between its two arms, seed by seed: its mean and Student's 95 % interval over the"
    " seeds that both arms have, at least three. The interval shown beside one arm's mean ends where the number does, as an"
    " AUROC at 1.",
    "**Holds**: the interval excludes 0 in the published direction, and the mean difference is at least half the published"
    " one.",
    "**Holds in direction**: it excludes 0 in that direction, but the difference is smaller.",
    "**Does not hold**: the interval is 0 or lies on the other side of it, or it lies wholly below a tenth of the"
    " published difference, even if it excludes 0.",
    "**Undecided**: anything else, and every claim with fewer than three shared seeds that is not exact.",
    "Where printed numbers differ by no more than the margin, the claim is that the quantity stays.",
    "Where only a direction is claimed, it is enough that the interval excludes 0. For ranks counted in other ways than in"
    " table 1 it must exclude a change of one, which the direction that all classes share can make; if the interval does"
    " not exceed one, the claim does not hold. This margin was set after the rows of controls/rank-threshold had been seen.",
    "Distances from neural collapse (NC1 to NC3) lie above 0 and span decades. Their means and intervals are those of the"
    " logarithm, and arms are compared by their ratio. This was settled after the rows of a ResNet-18 on CIFAR-100 existed,"
    " whose differences decided nothing, and before two of three seeds of a ResNet-34 did.",
    "A claim that something stays, or equals a number, holds when the interval lies within the margin, and does not when"
    " it lies outside. A claim of a bound holds when the interval over seeds keeps to it, and does not when the interval"
    " lies beyond. An exact claim must be true of every seed, and one seed is enough for it; one seed against it is enough"
    " for it not to hold.",
    "Counts, such as those of layers and directions, can be equal in all seeds. The interval then has no width, and the"
    " verdict says so: it is as sure as that many seeds that agree, and no surer.",
    "About one interval in twenty misses by chance alone. Every seed that was run is counted, except trials (mostly at"
    " seed 99), ten seeds of retrieval that were looked at before its twenty were named, and early runs of"
    " table1/cifar100-resnet18, which were made anew with all measures. Where a seed has no number for a measure, the"
    " experiment's page says so.",
    "Experiments that compare trained nets on built-in data have six seeds; the last three were added to all of them,"
    " whatever the first three had shown. prop32 has three, and so has figure8, whose nets are untrained.",
    "What was found on the very rows it is judged by describes these nets and confirms nothing. It is marked as such, and"
    " counted apart.",
    "How many more seeds it would take is given for planning only: adding seeds until an interval excludes 0 would make it"
    " too narrow.",
    "A net has not learned if at the end it gets fewer than three times as many training images right as guessing does"
    " (with few classes: if it gains less than a quarter of what guessing misses). Its seed is left out. So is a run that"
    " stopped itself, which the page names. Where training accuracies differ by more than 5 points, the verdict says so.",
    "Nothing was chosen on test data, except what is defined that way (NECO at its oracle, a best layer) and what was set"
    " in trials at seed 0 that printed test accuracy: the recipe on runes (docs/decisions.md), the learning rate and"
    " temperatures of appendix/mse, and the depth and epochs of prop32.",
)


@dataclass(frozen=True)
class Verdict:
    """One of `WORDS`, and why in a sentence."""

    word: str
    why: str


@dataclass(frozen=True)
class Finding:
    """A claim with its numbers, by arm and seed, and what they say. Of what moves by factors `difference` is the logarithm."""

    claim: Claim
    values: tuple[Mapping[int, float], ...]
    difference: Estimate | None
    verdict: Verdict

    @property
    def shared(self) -> list[int]:
        """The seeds that every arm has."""
        return sorted(set.intersection(*(set(arm) for arm in self.values)))

    def arm(self, place: int) -> Estimate | None:
        """Mean and interval of one arm over all its seeds; of what moves by factors, those of the logarithm, taken back."""
        values = self.values[place].values()
        if not self.claim.quantity.factors:
            return estimate(values)
        return logs.map(math.exp) if (logs := estimate(math.log(value) for value in values)) else None


def judge(claim: Claim, values: Sequence[Mapping[int, float]]) -> Finding:
    """The finding of a claim from its numbers by arm and seed."""
    shared = sorted(set.intersection(*(set(arm) for arm in values)))
    if len(claim.arms) == 2:
        numbers = [_paired(values[0][seed], values[1][seed], factors=claim.quantity.factors) for seed in shared]
    else:
        numbers = [values[0][seed] for seed in shared]
    found = estimate(numbers)
    if found is None:
        return Finding(claim, tuple(values), None, Verdict(ABSENT, _lacking(claim, values)))
    few = 1 if claim.exact else SEEDS
    if found.count < few:
        need = few - found.count
        why = f"{plural(found.count, 'shared seed')}; {need} more needed"
        return Finding(claim, tuple(values), found, Verdict(UNDECIDED, why))
    if claim.exact:  # true of every draw, or not
        found = replace(found, low=min(numbers), high=max(numbers))
    verdict = {"falls": _moves, "rises": _moves, "stays": _within, "equals": _within}.get(claim.says, _bounded)(claim, found)
    if claim.exact and verdict.word == UNDECIDED:  # some seeds are inside and some are not
        verdict = Verdict(FAILS, "not true of every seed")
    if found.count > 1 and len(set(numbers)) == 1:  # no spread to make an interval of
        verdict = Verdict(verdict.word, f"{verdict.why}; all seeds equal")
    if claim.found:
        verdict = Verdict(verdict.word, f"found on these rows; {verdict.why}")
    return Finding(claim, tuple(values), found, verdict)


def without(finding: Finding, idle: Sequence[str], *, why: str) -> Finding:
    """The finding of a claim of whose arms some were tried, and gave nothing to read: no net of theirs learned, or ended."""
    return replace(finding, verdict=Verdict(UNDECIDED, f"no net of {' and '.join(idle)} {why}"))


def beside(finding: Finding, reached: Sequence[Mapping[int, float]]) -> Finding:
    """The finding with what training reached said beside it, where accuracies are far apart."""
    shared = [seed for seed in finding.shared if all(seed in arm for arm in reached)]
    if len(reached) != 2 or not shared:
        return finding
    cold, hot = (statistics.fmean(arm[seed] for seed in shared) for arm in reached)
    if abs(hot - cold) <= ALIKE:
        return finding
    why = f"{finding.verdict.why}; but training accuracy goes from {100 * cold:.0f} to {100 * hot:.0f} %"
    return replace(finding, verdict=Verdict(finding.verdict.word, why))


def _paired(cold: float, hot: float, *, factors: bool = False) -> float:
    """hot - cold to twelve digits of the larger: what is left below is rounding. Of factors, ln(hot / cold).

    >>> _paired(0.3, 0.1 + 0.2), _paired(0.3, 0.1 + 0.2, factors=True)
    (0.0, 0.0)
    """
    if factors:
        return round(math.log(hot / cold), 12) + 0.0
    size = max(abs(cold), abs(hot))
    return round(hot - cold, 12 - math.floor(math.log10(size))) + 0.0 if size else 0.0


def _moves(claim: Claim, d: Estimate) -> Verdict:
    if claim.says == "falls":
        d = Estimate(-d.mean, -d.high, -d.low, d.count)
    size = abs(claim.published[1] - claim.published[0]) if claim.published else 0.0
    least = claim.margin or 0.0
    known = f"the {'derived' if claim.derived else 'published'} difference"
    if d.high <= 0:
        return Verdict(FAILS, "there is no difference" if d.low == d.high == 0 else "the difference is the other way")
    if d.high <= least:
        return Verdict(FAILS, f"the difference is no more than {least:.3g}")
    if d.high < size / 10:
        return Verdict(FAILS, f"below a tenth of {known}")
    if d.low > least:
        if d.mean >= size / 2:
            odds = "" if claim.exact else _chance(d)
            return Verdict(HOLDS, f"{100 * d.mean / size:.0f} % of {known}" if size else f"the direction is clear{odds}")
        return Verdict(DIRECTION, f"{100 * d.mean / size:.0f} % of {known}")
    so_far = ", and so far the difference is the other way" if d.mean < 0 else ""
    small = f"; it excludes half {known}" if d.high < size / 2 else ""
    edge = "1" if claim.quantity.factors else f"{least:.3g}"  # a factor of 1
    return Verdict(UNDECIDED, f"the interval includes {edge}{so_far}{small}; {_more(d, least)}")


def _chance(d: Estimate) -> str:
    """How often a difference as large would come about by chance alone, by Student's test, where it has a spread."""
    half = (d.high - d.low) / 2
    if not half:
        return ""
    p = 2 * float(stdtr(d.count - 1, -abs(d.mean) / half * student(d.count)))
    return f", p = {p:.1g}"


def _within(claim: Claim, d: Estimate) -> Verdict:
    assert claim.margin is not None, f"{claim.quantity.name}: {claim.says} needs a margin"
    centre = claim.published[0] if claim.says == "equals" else 0.0
    low, high = d.low - centre, d.high - centre
    if -claim.margin <= low and high <= claim.margin:
        return Verdict(HOLDS, f"within {claim.margin:.3g}")
    if low > claim.margin or high < -claim.margin:
        return Verdict(FAILS, f"off by more than {claim.margin:.3g}")
    return Verdict(UNDECIDED, f"the interval reaches beyond {claim.margin:.3g}")


def _bounded(claim: Claim, d: Estimate) -> Verdict:
    assert claim.bound is not None, f"{claim.quantity.name}: {claim.says} needs a bound"
    sign = 1 if claim.says == "at least" else -1
    nearest, farthest = sorted((sign * (d.low - claim.bound), sign * (d.high - claim.bound)))
    bound = f"{claim.bound:{claim.quantity.shown}}".replace("%", " %")
    if nearest >= 0:
        return Verdict(HOLDS, f"{claim.says} {bound}")
    if farthest < 0:
        return Verdict(FAILS, f"not {claim.says} {bound}")
    return Verdict(UNDECIDED, f"the interval includes {bound}; {_more(d, claim.bound)}")


def _more(d: Estimate, target: float) -> str:
    """How many seeds more, if mean and spread stay as they are, would move the interval off a value."""
    spread = (d.high - d.mean) * math.sqrt(d.count) / student(d.count)
    for count in range(d.count + 1, MOST + 1):
        if student(count) * spread / math.sqrt(count) < abs(d.mean - target):
            return f"at this spread it would take about {plural(count - d.count, 'more seed')} to tell"
    return f"at this spread it would take over {MOST} seeds to tell"


def _lacking(claim: Claim, values: Sequence[Mapping[int, float]]) -> str:
    without = [arm.label for arm, found in zip(claim.arms, values) if not found]
    return f"no rows of {' and '.join(without)}" if without else "no seed in both arms"
