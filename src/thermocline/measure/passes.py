"""The passes over the data, and what they leave behind for measures to read."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from thermocline import detect, geometry
from thermocline.measure import calibrating, collect, detecting, probing, source
from thermocline.measure.again import Again, look_again, matrix_weight
from thermocline.measure.capture import capture
from thermocline.measure.collect import Batch, Collector, Readout
from thermocline.measure.subject import Subject, said_of
from thermocline.moments import ClassMoments, grouped
from thermocline.nets import Tap
from thermocline.probes import Probe
from thermocline.record import Row, params
from thermocline.spec import InputError


class Found(NamedTuple):
    """A detector's scores of ID test samples and of one OOD split."""

    detector: str
    split: str
    inside: Tensor
    outside: Tensor


@dataclass
class Seen:
    """What the passes over all splits left behind, for measures to read."""

    net: nn.Module
    taps: tuple[Tap, ...]
    temperature: float
    ood: tuple[str, ...]
    final: bool
    last: collect.LastFeatures
    counts: Tensor = field(default_factory=lambda: torch.zeros(0))  # how many samples each label has in the training set
    outputs: dict[str, collect.Outputs] = field(default_factory=dict)
    moments: dict[Tap, ClassMoments] = field(default_factory=dict)
    formats: dict[Tap, torch.dtype] = field(default_factory=dict)
    again: Again = field(default_factory=Again)
    probe_accuracy: dict[str, dict[Readout, float]] = field(default_factory=dict)
    guessing: dict[str, str] = field(default_factory=dict)
    scores: dict[str, collect.Scores] = field(default_factory=dict)
    unseen: dict[str, collect.UnseenFeatures] = field(default_factory=dict)
    _spectra: dict[Tap, Tensor] = field(default_factory=dict)

    def spectrum(self, tap: Tap) -> Tensor:
        """Singular values of a layer's centred outputs on the training set; decomposed once for all measures."""
        if tap not in self._spectra:
            self._spectra[tap] = geometry.singular_values(self.moments[tap].all).cpu()
        return self._spectra[tap]

    @functools.cached_property
    def logit_spectrum(self) -> Tensor:
        """Singular values of the centred logits of the training set."""
        return geometry.singular_values(self.outputs["train"].moments).cpu()

    @functools.cached_property
    def calibrated(self) -> calibrating.Calibrated | None:
        """The probabilities of the test set, unless it has fewer than two samples."""
        if "test" not in self.outputs or self.outputs["test"].count < 2:
            return None
        logits, labels = self.outputs["test"].some.values
        return calibrating.calibrated(logits, labels, self.temperature)

    def found(self) -> Iterator[Found]:
        """Every detector on every OOD set."""
        for name in self.ood:
            if "test" not in self.scores or f"{name}/test" not in self.scores:
                continue
            inside, outside = self.scores["test"].by_detector, self.scores[f"{name}/test"].by_detector
            for detector, scores in inside.items():
                if scores.isnan().any() or outside[detector].isnan().any():
                    continue  # a sample that it cannot score: how good it is cannot be said
                yield Found(detector, f"{name}/test", scores, outside[detector])

    def layers(self) -> Iterator[tuple[Tap, Callable[..., Row]]]:
        """Every tap with a maker of its training-set rows."""
        for depth, tap in enumerate(self.taps, start=1):
            yield tap, functools.partial(Row, "train", tap.path, depth, tap.label)

    @property
    def head(self) -> tuple[Tap, Callable[..., Row]]:
        """The tap of the logits, with a maker of rows about them."""
        return list(self.layers())[-1]

    def before_head(self, split: str) -> Callable[..., Row]:
        """A maker of rows about what the head reads of a split."""
        return functools.partial(Row, split, self.taps[-1].path, len(self.taps), self.last.label)

    def weight(self, tap: Tap) -> Tensor | None:
        """The weight of the layer a tap reads, one row an output, if it has one."""
        weight = matrix_weight(self.net.get_submodule(tap.path))
        return None if weight is None else weight.detach().flatten(1)

    def thinned(self, samples: int) -> dict[str, int]:
        """How many samples a row was made from, where it was not all."""
        return {"samples": samples} if samples < self.outputs["train"].count else {}


def _last(subject: Subject) -> collect.LastFeatures:
    weight = matrix_weight(subject.net.get_submodule(subject.taps[-1].path))
    return collect.LastFeatures(subject.taps[-1], 0 if weight is None else weight[0].numel())


class Tally(NamedTuple):
    """What every pass leaves behind: how many samples each label has."""

    counts: Tensor

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    @property
    def classes(self) -> int:
        """One more than the largest label."""
        return len(self.counts)

    @property
    def single(self) -> bool:
        """Whether all labels are the same."""
        return int((self.counts > 0).sum()) == 1

    def shares(self, other: Tally) -> bool:
        """Whether there is a label that both have."""
        return any(mine > 0 and others > 0 for mine, others in zip(self.counts.tolist(), other.counts.tolist()))

    @property
    def guessing(self) -> float:
        """The share of samples that always naming the most frequent class gets right."""
        return float(self.counts.max()) / self.samples


Pairs = Mapping[str, tuple[Any, Any]]


def look(subject: Subject, train: Any, test: Any, ood: Pairs, needs: frozenset[str], *, final: bool) -> Seen:
    """The passes: over each training split first, from which come the probes and detectors that its test split is read with.

    Other data without a training split are shown to detectors alone, and need no labels. The net is `evaluating`.
    """
    seen = Seen(subject.net, subject.taps, subject.temperature, tuple(ood), final, _last(subject))
    detectors = {}
    with torch.no_grad():
        for name, (fit_on, test_on) in {"": (train, test), **ood}.items():
            prefix, known = f"{name}/" if name else "", not name
            hint = f": for detection alone, give its test set alone, ood={{{name!r}: test}}" if name else ""
            fitted, tally = {}, None
            if known or ("probes" in needs and fit_on is not None):
                kit = _Kit(subject, fit_on, needs, known=known)
                tally = run_pass(subject, f"{prefix}train", fit_on, kit.collectors)
                if "probes" in needs and tally.single:
                    raise InputError(f"{prefix}train has one class only; probes need at least two{hint}")
                if known:
                    seen.counts = tally.counts
                    kit.leave(subject, seen, needs)
                    if "scores" in needs:
                        head = subject.net.get_submodule(subject.taps[-1].path)
                        detectors = detecting.fitted(head, seen.last, seen.outputs["train"], subject.temperature)
                fitted = kit.probes(subject, f"{prefix}train", fit_on, tally) if "probes" in needs else {}
                del kit  # and the features it may hold
            if test_on is not None:
                labelled = fit_on is not None
                found = _test(subject, seen, f"{prefix}test", test_on, fitted, detectors, needs, labelled=labelled)
                if fitted and tally is not None and not found.shares(tally):
                    raise InputError(f"no label of {prefix}test is in {prefix}train: probes can get none right{hint}")
    return seen


def run_pass(subject: Subject, split: str, data: Any, collectors: Sequence[Collector], *, labelled: bool = True) -> Tally:
    """Show every sample to the net once."""
    taps = dict.fromkeys(tap for collector in collectors for tap in collector.taps)
    finite, counts, team = collect.Finite(), torch.zeros(0, dtype=torch.float64), subject.team
    start = subject.share(data).start
    for arguments, labels in subject.show(split, data, labelled=labelled):
        with said_of(split), capture(subject.net, taps) as at:
            logits = subject.run(arguments)
        if len(logits) != len(labels):
            raise InputError(f"{split}: the net gives logits of {len(logits)} samples, and there are {len(labels)} labels")
        batch = Batch(start, arguments, labels, grouped(labels), logits, at)
        finite.add(batch)
        for collector in collectors:
            collector.add(batch)
        start += len(labels)
        classes = max(len(counts), batch.groups.classes)
        counts = _widened(counts.to(labels.device), classes) + _widened(batch.groups.counts, classes)
    finite.check(team, split)
    if team.size == 1:
        return Tally(counts)
    classes = int(team.gather(torch.tensor([len(counts)], device=counts.device)).max())
    for collector in collectors:
        collector.join(team, classes)
    return Tally(team.sum(_widened(counts, classes)))


def _widened(counts: Tensor, classes: int) -> Tensor:
    return functional.pad(counts, (0, classes - len(counts)))


class _Kit:
    """What is gathered on a training split, by what is needed of it."""

    def __init__(self, subject: Subject, data: Any, needs: frozenset[str], *, known: bool) -> None:
        count = source.count(data)
        probing_ = "probes" in needs
        self.outputs = collect.Outputs(subject.temperature) if known else None
        wanted = (probing_ and not probing.RIDGES.keys().isdisjoint(subject.probes)) or (known and "moments" in needs)
        self.layers = collect.Layers(subject.taps) if wanted else None
        self.last = _last(subject) if known and "features" in needs else None
        self.few = collect.Samples() if known and needs & {"inputs", "gradients"} else None
        views = {how.taps(subject.taps) for name, how in probing.PROTOCOLS.items() if probing_ and name in subject.probes}
        self.held = {taps: collect.Held(taps, count) for taps in views}

    @property
    def collectors(self) -> list[Collector]:
        """Those that were wanted."""
        parts = (self.outputs, self.layers, self.last, self.few, *self.held.values())
        return [part for part in parts if part is not None]

    def leave(self, subject: Subject, seen: Seen, needs: frozenset[str]) -> None:
        """Hand over what measures of the training set read."""
        assert self.outputs is not None
        seen.outputs["train"] = self.outputs
        seen.moments, seen.formats = (self.layers.moments, self.layers.formats) if self.layers else ({}, {})
        seen.last = self.last or seen.last
        if self.few and subject.team.leads:
            seen.again = look_again(subject, *self.few.values, gradients="gradients" in needs)

    def probes(self, subject: Subject, split: str, data: Any, tally: Tally) -> dict[Readout, Probe]:
        """The probes of every layer, of every kind asked for."""
        found: dict[Readout, Probe] = {}
        for name in subject.probes:
            if name in probing.RIDGES:
                assert self.layers is not None
                found |= probing.ridge(subject.taps, name, self.layers.moments)
            else:
                held = self.held[probing.PROTOCOLS[name].taps(subject.taps)]
                found |= probing.logistic(subject, name, split, data, held, count=tally.samples, classes=tally.classes)
        return found


def _test(
    subject: Subject,
    seen: Seen,
    split: str,
    data: Any,
    fitted: Mapping[Readout, Probe],
    detectors: Mapping[str, detect.Detector],
    needs: frozenset[str],
    *,
    labelled: bool,
) -> Tally:
    """The pass over a test split, read with what its training split gave."""
    outputs, readings = collect.Outputs(subject.temperature), collect.Readings(fitted)
    scores = collect.Scores(subject.taps[-1], detectors)
    unseen = collect.UnseenFeatures(subject.taps[-1], limit=collect.KEPT if split == "test" else collect.ORACLE)
    wanted = {outputs: split == "test", readings: bool(fitted), scores: "features" in needs, unseen: "unseen" in needs}
    tally = run_pass(subject, split, data, [collector for collector, want in wanted.items() if want], labelled=labelled)
    if split == "test" and subject.team.leads:
        _warn_of_unmet(seen.counts, tally.counts)
    seen.outputs[split], seen.probe_accuracy[split], seen.scores[split] = outputs, readings.accuracy, scores
    if fitted:
        seen.guessing[split] = params(guessing=tally.guessing, tested=tally.samples)
    if "unseen" in needs:
        seen.unseen[split] = unseen
    return tally


def _warn_of_unmet(train: Tensor, test: Tensor) -> None:
    """Name the labels of the test set that no training sample has."""
    classes = max(len(train), len(test))
    unmet = ((_widened(test, classes) > 0) & (_widened(train, classes) == 0)).nonzero().flatten().tolist()
    if unmet:
        named = ", ".join(map(str, unmet[:5])) + (" and others" if len(unmet) > 5 else "")
        told = "no probe can learn them, and test accuracy counts them; leave them out of test, or give train that has them"
        warnings.warn(f"test has label {named}, which no sample of train has: {told}", stacklevel=6)  # where scan was called
