"""Rows -> plain facts: one summary a run, groups of them by temperature. Standard library and pyarrow only."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from thermocline import spec as specs
from thermocline.record import RANK, Loaded, Paths, as_runs, parameters
from thermocline.report.apart import OBSERVING, told_apart
from thermocline.report.estimates import Estimate, estimate

HEADLINE = (str(RANK["of"]), float(RANK["rtol"]))
"""The `of` and `rtol` of the rank that is put first [masarczyk2023tunnel]; the others are a sensitivity check."""

LEARNED = 3  # times what guessing gets right
SAME = 0.99  # the cosine from which on two class means are one direction
LUCK = 3  # standard deviations by which guessing may do better than it should

_COLUMNS = ["step", "split", "layer", "depth", "params", "value"]

# How a detection was counted, which is no setting of the detector.
_COUNTED_BY = {"tpr", "positive", "part", "level"}


@dataclass(frozen=True)
class Summary:
    """One run in a few numbers, at its last measured step; None where a measure is missing."""

    name: str
    key: str
    data: str
    net: str
    temperature: float
    last_temperature: float | None  # that of the last measured step, which differs where it moves
    seed: int
    finished: bool
    stopped: str  # why it stopped itself, if it did
    step: int | None
    settings: dict[str, Any]
    classes: int | None  # that training images have
    unmet: int  # logits beyond those, where training images were found to lack a class
    layers: int | None
    train_accuracy: float | None
    test_accuracy: float | None
    solution_rank: float | None
    solution_entropy_rank: float | None
    solution_stable_rank: float | None
    effective_depth: float | None
    probes: dict[str, list[tuple[int, str, float]]]
    ood_drop: dict[str, float]
    auroc: dict[tuple[str, str], float]
    auroc_interval: dict[tuple[str, str], tuple[float, float]]
    fpr: dict[tuple[str, str], float]
    logit_norm: float | None
    tempered_logit_norm: float | None
    ece: dict[str, float]
    brier: dict[str, float]
    overconfidence: float | None
    softening: float | None
    guessing: float | None  # what always naming the most frequent class gets right; where that was not recorded, 1 / classes
    merged: dict[int, list[int]]  # the classes that are one point, by the one that they are taken for
    guesses: dict[str, tuple[float, int]]  # the same of the sets that probes read, and of how many samples, where recorded

    @functools.cached_property
    def known(self) -> list[str]:
        """The paths of the settings that somebody gave."""
        return specs.known(self.settings)

    @property
    def learned(self) -> bool:
        """Whether there is something to judge; where accuracy or the number of classes is not known, it is taken to be so."""
        return self.train_accuracy is None or self.guessing is None or learned(self.train_accuracy, guessing=self.guessing)

    @property
    def unread(self) -> list[str]:
        """The sets that probes learned nothing of: what they get right at the best layer may be guessing, and luck.

        What is then lost by the last layer, or first found at one, is noise.
        """
        best = {name: max(right for _, _, right in self.probes[name]) for name in self.guesses}
        return [name for name, guess in self.guesses.items() if best[name] <= lucky(*guess)]


@dataclass(frozen=True)
class Group:
    """Runs alike but for the seed: the finished ones or, while there are none, the unfinished."""

    temperature: float
    members: tuple[Summary, ...]

    @property
    def label(self) -> str:
        return f"T = {self.temperature:g}"

    @property
    def finished(self) -> bool:
        return self.members[0].finished

    @property
    def learned(self) -> bool:
        """Whether every seed did: of a mean over nets of which some show where they started, nothing can be said."""
        return all(member.learned for member in self.members)

    @property
    def judged(self) -> bool:
        """Whether what its layers show is what training makes of them."""
        return self.finished and self.learned

    @property
    def seeds(self) -> int:
        return len({member.seed for member in self.members})

    def estimate(self, pick: Callable[[Summary], float | None], *, of: str = "") -> Estimate | None:
        """Over seeds. `of`: which measure is picked."""
        return estimate(self._by_seed(pick).values(), of=of)

    def change(self, base: Group, pick: Callable[[Summary], float | None]) -> Estimate | None:
        """How far it is from another group, seed by seed: what seeds share is no noise. From three shared seeds on."""
        before, after = base._by_seed(pick), self._by_seed(pick)
        shared = [after[seed] - before[seed] for seed in after if seed in before]
        return estimate(shared) if len(shared) > 2 else None

    def _by_seed(self, pick: Callable[[Summary], float | None]) -> dict[int, float]:
        """Runs of one seed that were only observed differently count once."""
        values: dict[int, float] = {}
        for member in self.members:
            if (value := pick(member)) is not None:
                values.setdefault(member.seed, value)
        return values

    def first(self, pick: Callable[[Summary], Any]) -> Any:
        return next((value for member in self.members if (value := pick(member)) is not None), None)


@dataclass(frozen=True)
class Case:
    """Groups whose comparison says something about temperature: same data, same net, no second arm among them."""

    title: str
    groups: tuple[Group, ...]

    @property
    def members(self) -> list[Summary]:
        """The runs of all groups."""
        return [member for group in self.groups for member in group.members]


def learned(accuracy: float, *, guessing: float) -> bool:
    """Whether a net learned its training images: three times as many right as guessing gets, or a quarter of what it misses.

    The quarter is for few classes, of which guessing gets more than a ninth: three times that would be most of all images, or
    more than there are.

    >>> [learned(accuracy, guessing=0.01) for accuracy in (0.029, 0.031)]
    [False, True]
    >>> [learned(accuracy, guessing=0.5) for accuracy in (0.62, 0.63)]
    [False, True]
    """
    return accuracy >= min(LEARNED * guessing, guessing + (1 - guessing) / 4)


def lucky(share: float, count: int) -> float:
    """What guessing that should get this share of so many samples may get right: three standard deviations more.

    >>> lucky(0.1, 900), lucky(0.5, 8)
    (0.13, 1.0)
    """
    return min(1.0, share + LUCK * math.sqrt(share * (1 - share) / count))


def detected(members: Iterable[Summary]) -> dict[str, list[str]]:
    """The detectors that some runs have an AUROC of, by the set that they were shown."""
    found: dict[str, list[str]] = {}
    for name, detector in dict.fromkeys(key for one in members for key in one.auroc):
        found.setdefault(name, []).append(detector)
    return found


def summary(runs: Paths | Iterable[Loaded]) -> list[Summary]:
    """One summary a run, in the order given, of runs or their paths; where a scan is of another net than one before it, so is
    its name.
    """
    return [_summary(run) for run in told_apart(as_runs(runs))[0]]


def points(run: Loaded, measure: str, *, last: bool = False) -> list[dict[str, Any]]:
    """The finite rows of one measure, in order of step; `last`: those of its last step only."""
    table = _of(run, measure, last=last)
    rows = sorted((row for row in table.to_pylist() if math.isfinite(row["value"])), key=lambda row: row["step"])
    if rows and rows[0]["params"].startswith("probe="):  # the first probe is the one shown
        kind = parameters(rows[0]["params"])["probe"]
        rows = [row for row in rows if parameters(row["params"]).get("probe") == kind]
    return rows


def spectra(run: Loaded) -> dict[tuple[int, str], list[float]]:
    """The singular values of every (depth, layer) at the last step, largest first; read as columns, since there are many."""
    table = _of(run, "singular_value", last=True).group_by(["depth", "layer"]).aggregate([("value", "list")])
    found = {(row["depth"], row["layer"]): list(filter(math.isfinite, row["value_list"])) for row in table.to_pylist()}
    return {place: sorted(values, reverse=True) for place, values in sorted(found.items()) if values}


def _of(run: Loaded, measure: str, *, last: bool) -> pa.Table:
    table = run.rows.filter(pc.field("measure") == measure).select(_COLUMNS)
    # Before rows become objects: of a long run those of the last step are few.
    return table.filter(pc.field("step") == pc.call_function("max", [table["step"]])) if last and len(table) else table


def rank_rule(row: dict[str, Any]) -> tuple[str, float] | None:
    """The (`of`, `rtol`) a rank was counted by."""
    given = parameters(row["params"])
    return (given["of"], float(given["rtol"])) if {"of", "rtol"} <= given.keys() else None


def reliability(run: Loaded, at: str) -> dict[int, dict[str, float]]:
    """The count, confidence and accuracy of each bin of the test set that has samples; `at`: "training" or "fitted"."""
    return {index: part for (index,), part in sorted(parts(run, "reliability", "bin", at=at).items()) if part.get("count")}


def parts(run: Loaded, measure: str, *numbered: str, **where: str) -> dict[tuple[int, ...], dict[str, float]]:
    """What a measure of the test set says, part by part, by the numbers that its rows have under these names."""
    found: dict[tuple[int, ...], dict[str, float]] = {}
    for row in points(run, measure, last=True):
        given = parameters(row["params"])
        if row["split"] == "test" and where.items() <= given.items():
            found.setdefault(tuple(int(given[name]) for name in numbered), {})[given["part"]] = row["value"]
    return found


def cases(summaries: Sequence[Summary]) -> list[Case]:
    """Runs sorted into comparable groups; a setting that varies at one temperature (an arm) makes cases of its own."""
    subjects: dict[tuple[Any, ...], list[Summary]] = {}
    for one in summaries:
        subjects.setdefault(tuple(one.settings[path] for path in _subject_paths(one)), []).append(one)
    found = []
    for members in subjects.values():
        first = members[0]
        alike_named = [some[0] for some in subjects.values() if (some[0].net, some[0].data) == (first.net, first.data)]
        told_apart, arms = varying(alike_named, _subject_paths(first)), _arm_paths(members)
        for arm in dict.fromkeys(tuple(one.settings[path] for path in arms) for one in members):
            alike = [one for one in members if tuple(one.settings[path] for path in arms) == arm]
            found.append(Case(named(alike[0], [*told_apart, *arms]), _groups(alike)))
    return found


def varying(summaries: Sequence[Summary], paths: Iterable[str]) -> list[str]:
    """Those of the settings that are not the same in all."""
    return [path for path in paths if len({one.settings[path] for one in summaries}) > 1]


def named(one: Summary, paths: Iterable[str]) -> str:
    """A net on data, and the settings that tell it from others."""
    more = [f"{path} = {one.settings[path]}" for path in paths if path not in ("data.name", "net.name")]
    return ", ".join([f"{one.net} on {one.data}", *more])


def _summary(run: Loaded) -> Summary:
    settings = dict(specs.leaves(run.spec))
    spectrum = spectra(run)
    depths = [row["depth"] for row in points(run, "rank", last=True) + points(run, "probe_accuracy", last=True)]
    layers = max([*depths, *(depth for depth, _ in spectrum)], default=0) or None
    logits = sum(len(values) for (depth, _), values in spectrum.items() if depth == layers) if run.finished else 0
    met = _met(run)
    step, classes = max(run.rows["step"].to_pylist(), default=None), met or run.spec.data.classes or logits or None
    return Summary(
        name=run.name, key=run.spec.key, data=run.spec.data.name, net=run.spec.net.name,
        guessing=run.provenance.get("guessing", 1 / classes if classes else None),
        temperature=run.spec.train.temperature, last_temperature=_value(run, "temperature"),
        seed=run.spec.seed, finished=run.finished, stopped="" if run.finished else run.provenance.get("stopped", ""), step=step,
        settings=settings, classes=classes, unmet=max(logits - met, 0) if met else 0, layers=layers,
        train_accuracy=_value(run, "accuracy", split="train"),
        test_accuracy=_value(run, "accuracy", split="test"),
        solution_rank=_value(run, "solution_rank", rule=HEADLINE),
        solution_entropy_rank=_value(run, "entropy_rank", split="train", depth=layers),
        solution_stable_rank=_value(run, "stable_rank", split="train", depth=layers),
        effective_depth=_value(run, "effective_depth"),
        probes=_probes(run), guesses=_guesses(run),
        ood_drop={set_of(row): row["value"] for row in points(run, "ood_drop", last=True)},
        auroc=_detection(run, "auroc"), auroc_interval=_intervals(run), fpr=_detection(run, "fpr"),
        logit_norm=_value(run, "logit_norm", split="train"),
        tempered_logit_norm=_value(run, "tempered_logit_norm", split="train"),
        ece=_at(run, "ece", scheme="equal-width"), brier=_at(run, "brier"),
        overconfidence=_overconfidence(run), softening=_softening(run), merged=_merged(run),
    )  # fmt: skip


def _value(run: Loaded, measure: str, *, rule: tuple[str, float] | None = None, **where: Any) -> float | None:
    for row in points(run, measure, last=True):
        if all(row[column] == value for column, value in where.items()) and rule in (None, rank_rule(row)):
            return row["value"]
    return None


def _met(run: Loaded) -> int | None:
    """How many classes the training images have, where that is fewer than there are logits."""
    found = (parameters(row["params"]).get("classes") for row in points(run, "solution_rank", last=True))
    return next((int(classes) for classes in found if classes), None)


def _probes(run: Loaded) -> dict[str, list[tuple[int, str, float]]]:
    """The (depth, layer, accuracy) of every probe, first layer first, by the set it reads; "test" is the net's own."""
    found: dict[str, list[tuple[int, str, float]]] = {}
    for row in points(run, "probe_accuracy", last=True):
        found.setdefault(set_of(row), []).append((row["depth"], row["layer"], row["value"]))
    return {name: sorted(layers) for name, layers in found.items()}


def _merged(run: Loaded) -> dict[int, list[int]]:
    """Classes of which most test images are taken for another, whose mean feature points the same way."""
    found = parts(run, "confusion", "predicted", "label").items()
    pairs = sorted(pair for pair, part in found if part["share"] > 0.5 and part["cosine"] >= SAME)
    return {into: sorted({into, *(label for other, label in pairs if other == into)}) for into, _ in pairs}


def _guesses(run: Loaded) -> dict[str, tuple[float, int]]:
    rows = [(set_of(row), parameters(row["params"])) for row in points(run, "probe_accuracy", last=True)]
    return {name: (float(given["guessing"]), int(given["tested"])) for name, given in rows if "guessing" in given}


def _detection(run: Loaded, measure: str, **counted_by: str) -> dict[tuple[str, str], float]:
    """Values by (set, detector); a second variant of a detector carries its parameters in its name."""
    found: dict[tuple[str, str], float] = {}
    for row in points(run, measure, last=True):
        given = parameters(row["params"])
        if not counted_by.items() <= given.items():
            continue
        name = given.pop("detector", row["params"])
        if (set_of(row), name) in found:
            name = " ".join([name, *(f"{key}={value}" for key, value in given.items() if key not in _COUNTED_BY)])
        found.setdefault((set_of(row), name), row["value"])
    return found


def _intervals(run: Loaded) -> dict[tuple[str, str], tuple[float, float]]:
    low, high = (_detection(run, "auroc_interval", part=part) for part in ("low", "high"))
    return {key: (low[key], high[key]) for key in low if key in high}


def _at(run: Loaded, measure: str, **wanted: str) -> dict[str, float]:
    """A calibration measure of the test set by the temperature its probabilities are read at: "training", "fitted"."""
    rows = [(row, parameters(row["params"])) for row in points(run, measure, last=True) if row["split"] == "test"]
    return {given["at"]: row["value"] for row, given in rows if "at" in given and wanted.items() <= given.items()}


def _overconfidence(run: Loaded) -> float | None:
    """Mean confidence less accuracy on the test set, from the bins of its reliability diagram."""
    bins = reliability(run, "training").values()
    total = sum(part["count"] for part in bins)
    return sum(part["count"] * (part["confidence"] - part["accuracy"]) for part in bins) / total if total else None


def _softening(run: Loaded) -> float | None:
    """What the logits over T must be divided by once more to be calibrated: the fitted temperature over that of training."""
    fitted, last = _value(run, "fitted_temperature", split="test"), _value(run, "temperature")
    return fitted and fitted / (last or run.spec.train.temperature)


def set_of(row: Mapping[str, Any]) -> str:
    """Whose split a row is about: of NAME/test the NAME, "test" for the net's own data."""
    return row["split"].rsplit("/", 1)[0]


def _subject_paths(one: Summary) -> list[str]:
    return [path for path in one.settings if path.startswith(("data.", "net.")) and path not in OBSERVING]


def _arm_paths(members: Sequence[Summary]) -> list[str]:
    """Settings that vary among runs of one temperature; one that moves only with temperature (a tuned lr) is no arm."""
    paths = [path for path in members[0].settings if path.startswith("train.") and path not in OBSERVING]
    temperatures = {one.temperature for one in members}
    moving = [varying([one for one in members if one.temperature == at], paths) for at in temperatures]
    return [path for path in paths if any(path in some for some in moving)]


def _groups(members: Sequence[Summary]) -> tuple[Group, ...]:
    groups = []
    for temperature in sorted({one.temperature for one in members}):
        alike = [one for one in members if one.temperature == temperature]
        groups.append(Group(temperature, _without_noise([one for one in alike if one.finished] or alike)))
    return tuple(groups)


def _without_noise(members: Sequence[Summary]) -> tuple[Summary, ...]:
    """Without what probes say of sets of which those of some seed learned nothing."""
    unread = {name for one in members for name in one.unread}
    return tuple(
        replace(
            one,
            ood_drop={name: drop for name, drop in one.ood_drop.items() if name not in unread},
            effective_depth=None if "test" in unread else one.effective_depth,
        )
        for one in members
    )
