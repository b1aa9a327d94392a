"""Linear probes on every layer: ridge from moments, logistic by the papers' protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor

from thermocline import probes
from thermocline.measure import source
from thermocline.measure.capture import capture
from thermocline.measure.collect import Held, Readout
from thermocline.measure.subject import BATCH, Subject
from thermocline.moments import ClassMoments
from thermocline.nets import Tap
from thermocline.record import params
from thermocline.spec import InputError

# The penalty, as a fraction of the mean eigenvalue of the scatter matrix. What varies much less is hardly read.
RIDGES = {"ridge": 1e-3, "ridge-weak": 1e-8}
HELD_OUT = 10  # one in so many training samples judges the points of a grid


@dataclass(frozen=True)
class Logistic:
    """A way to train logistic probes: Adam in batches of 512, 30 passes over the frozen net [masarczyk2023tunnel]."""

    flatten: bool = False  # every activation, not the tap's own smaller view
    standardise: bool = False  # every feature to mean 0 and variance 1 first, so that its size is no matter to Adam
    lr: tuple[float, ...] = (1e-3,)
    weight_decay: tuple[float, ...] = (0.0,)
    smoothing: float = 0.0
    passes: int = 30

    @property
    def tuned(self) -> bool:
        """Whether there is something to choose on a validation split."""
        return len(self.lr) * len(self.weight_decay) > 1

    def taps(self, taps: tuple[Tap, ...]) -> tuple[Tap, ...]:
        """What it reads of the layers that are measured."""
        return tuple(replace(tap, view="flatten", subset=None) for tap in taps) if self.flatten else taps


PROTOCOLS = {
    "logistic": Logistic(),
    "logistic-flatten": Logistic(flatten=True),  # the views of [masarczyk2023tunnel]
    "logistic-smooth": Logistic(smoothing=0.1),  # [harun2024variables]
    "logistic-standard": Logistic(standardise=True),  # [he2022masked, App. A.1]
    "logistic-grid": Logistic(lr=(1e-4, 1e-3, 1e-2), weight_decay=(0.0, 1e-2, 1.0)),
}


def ridge(taps: tuple[Tap, ...], name: str, moments: dict[Tap, ClassMoments]) -> dict[Readout, probes.Probe]:
    """The ridge probe of every layer, in closed form."""
    found, penalty = {}, RIDGES[name]
    for depth, tap in enumerate(taps, start=1):
        variance = moments[tap].all.scatter.diagonal().mean()
        # A layer whose units are all dead has no variance; any positive penalty then gives the majority class.
        probe = probes.ridge_probe(moments[tap], alpha=float(penalty * variance) or 1.0)
        found[Readout(tap, depth, params(probe=name, penalty=penalty))] = probe
    return found


def logistic(
    subject: Subject, name: str, split: str, data: Any, held: Held, *, count: int, classes: int
) -> dict[Readout, probes.Probe]:
    """The logistic probe of every layer, trained together: from the features held, or by running the net for each pass.

    The order of samples is the same either way, so the probes are too, up to rounding.
    """
    protocol = PROTOCOLS[name]
    taps = protocol.taps(subject.taps)
    stream = _Stream(subject, data, taps, held if held.rows is not None else None)
    everyone = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    cut = count // HELD_OUT if protocol.tuned else 0
    if protocol.standardise:
        stream.standards = _standards(stream, everyone[cut:])
    with Progress(disable=not subject.progress) as progress:
        bar = progress.add_task(f"{name} probes on {split}", total=protocol.passes)

        def epoch() -> Iterator[tuple[dict[Tap, Tensor], Tensor]]:
            number = int(progress.tasks[0].completed)
            shuffle = torch.randperm(count - cut, generator=torch.Generator().manual_seed(1 + number))
            yield from stream.read(everyone[cut:][shuffle])
            progress.advance(bar)

        fits = probes.fit_probes(
            epoch,
            classes=max(classes, 2),
            passes=protocol.passes,
            lr=protocol.lr,
            weight_decay=protocol.weight_decay,
            label_smoothing=protocol.smoothing,
            validation=_validation(stream, name, everyone[:cut]) if protocol.tuned else None,
        )
    found = {}
    for depth, tap in enumerate(taps, start=1):
        how = params(probe=name, passes=protocol.passes)
        probe = stream.unstandardised(tap, fits[tap].probe)
        found[Readout(tap, depth, how, params(lr=fits[tap].lr, weight_decay=fits[tap].weight_decay))] = probe
    return found


def _standards(stream: _Stream, order: Tensor) -> dict[Tap, tuple[Tensor, Tensor]]:
    """The mean and standard deviation of every feature, the latter 1 where a feature does not vary.

    In float64, and of distances to the first batch's mean: squares of a feature far from zero would leave no digits for it.
    """
    centre: dict[Tap, Tensor] = {}
    sums: dict[Tap, Tensor] = {}
    count = 0
    for features, labels in stream.read(order):
        for tap, x in features.items():
            away = x.double() - centre.setdefault(tap, x.double().mean(0))
            sums[tap] = sums.get(tap, 0) + torch.stack([away.sum(0), away.square().sum(0)])
        count += len(labels)
    found = {}
    for tap, (shift, square) in sums.items():
        spread = (square / count - (shift / count).square()).clamp(min=0).sqrt()
        found[tap] = (centre[tap] + shift / count, torch.where(spread > 0, spread, 1))
    return found


def _validation(stream: _Stream, name: str, held_out: Tensor) -> Callable[[], Iterator[tuple[dict[Tap, Tensor], Tensor]]]:
    if not stream.any_order:
        raise InputError(f"{name} holds out a tenth of the training samples: give data that can be read in any order")
    if not len(held_out):
        raise InputError(f"{name} holds out a tenth of the training samples, of which there are fewer than {HELD_OUT}")
    return lambda: stream.read(held_out)


class _Stream:
    """Features by tap, and labels, of samples in a wanted order."""

    def __init__(self, subject: Subject, data: Any, taps: tuple[Tap, ...], held: Held | None) -> None:
        self.subject, self.data, self.taps, self.held = subject, data, taps, held
        # What cannot be indexed comes in an order of its own.
        self.any_order = held is not None or source.indexable(data)
        self.standards: dict[Tap, tuple[Tensor, Tensor]] = {}  # what features are reduced by as they are read

    def read(self, order: Tensor) -> Iterator[tuple[dict[Tap, Tensor], Tensor]]:
        """The samples of `order`, or all where that is not possible."""
        for features, labels in self._read(order):
            for tap, (mean, spread) in self.standards.items():
                features[tap] = ((features[tap] - mean) / spread).to(features[tap].dtype)
            yield features, labels

    def unstandardised(self, tap: Tap, probe: probes.Probe) -> probes.Probe:
        """A probe that reads features as they are: W ((a - m) / s) + b = (W / s) a + b - (W / s) m."""
        if tap not in self.standards:
            return probe
        mean, spread = self.standards[tap]
        weight = probe.weight / spread
        return probes.Probe(weight, probe.bias - weight @ mean)

    def _read(self, order: Tensor) -> Iterator[tuple[dict[Tap, Tensor], Tensor]]:
        if self.held is not None:
            for some in order.to(self.held.labels.device).split(512):
                yield self.held.take(some)
            return
        net = self.subject.net
        for arguments, labels in source.batches(self.data, net, size=BATCH, order=order if self.any_order else None):
            with capture(net, self.taps) as at:
                self.subject.run(arguments)
            yield {tap: at[tap] for tap in self.taps}, labels
