"""Transfer against detection: runs to points, means over seeds, a Pareto front, a correlation and its verdict in words."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from thermocline.advise.association import LEAST, Correlation, pearson, spearman
from thermocline.advise.settings import labelled, subjects
from thermocline.record import Loaded, Paths
from thermocline.report import facts
from thermocline.report.estimates import estimate, plural
from thermocline.report.facts import Summary
from thermocline.report.trading import Setting, fronted
from thermocline.spec import InputError, unknown

DETECTOR = "neco"
"""What is shown where no detector is asked for: the one that temperature is said to help."""

NO_DROP = "it has no ood_drop, for which probes need its training images and labels"

_WORDS = {
    "present": ("Trade-off", "move against each other", "the paper's trade-off holds here"),
    "turned": ("Trade-off turned round", "move against each other", "but here it is the hotter settings that transfer better"),
    "reversed": ("No trade-off", "move together", "the paper's trade-off does not hold here"),
    "unclear": ("Unclear", "have no clear relation", "these settings do not settle it"),
    "alone": ("No verdict", "", ""),
}


@dataclass(frozen=True)
class Point:
    """One run, seen by one detector on one other data set; `transfer` is 1 - rho."""

    run: str
    subject: str
    setting: str
    temperature: float
    seed: int
    ood: str
    detector: str
    transfer: float
    auroc: float


@dataclass(frozen=True)
class Relation:
    """How transfer and detection go together, for one net on one data set, one other set and one detector.

    Correlated are the means of settings. Seeds of one setting share whatever it does to either number: taken for
    independent, runs of 4 to 9 settings that have nothing to do with each other would seem related in 10 to 56 % of cases.
    """

    subject: str
    ood: str
    detector: str
    points: tuple[Point, ...]
    settings: tuple[Setting, ...]
    pearson: Correlation | None
    spearman: Correlation | None

    @property
    def status(self) -> str:
        """Which way it falls; "turned": there is a trade-off, but heat moves along it the other way than in the paper."""
        if self.pearson is None:
            return "alone"
        if self.pearson.high < 0:
            heat = pearson([math.log(at.temperature) for at in self.settings], [at.transfer.mean for at in self.settings])
            return "turned" if heat and heat.value > 0 else "present"
        return "reversed" if self.pearson.low > 0 else "unclear"

    @property
    def word(self) -> str:
        return _WORDS[self.status][0]

    @property
    def sentence(self) -> str:
        """The verdict in words, from the interval of the linear correlation."""
        both = f"transfer and {_spelled(self.detector)} detection on {self.ood}"
        count = len(self.settings)
        over = f"{plural(count, 'setting')} ({plural(len(self.points), 'run')})"
        if self.pearson is None:
            few = f"a correlation needs {LEAST} settings" if count < LEAST else "one of the two is the same in all of them"
            return f"{over} cannot say how {both} move together: {few}."
        _, move, meaning = _WORDS[self.status]
        by_rank = f" By rank: {self.spearman}." if self.spearman else ""
        return f"Over {over}, {both} {move}: r = {self.pearson}; {meaning}.{by_rank}"


@dataclass(frozen=True)
class Tradeoff:
    """Every relation that the runs can speak to, and which runs were left out, and why."""

    relations: tuple[Relation, ...]
    left_out: tuple[str, ...] = ()

    @property
    def points(self) -> list[Point]:
        return [point for relation in self.relations for point in relation.points]

    @property
    def headline(self) -> list[Relation]:
        """The relations to show in full: those of NECO or, where it was not measured or not asked for, all."""
        return [one for one in self.relations if one.detector == DETECTOR] or list(self.relations)

    def only(self, *, detector: str = "", ood: str = "") -> Tradeoff:
        """The part of it about one detector, one other data set, or both."""
        kept = self.relations
        for what, word in (("detector", detector), ("ood", ood)):
            known = list(dict.fromkeys(getattr(one, what) for one in self.relations))
            if what == "detector":  # which are typed in any case
                word = next((name for name in known if name.lower() == word.lower()), word)
            if word and word not in known:
                if said := [line for line in self.left_out if line.startswith(f"{word} is left out")]:
                    raise InputError(said[0])
                raise unknown({"detector": "detector", "ood": "OOD set"}[what], word, known)
            kept = tuple(one for one in kept if word in ("", getattr(one, what)))
        if not kept:
            raise InputError(f"no run has both: detector {detector} on {ood}")
        return dataclasses.replace(self, relations=kept)


def tradeoff(runs: Paths | Iterable[Loaded]) -> Tradeoff:
    """Transfer against detection, for every net on every data set, every other set and every detector among the runs.

        transfer = 1 - rho,   detection = AUROC                               [masarczyk2025softmax, App. M]

    Both are of the last step, rho by the first probe. Settings are correlated, by their means over seeds, within one net, data
    set and probe: between them, both numbers move for other reasons. Means over seeds have the intervals of `report`, cut to
    [0, 1]: Student's t from three seeds on, the range of two, none of one. A run without the numbers, and a set
    that lacks one of them in a run, is left out with a warning.
    """
    summaries, left_out = _usable(facts.summary(runs))
    found = []
    for subject, members in subjects(summaries):
        points = list(_points(members, subject))
        for key in dict.fromkeys((point.ood, point.detector) for point in points):
            found.append(_relation([point for point in points if (point.ood, point.detector) == key]))
    return Tradeoff(tuple(found), tuple(left_out))


def _usable(summaries: Sequence[Summary]) -> tuple[list[Summary], list[str]]:
    """The runs that have both numbers of one set at least, and a line on every other run and on every other set of theirs."""
    lacking = [_lacking(one) for one in summaries]
    used = [one for one, why in zip(summaries, lacking) if not why]
    left_out = [f"{one.name} is left out: it {why}" for one, why in zip(summaries, lacking) if why]
    left_out += _sets_left_out(used)
    for line in left_out:
        warnings.warn(line, stacklevel=3)
    if not used:
        raise InputError(
            f"none of {len(summaries)} runs learned and has both ood_drop and auroc of one set: train to the end, or scan, with"
            " measures=all and --ood NAME, a set with training images and labels; thermocline report shows what there is"
        )
    return used, left_out


def _lacking(one: Summary) -> str:
    if not one.finished:
        return "is unfinished"
    if not one.learned:
        return f"has not learned (training accuracy {one.train_accuracy:.1%})"
    if not (sets := _sets(one)):
        return f"has no rows of {'auroc' if one.ood_drop else 'ood_drop or auroc'}"
    return f"cannot weigh {'; nor '.join(f'{ood}: {why}' for ood, why in sets.items())}" if all(sets.values()) else ""


def _sets(one: Summary) -> dict[str, str]:
    """The sets that detectors were shown, and why one cannot be weighed, if so."""
    found = {}
    for ood, _ in one.auroc:
        unread = "its probes do no better than guessing" if ood in one.unread else ""
        found[ood] = unread if ood in one.ood_drop else NO_DROP
    return found


def _sets_left_out(used: Sequence[Summary]) -> list[str]:
    runs: dict[tuple[str, str], list[str]] = {}
    for one in used:
        for ood, why in _sets(one).items():
            if why:
                runs.setdefault((ood, why), []).append(one.name)
    return [f"{ood} is left out of {', '.join(names)}: {why}" for (ood, why), names in runs.items()]


def _points(members: Sequence[Summary], subject: str) -> Iterator[Point]:
    seen = set()
    for one, label in zip(members, labelled(members)):
        lost = _sets(one)
        for (ood, detector), auroc in one.auroc.items():
            # A run that was only observed anew, with another list of measures say, is no second one.
            place = (label, one.seed, ood, detector)
            if not lost[ood] and place not in seen:
                seen.add(place)
                transfer = 1 - one.ood_drop[ood]
                yield Point(one.name, subject, label, one.temperature, one.seed, ood, detector, transfer, auroc)


def _relation(points: Sequence[Point]) -> Relation:
    alike: dict[str, list[Point]] = {}
    for point in points:
        alike.setdefault(point.setting, []).append(point)
    settings = fronted(_setting(label, some) for label, some in alike.items())
    transfer, auroc = zip(*(at.means for at in settings))
    place = (points[0].subject, points[0].ood, points[0].detector)
    return Relation(*place, tuple(points), tuple(settings), pearson(transfer, auroc), spearman(transfer, auroc))


def _setting(label: str, points: Sequence[Point]) -> Setting:
    """The means over seeds; what is kept lies where what is lost does."""
    transfer = estimate((point.transfer for point in points), of="ood_drop")
    auroc = estimate((point.auroc for point in points), of="auroc")
    assert transfer
    assert auroc
    seeds = tuple((point.seed, point.transfer, point.auroc) for point in points)
    return Setting(label, points[0].temperature, transfer, auroc, seeds)


def _spelled(detector: str) -> str:
    return detector.replace("neco", "NECO")
