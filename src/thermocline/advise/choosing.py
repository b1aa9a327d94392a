"""Which setting for which goal: the best at the usual temperature against the best of all others, and what that gives up."""

from __future__ import annotations

import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from thermocline.advise.settings import labelled, subjects
from thermocline.record import Loaded, Paths
from thermocline.report import facts
from thermocline.report.estimates import Estimate, estimate, student
from thermocline.report.facts import Summary
from thermocline.spec import InputError

ENOUGH = 3  # seeds from which on an interval says something

Values = dict["Option", dict[int, float]]  # by seed


@dataclass(frozen=True)
class Option:
    """A setting of the runs and, where there is one to choose, a detector."""

    setting: str
    detector: str = ""


@dataclass(frozen=True)
class Goal:
    """What someone may want of a net: by which number it is judged, which way is better, and the least change that counts."""

    title: str
    number: str
    measure: str
    better: int
    least: float
    read: Callable[[Summary], Mapping[str, float | None]]  # by detector; "" where there is none
    digits: str = ".3f"


@dataclass(frozen=True)
class Change:
    """How far one option is from another, seed by seed, in what a goal is judged by."""

    goal: Goal
    before: Estimate
    after: Estimate
    by: Estimate

    @property
    def status(self) -> str:
        """better or worse: by more than seeds are apart, and enough to count; same: it cannot be enough; or unclear."""
        if self.by.count < ENOUGH:
            return "unclear"
        low, high = sorted((self.by.low * self.goal.better, self.by.high * self.goal.better))
        if -self.goal.least < low <= high < self.goal.least:
            return "same"
        if low <= 0 <= high or abs(self.by.mean) < self.goal.least:
            return "unclear"
        return "better" if low > 0 else "worse"


@dataclass(frozen=True)
class Choice:
    """What is best for a goal at the usual temperature, and the best of all other settings.

    The interval of the change allows for the number of settings that either was chosen from. `besides`: what else changes
    with it, beside the best at the usual temperature for that; those intervals are plain. `idle`: how many runs of the advised
    setting did not learn, of how many; the numbers are of those that did.
    """

    subject: str
    usual: Option
    other: Option
    change: Change
    besides: tuple[Change, ...]
    idle: tuple[int, int] = (0, 0)

    @property
    def goal(self) -> Goal:
        return self.change.goal

    @property
    def seeds(self) -> int:
        return self.change.by.count

    @property
    def setting(self) -> str | None:
        """What to train with; None where seeds do not tell, or it makes no difference."""
        return {"better": self.other.setting, "worse": self.usual.setting}.get(self.change.status)

    @property
    def words(self) -> str:
        """The advice."""
        if self.change.status in ("better", "worse"):
            warning = f" ({self.idle[0]} of {self.idle[1]} runs did not learn)" if self.idle[0] else ""
            return f"{'take' if self.change.status == 'better' else 'stay at'} {self.setting}{warning}"
        if self.change.status == "same":
            return "either: no difference that counts"
        return "not settled" + {1: ": one seed", 2: ": two seeds"}.get(self.seeds, "")


@dataclass(frozen=True)
class Advice:
    """A choice for every goal that the runs can speak to, and what was left out, and why."""

    choices: tuple[Choice, ...]
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The advice in words."""
        several = len({one.subject for one in self.choices}) > 1
        said = (f"{f'{one.subject}, ' * several}{one.goal.title}: {one.words}" for one in self.choices)
        return f"Advice({'; '.join(said)}; see .choices, .left_out)"

    def __getitem__(self, goal: str) -> Choice:
        """The choice for a goal by its title, e.g. "detection, svhn"; of several nets, that of the first."""
        for one in self.choices:
            if one.goal.title == goal:
                return one
        raise KeyError(f"{goal!r}; there are: {', '.join(dict.fromkeys(repr(one.goal.title) for one in self.choices))}")


def advise(runs: Paths | Iterable[Loaded]) -> Advice:
    """What to train with for each goal, from finished runs of several settings and, best, three seeds or more of each.

        d_s = a_s(best of the other settings) - a_s(best at the usual T),  mean d +- t_{1 - 0.025 / m, n - 1} s(d) / sqrt(n)

    The best of m settings seems better than it is, so the interval is as wide as m comparisons ask for [dunn1961multiple]; m is
    that of the side with more of them, since staying is advice too.
    Usual is T = 1 or, without it, the coldest; where that was trained in several ways, the best of them is what others must
    beat. In detection each comes with the detector that is best there.
    """
    summaries, left_out = _ended(facts.summary(runs))
    choices: list[Choice] = []
    for subject, members in subjects(summaries):
        chosen, notes = _choices(subject, members)
        choices += chosen
        left_out += notes
    for line in left_out:
        warnings.warn(line, stacklevel=2)
    if not choices:
        raise InputError(
            "no two temperatures of one net on one data set can be compared; thermocline sweep"
            " --over train.temperature=1,10,100 --over seed=0,1,2 trains some"
        )
    return Advice(tuple(choices), tuple(left_out))


def goals(members: Sequence[Summary]) -> list[Goal]:
    """What the runs were measured for."""
    half = 0.5 / next((one.layers for one in members if one.layers), 20)  # of a layer
    drops = dict.fromkeys(name for one in members for name in one.ood_drop if name not in one.unread)
    every = [
        Goal("accuracy", "test accuracy", "accuracy", +1, 0.005, lambda one: {"": one.test_accuracy}, ".1%"),
        Goal("few layers", "effective depth", "effective_depth", -1, half, _deep, ".2f"),
        *(Goal(f"transfer, {name}", f"OOD drop, {name}", "ood_drop", -1, 0.02, _dropped(name), ".2f") for name in drops),
        *(Goal(f"best layer, {name}", f"best probe, {name}", "accuracy", +1, 0.01, _read(name), ".1%") for name in drops),
        *(Goal(f"detection, {name}", f"AUROC, {name}", "auroc", +1, 0.01, _detected(name)) for name in facts.detected(members)),
        Goal("calibration", "ECE at a fitted T", "ece", -1, 0.01, lambda one: {"": one.ece.get("fitted")}),
    ]  # fmt: skip
    return [goal for goal in every if any(value is not None for one in members for value in goal.read(one).values())]


def _deep(one: Summary) -> Mapping[str, float | None]:
    return {"": None if "test" in one.unread else one.effective_depth}


def _dropped(name: str) -> Callable[[Summary], Mapping[str, float | None]]:
    return lambda one: {"": None if name in one.unread else one.ood_drop.get(name)}


def _read(name: str) -> Callable[[Summary], Mapping[str, float | None]]:
    def best(one: Summary) -> float | None:
        layers = () if name in one.unread else one.probes.get(name, ())
        return max((right for _, _, right in layers), default=None)

    return lambda one: {"": best(one)}


def _detected(name: str) -> Callable[[Summary], Mapping[str, float | None]]:
    return lambda one: {detector: value for (ood, detector), value in one.auroc.items() if ood == name}


def _ended(summaries: Sequence[Summary]) -> tuple[list[Summary], list[str]]:
    """The runs that came to an end, be it that they stopped themselves; and a line on every one that is not judged."""
    left_out = []
    for one in summaries:
        if one.stopped:
            left_out.append(f"{one.name} is left out: it stopped itself: {one.stopped}")
        elif not one.finished:
            left_out.append(f"{one.name} is left out: it is unfinished")
        elif not one.learned:
            left_out.append(f"{one.name} is left out: it has not learned (training accuracy {one.train_accuracy:.1%})")
    return [one for one in summaries if one.finished or one.stopped], left_out


def _choices(subject: str, members: Sequence[Summary]) -> tuple[list[Choice], list[str]]:
    """A choice for every goal that two settings can compete for, and what could not."""
    every = labelled(members)
    learned = [one.finished and one.learned for one in members]
    ran, idle = Counter(every), Counter(label for label, did in zip(every, learned) if not did)
    members, labels = list(compress(members, learned)), list(compress(every, learned))
    usual = _usual(members, labels) if members else set()
    if set(labels) == usual:
        return [], [f"{subject} is left out: all its runs that can be judged have one temperature"] if members else []
    tables: list[tuple[Goal, Values, Values]] = []
    lost: dict[str, list[str]] = {}  # goals by what they go without
    for goal in (wanted := goals(members)):
        values = _values(goal, members, labels)
        kept = _shared(values, usual)
        ours, others = ({at: kept[at] for at in kept if (at.setting in usual) == own} for own in (True, False))
        if kept:
            tables.append((goal, ours, others))
        for one in _lost(values, kept):
            lost.setdefault(one, []).append(goal.title)
    notes = []
    for one, titles in lost.items():
        of = subject if len(titles) == len(wanted) else f"{subject} ({'; '.join(titles)})"
        few = f"{one} is left out of {of}: it lacks seeds that the others have"
        notes.append(few if one else f"{of} is left out: no seed was measured both at the usual temperature and at another")
    choices = [_choice(subject, *table, tables) for table in tables]
    return [replace(one, idle=(idle[one.setting or ""], ran[one.setting or ""])) for one in choices], notes


def _usual(members: Sequence[Summary], labels: Sequence[str]) -> set[str]:
    """The settings at the usual temperature: 1 or, where nothing was trained at it, the lowest that stayed as it was."""
    constant = [one.settings["train.temperature_schedule"] == "constant" for one in members]
    kept = [(one, label) for one, label, stays in zip(members, labels, constant) if stays or not any(constant)]
    at = min((one.temperature for one, _ in kept), key=lambda temperature: (temperature != 1, temperature))
    return {label for one, label in kept if one.temperature == at}


def _values(goal: Goal, members: Sequence[Summary], labels: Sequence[str]) -> Values:
    """What each option got, by seed."""
    found: Values = {}
    for one, label in zip(members, labels):
        for detector, value in goal.read(one).items():
            if value is not None:
                found.setdefault(Option(label, detector), {}).setdefault(one.seed, value)
    return found


def _shared(values: Values, usual: set[str]) -> Values:
    """The options at the seeds they have in common, without those that would cost the others theirs.

    Of what two options share, or all with as many seeds as one: enough seeds, then as many settings, then as many seeds as can
    be. One at the usual temperature stays, and one other.
    """
    sets = {frozenset(by_seed) for by_seed in values.values()}
    shared = {one & other for one in sets for other in sets}
    shared |= {frozenset.intersection(*(other for other in sets if len(other) >= len(one))) for one in sets}
    best: list[Option] = []
    ranks, common = (0, 0, 0), frozenset[int]()
    for seeds in sorted(shared, key=sorted):
        kept = [at for at, by_seed in values.items() if seeds <= by_seed.keys()]
        settings = {at.setting for at in kept}
        rank = (min(len(seeds), ENOUGH), len(settings), len(seeds))
        if settings & usual and settings - usual and seeds and rank > ranks:
            best, ranks, common = kept, rank, seeds
    return {at: {seed: values[at][seed] for seed in sorted(common)} for at in best}


def _lost(values: Values, kept: Values) -> list[str]:
    """The settings, and detectors at settings, that are not among those kept; "" where nothing was."""
    if not kept:
        return [""]
    settings = {at.setting for at in kept}
    lost = [f"{at.detector} at {at.setting}" if at.setting in settings else at.setting for at in values if at not in kept]
    return list(dict.fromkeys(lost))


def _choice(subject: str, goal: Goal, ours: Values, others: Values, tables: Iterable[tuple[Goal, Values, Values]]) -> Choice:
    usual, other = _best(ours, goal), _best(others, goal)
    among = max(len({at.setting for at in side}) for side in (ours, others))
    change = _change(goal, ours[usual], others[other], among=among)
    besides = []
    for further, before, after in tables:
        after = {at: by_seed for at, by_seed in after.items() if at.setting == other.setting}
        if further is not goal and after:
            besides.append(_change(further, before[_best(before, further)], after[_best(after, further)], among=1))
    return Choice(subject, usual, other, change, tuple(besides))


def _best(values: Values, goal: Goal) -> Option:
    """The option with the best mean; the first of several. Rounded: means of equal numbers may differ in the last bit."""
    return max(values, key=lambda at: round(goal.better * statistics.fmean(values[at].values()), 12))


def _change(goal: Goal, before: Mapping[int, float], after: Mapping[int, float], *, among: int) -> Change:
    """Seed by seed, with an interval as wide as the best of so many comparisons asks for."""
    was, now = (estimate(values.values(), of=goal.measure) for values in (before, after))
    by = estimate(after[seed] - before[seed] for seed in before)
    assert was
    assert now
    assert by
    return Change(goal, was, now, _widened(by, among))


def _widened(one: Estimate, among: int) -> Estimate:
    if one.count < ENOUGH:
        return one
    factor = student(one.count, among=among) / student(one.count)
    return replace(one, low=one.mean + factor * (one.low - one.mean), high=one.mean + factor * (one.high - one.mean))
