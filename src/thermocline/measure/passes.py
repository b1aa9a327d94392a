"""The passes over the data, and what they leave behind for measures to read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from thermocline import detect, geometry, nets, probes
from thermocline.data import Split
from thermocline.measure.capture import capture
from thermocline.moments import ClassMoments
from thermocline.nets import Tap
from thermocline.record import Row, params
from thermocline.spec import Failure

BATCH = 1000  # images a forward pass while measuring
RIDGE = 1e-3  # the probes' penalty, as a fraction of the mean eigenvalue of the scatter matrix


@dataclass
class Pass:
    """What one pass over a split left behind: what was needed of it."""

    labels: Tensor
    logits: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    features: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    moments: dict[Tap, ClassMoments] = field(default_factory=dict)
    probe_accuracy: dict[Tap, float] = field(default_factory=dict)


class Scores(NamedTuple):
    """A detector's scores of ID test images and of one OOD split."""

    detector: str
    split: str
    inside: Tensor
    outside: Tensor


@dataclass
class Seen:
    """What the passes over all splits left behind, for measures to read."""

    taps: tuple[Tap, ...]
    temperature: float
    passes: dict[str, Pass]
    ood: tuple[str, ...]
    final: bool
    _spectra: dict[Tap, Tensor] = field(default_factory=dict)

    def spectrum(self, tap: Tap) -> Tensor:
        """Singular values of a layer's centred outputs on the training set; decomposed once for all measures."""
        if tap not in self._spectra:
            self._spectra[tap] = geometry.singular_values(self.passes["train"].moments[tap].all)
        return self._spectra[tap]

    @functools.cached_property
    def scores(self) -> list[Scores]:
        """Every detector on every OOD set, fitted once for all measures."""
        fit_on, known = self.passes["train"], self.passes["test"]
        # The authors multiply by the largest logit for every net but ResNets: both, so that either can be read off.
        detectors = {
            params(detector="neco", dim=0.9): detect.NECO(dim=0.9),
            params(detector="neco-maxlogit", dim=0.9): detect.NECO(dim=0.9, logit_factor=True),
            params(detector="msp"): detect.MSP(temperature=self.temperature),
        }
        found = []
        for name, detector in detectors.items():
            # Float64: a confident net's probabilities are 1.0 in float32, and ties cost what a score could tell.
            detector.fit(fit_on.features, fit_on.logits.double(), fit_on.labels)
            inside = detector.score(known.features, known.logits.double())
            for ood in self.ood:
                other = self.passes[f"{ood}/test"]
                found.append(Scores(name, f"{ood}/test", inside, detector.score(other.features, other.logits.double())))
        return found

    def layers(self) -> Iterator[tuple[Tap, Callable[..., Row]]]:
        """Every tap with a maker of its training-set rows."""
        for depth, tap in enumerate(self.taps, start=1):
            yield tap, functools.partial(Row, "train", tap.path, depth, tap.view)


@torch.no_grad()
def look(
    net: nn.Module,
    train: Split,
    test: Split,
    ood: Mapping[str, tuple[Split, Split]],
    needs: frozenset[str],
    *,
    temperature: float,
    final: bool,
) -> Seen:
    """The passes: over each training split first, whose moments give the probes that the test split is read with."""
    taps = nets.taps(net)
    training = net.training
    net.eval()
    passes: dict[str, Pass] = {}
    features = "features" in needs
    try:
        for prefix, (fit_on, test_on) in {"": (train, test), **{f"{name}/": pair for name, pair in ood.items()}}.items():
            moments = "probes" in needs or ("moments" in needs and not prefix)
            if not prefix or moments:
                passes[f"{prefix}train"] = _pass(net, fit_on, taps, moments=moments, features=features and not prefix)
            readouts = {}
            if "probes" in needs:
                readouts = {tap: _probe(statistics) for tap, statistics in passes[f"{prefix}train"].moments.items()}
            passes[f"{prefix}test"] = _pass(net, test_on, taps, features=features, readouts=readouts)
    finally:
        net.train(training)
    return Seen(taps, temperature, passes, tuple(ood), final)


def _pass(
    net: nn.Module,
    split: Split,
    taps: tuple[Tap, ...],
    *,
    moments: bool = False,
    features: bool = False,
    readouts: Mapping[Tap, probes.Probe] = MappingProxyType({}),
) -> Pass:
    """Show every image to the net once."""
    penultimate = Tap(taps[-1].path, at="input")
    one = Pass(split.labels)
    correct = dict.fromkeys(readouts, torch.zeros((), dtype=torch.int64, device=split.device))
    logits, kept = [], []
    for batch in split.batches(BATCH, dtype=next(net.parameters()).dtype):
        with capture(net, [*(taps if moments or readouts else ()), *([penultimate] if features else ())]) as seen:
            logits.append(_finite(net(batch.images), "logits"))
        kept += [seen[penultimate]] if features else []
        for tap in taps if moments else ():
            value = _finite(seen[tap], tap.path)
            if tap not in one.moments:
                one.moments[tap] = ClassMoments(value.shape[1], split.classes, device=value.device)
            one.moments[tap].update(value, batch.labels)
        for tap, probe in readouts.items():
            correct[tap] = correct[tap] + (probe.predict(seen[tap]) == batch.labels).sum()
    one.logits = torch.cat(logits)
    if features:
        one.features = torch.cat(kept)
    one.probe_accuracy = {tap: int(count) / len(split) for tap, count in correct.items()}
    return one


def _finite(value: Tensor, where: str) -> Tensor:
    if not torch.isfinite(value).all():
        raise Failure(f"the net gives NaN or infinite values at {where}: nothing can be measured on it")
    return value


def _probe(moments: ClassMoments) -> probes.Probe:
    variance = moments.all.scatter.diagonal().mean()
    # A layer whose units are all dead has no variance; any positive penalty then gives the majority class.
    return probes.ridge_probe(moments, alpha=float(RIDGE * variance) or 1.0)
