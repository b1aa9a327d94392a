"""What is gathered while a split passes through the net: one small class for each kind of thing, fed batch by batch."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional

from thermocline import detect
from thermocline.measure import source
from thermocline.measure.spread import Spread
from thermocline.moments import ClassMoments, Groups, Moments
from thermocline.nets import WIDEST, Tap, Tokens, some_features
from thermocline.probes import Probe
from thermocline.spec import Failure, InputError
from thermocline.team import Team

KEPT = 50_000  # samples whose logits and last features are kept at most, for what takes a second look at them
ORACLE = 4096  # samples of each side that the best dimension of NECO is found on: every dimension is tried
FEW = 2048  # samples at most, spread over the whole set, for what is too large to do on all: layer inputs, gradients
HELD = 4 * 2**30  # bytes of features that probes may train from; beyond, the net is run again for every pass


class Batch(NamedTuple):
    """Some samples on their way through the net: what went in, what came out, and what the taps saw."""

    start: int
    arguments: source.Arguments
    labels: Tensor
    groups: Groups
    logits: Tensor
    at: Mapping[Tap, Tensor]


class Outputs:
    """Sums over the logits of every sample, and the logits of some."""

    taps: tuple[Tap, ...] = ()

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self.count = 0
        self.correct = self.loss = torch.zeros((), dtype=torch.float64)
        self.moments, self.format = Moments(0), torch.float32
        self.some = Spread(limit=KEPT)

    def add(self, batch: Batch) -> None:
        """Take in a batch of labelled samples of the net's own classes."""
        logits, labels = batch.logits.double(), batch.labels
        if batch.groups.classes > logits.shape[1]:
            told = (
                f"tells {logits.shape[1]} classes apart" if logits.shape[1] > 1 else "gives one logit, not one for each class"
            )
            raise InputError(f"there is a label {batch.groups.classes - 1}, but the net {told}")
        if not self.count:
            self.moments, self.format = Moments(logits.shape[1], device=logits.device), batch.logits.dtype
        self.count += len(labels)
        self.correct = self.correct.to(logits.device) + (logits.argmax(1) == labels).sum()
        self.loss = self.loss.to(logits.device) + functional.cross_entropy(logits / self.temperature, labels, reduction="sum")
        self.moments.update(logits)
        self.some.add(batch.start, batch.logits, labels)

    def join(self, team: Team, classes: int) -> None:
        """Take in what the other processes of a team gathered."""
        self.moments.pool(team.sum)
        self.count, self.correct, self.loss = self.moments.count, team.sum(self.correct), team.sum(self.loss)
        self.some.join(team)


class Layers:
    """Class moments of every layer."""

    def __init__(self, taps: Iterable[Tap]) -> None:
        self.taps = tuple(taps)
        self.moments: dict[Tap, ClassMoments] = {}
        self.formats: dict[Tap, torch.dtype] = {}

    def add(self, batch: Batch) -> None:
        """Take in a batch; moments widen when a class is met that no batch before had."""
        for tap in self.taps:
            value = batch.at[tap]
            if tap not in self.moments:
                self.moments[tap] = ClassMoments(value.shape[1], batch.groups.classes, device=value.device)
                self.formats[tap] = value.dtype
            self.moments[tap].widen(batch.groups.classes)
            self.moments[tap].update(value, batch.groups)

    def join(self, team: Team, classes: int) -> None:
        """Take in what the other processes of a team gathered."""
        for moments in self.moments.values():
            moments.widen(classes)
            moments.pool(team.sum)


def last_features(head: Tap) -> Tap:
    """What the head reads, tokens in the view of its own tap, or of very many features a fixed subset."""
    view = head.view if head.view in get_args(Tokens) else "flatten"
    return Tap(head.path, at="input", view=view, subset=WIDEST, tokens_first=head.tokens_first)


class LastFeatures:
    """What the head reads: class moments over every sample, and the features of some. `total` is how many there are."""

    def __init__(self, head: Tap, total: int) -> None:
        self.tap, self.total = last_features(head), total
        self.taps = (self.tap,)
        self.moments = ClassMoments(0, 0)
        self.some = Spread(limit=KEPT)

    @property
    def subset(self) -> dict[str, int]:
        """How many features were read, as a parameter of what is measured on them; nothing where all were."""
        return {"subset": WIDEST} if self.total > WIDEST else {}

    @property
    def label(self) -> str:
        """What was read, as rows record it."""
        return f"input/{WIDEST}" if self.subset else "input"

    def read(self, weight: Tensor) -> Tensor:
        """The columns of the head's weight that go with the features read."""
        return weight[:, some_features(weight.shape[1], WIDEST, weight.device)] if self.subset else weight

    def add(self, batch: Batch) -> None:
        """Take in a batch; every class of the net has its place, met or not."""
        value = batch.at[self.tap]
        if not self.moments.count:
            self.moments = ClassMoments(value.shape[1], batch.logits.shape[1], device=value.device)
        self.moments.update(value, batch.groups)
        self.some.add(batch.start, value)

    def join(self, team: Team, classes: int) -> None:
        """Take in what the other processes of a team gathered."""
        self.moments.pool(team.sum)
        self.some.join(team)


class UnseenFeatures:
    """What the head reads of some test samples, with their labels."""

    def __init__(self, head: Tap, *, limit: int) -> None:
        self.tap = last_features(head)
        self.taps = (self.tap,)
        self.some = Spread(limit=limit)

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        self.some.add(batch.start, batch.at[self.tap], batch.labels)

    def join(self, team: Team, classes: int) -> None:
        """Take in what the other processes of a team gathered."""
        self.some.join(team)


class Samples:
    """Some samples as they went in, to be shown again for layer inputs and gradients."""

    taps: tuple[Tap, ...] = ()

    def __init__(self) -> None:
        self.some = Spread(limit=FEW)
        self._shapes: dict[int | str, torch.Size] = {}

    def add(self, batch: Batch) -> None:
        """Take in a batch, whose samples must be of the shape of those before."""
        shapes = {name: value.shape[1:] for name, value in batch.arguments.items()}
        if self._shapes and shapes != self._shapes:
            kinds = " and ".join(", ".join(str(tuple(shape)) for shape in some.values()) for some in (self._shapes, shapes))
            raise InputError(f"samples differ in shape from batch to batch, {kinds}: pad them all to one")
        self._shapes = shapes
        self.some.add(batch.start, *batch.arguments.values(), batch.labels)

    @property
    def values(self) -> tuple[source.Arguments, Tensor]:
        """The samples kept, and their labels."""
        *kept, labels = self.some.values
        return dict(zip(self._shapes, kept)), labels

    def join(self, team: Team, classes: int) -> None:
        """Take in what the other processes of a team gathered."""
        self.some.join(team)


class Held:
    """The features of every sample, side by side in one matrix, as long as they stay under `HELD` bytes.

    `rows` is None where they would not, or where their number is not known beforehand.
    """

    def __init__(self, taps: Iterable[Tap], count: int | None) -> None:
        self.taps = tuple(taps)
        self.room = count or 0
        self.count = 0
        self.widths: list[int] = []
        self.formats: list[torch.dtype] = []
        self.rows: Tensor | None = None
        self.labels = torch.empty(0, dtype=torch.int64)

    def add(self, batch: Batch) -> None:
        """Take in a batch, unless there is no room."""
        if not self.widths:
            self._begin([batch.at[tap] for tap in self.taps], batch.labels)
        stop = self.count + len(batch.labels)
        if self.rows is None or stop > len(self.rows):
            self.rows = None
            return
        torch.cat([batch.at[tap] for tap in self.taps], 1, out=self.rows[self.count : stop])
        self.labels[self.count : stop] = batch.labels
        self.count = stop

    def _begin(self, values: list[Tensor], labels: Tensor) -> None:
        self.widths, self.formats = [value.shape[1] for value in values], [value.dtype for value in values]
        dtype = functools.reduce(torch.promote_types, self.formats)  # from which each comes back as it was
        if 0 < self.room * sum(self.widths) * dtype.itemsize <= HELD:
            self.rows = torch.empty(self.room, sum(self.widths), dtype=dtype, device=values[0].device)
            self.labels = torch.empty(self.room, dtype=labels.dtype, device=labels.device)

    def join(self, team: Team, classes: int) -> None:
        """Take in what the other processes of a team hold; there was room for all of it from the beginning."""
        if self.rows is not None:
            self.rows, self.labels = (team.gather(part[: self.count]) for part in (self.rows, self.labels))
            self.count = len(self.labels)

    def take(self, indices: Tensor) -> tuple[dict[Tap, Tensor], Tensor]:
        """The features and labels of some samples."""
        assert self.rows is not None
        parts = self.rows.index_select(0, indices).split(self.widths, 1)
        return {tap: part.to(dtype) for tap, part, dtype in zip(self.taps, parts, self.formats)}, self.labels[indices]


class Readout(NamedTuple):
    """A probe's place and name: its layer and depth, its protocol, and what was chosen on its validation split."""

    tap: Tap
    depth: int
    protocol: str
    chosen: str = ""

    @property
    def params(self) -> str:
        """The protocol and what was chosen, as rows record them."""
        return ",".join(filter(None, (self.protocol, self.chosen)))


class Readings:
    """How often each probe is right."""

    def __init__(self, probes: Mapping[Readout, Probe]) -> None:
        self.taps = tuple(readout.tap for readout in probes)
        self.probes = probes
        self.count = 0
        self._correct: dict[Readout, Tensor] = {}

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        self.count += len(batch.labels)
        for readout, probe in self.probes.items():
            hits = (probe.predict(batch.at[readout.tap]) == batch.labels).sum()
            self._correct[readout] = self._correct[readout] + hits if readout in self._correct else hits

    def join(self, team: Team, classes: int) -> None:
        """Take in what the other processes of a team gathered."""
        counts = torch.stack([torch.full_like(next(iter(self._correct.values())), self.count), *self._correct.values()])
        total, *correct = team.sum(counts).unbind()
        self.count, self._correct = int(total), dict(zip(self._correct, correct))

    @property
    def accuracy(self) -> dict[Readout, float]:
        """The share of samples each probe gets right."""
        return {readout: int(count) / self.count for readout, count in self._correct.items()}


class Scores:
    """Detector scores of every sample, and the mean of what the head read."""

    def __init__(self, head: Tap, detectors: Mapping[str, detect.Detector]) -> None:
        self.tap = last_features(head)
        self.taps = (self.tap,)
        self.detectors = detectors
        self.count = 0
        self.sum = torch.zeros((), dtype=torch.float64)
        self._parts: dict[str, list[Tensor]] = {name: [] for name in detectors}

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        features = batch.at[self.tap]
        self.count += len(features)
        self.sum = self.sum.to(features.device) + features.sum(0, dtype=torch.float64)
        for name, detector in self.detectors.items():
            self._parts[name].append(detector.score(features, batch.logits))

    def join(self, team: Team, classes: int) -> None:
        """Take in what the other processes of a team gathered."""
        self.count, self.sum = int(team.sum(torch.full_like(self.sum[:1], self.count))), team.sum(self.sum)
        self._parts = {name: [team.gather(scores)] for name, scores in self.by_detector.items()}

    @property
    def mean(self) -> Tensor:
        """The mean feature."""
        return self.sum / self.count

    @property
    def by_detector(self) -> dict[str, Tensor]:
        """The scores of all samples, by detector."""
        return {name: torch.cat(parts) for name, parts in self._parts.items()}


Collector = Outputs | Layers | LastFeatures | UnseenFeatures | Samples | Held | Readings | Scores


class Finite:
    """Whether everything the taps saw was a number, judged at the end of a pass: to look is to wait for the device.

    Inputs are named where they have NaN or inf (not -inf, as masks have), but not refused for it: what is made of them counts.
    """

    def __init__(self) -> None:
        self._good: dict[str, Tensor] = {}

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        given = [~(value.isnan() | (value == math.inf)).any() for value in batch.arguments.values()]
        inside = {f"the {tap.at} of {tap.path}": value for tap, value in batch.at.items()}
        made = {name: value.isfinite().all() for name, value in {**inside, "the logits": batch.logits}.items()}
        for name, good in {"its inputs": torch.stack(given).all(), **made}.items():
            self._good[name] = self._good[name] & good if name in self._good else good

    def check(self, team: Team, split: str) -> None:
        """Raise unless it was, in every process of a team, naming what came first."""
        bad = team.sum((~torch.stack(list(self._good.values()))).int()).tolist()
        if any(bad[1:]):
            first = next(name for name, count in zip(self._good, bad) if count)
            raise Failure(f"there are NaN or infinite values on {split}, first in {first}: nothing can be measured on it")
