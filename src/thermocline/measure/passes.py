"""The passes over the data, and what they leave behind for measures to read."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from thermocline import detect, geometry, probes, softmax
from thermocline.measure import source
from thermocline.measure.capture import capture
from thermocline.moments import ClassMoments, Moments
from thermocline.nets import Tap
from thermocline.record import Row, params
from thermocline.spec import Failure, InputError

BATCH = 1000  # samples a forward pass while measuring
RIDGE = 1e-3  # the probes' penalty, as a fraction of the mean eigenvalue of the scatter matrix
FEW = 2048  # samples, spread over the whole set, for what is too large to do on all: layer inputs, gradients


class Readout(NamedTuple):
    """A probe: of which layer, and the kind and settings that rows name it by."""

    tap: Tap
    params: str


@dataclass
class Pass:
    """What one pass over a split left behind: what was needed of it."""

    labels: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    logits: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    features: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    moments: dict[Tap, ClassMoments] = field(default_factory=dict)
    inputs: dict[Tap, Moments] = field(default_factory=dict)
    kept: dict[Tap, Tensor] = field(default_factory=dict)
    probe_accuracy: dict[Readout, float] = field(default_factory=dict)


class Scores(NamedTuple):
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
    passes: dict[str, Pass]
    ood: tuple[str, ...]
    final: bool
    gradients: dict[Tap, Tensor] = field(default_factory=dict)
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

    @functools.cached_property
    def logit_spectrum(self) -> Tensor:
        """Singular values of the centred logits of the training set."""
        return geometry.singular_values(Moments.of(self.passes["train"].logits))

    def layers(self) -> Iterator[tuple[Tap, Callable[..., Row]]]:
        """Every tap with a maker of its training-set rows."""
        for depth, tap in enumerate(self.taps, start=1):
            yield tap, functools.partial(Row, "train", tap.path, depth, tap.label)

    def layer(self, tap: Tap) -> nn.Module:
        """The module a tap reads."""
        return self.net.get_submodule(tap.path)


class Subject(NamedTuple):
    """The net to look at: where to tap it, at which temperature its probabilities are meant, how to read its output."""

    net: nn.Module
    taps: tuple[Tap, ...]
    temperature: float
    logits: Callable[[Any], Tensor]
    probes: tuple[str, ...] = ("ridge",)
    progress: bool = False

    def show(self, split: str, data: Any) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
        """The batches of a split, drawn as a progress bar with an ETA where that was asked for."""
        batches = source.batches(data, self.net, size=BATCH)
        if not self.progress:
            return batches
        known = source.count(data)
        total = -(-known // BATCH) if known and not isinstance(data, DataLoader) else len(data) if known else None
        return iter(track(batches, f"measuring on {split}", total))

    def run(self, arguments: tuple[Tensor, ...]) -> Tensor:
        """The logits of a batch."""
        output = self.logits(self.net(*arguments))
        if not isinstance(output, Tensor) or output.ndim != 2:
            kind = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            raise InputError(f"the net returns {kind}, not (samples, classes) logits: pass logits=lambda output: ...")
        return output


def look(subject: Subject, train: Any, test: Any, ood: Mapping[str, Any], needs: frozenset[str], *, final: bool) -> Seen:
    """The passes: over each training split first, whose moments give the probes that the test split is read with."""
    seen = Seen(subject.net, subject.taps, subject.temperature, {}, tuple(ood), final)
    features = "features" in needs
    with evaluating(subject.net), torch.no_grad():
        for prefix, (fit_on, test_on) in {"": (train, test), **{f"{name}/": pair for name, pair in ood.items()}}.items():
            probing = "probes" in needs
            moments = (probing and "ridge" in subject.probes) or ("moments" in needs and not prefix)
            if not prefix or probing:
                split = f"{prefix}train"
                seen.passes[split] = _pass(
                    subject,
                    split,
                    fit_on,
                    moments=moments,
                    keep=probing and "logistic" in subject.probes,
                    features=features and not prefix,
                    inputs="inputs" in needs and not prefix,
                )
            readouts = _readouts(subject, seen.passes[f"{prefix}train"]) if probing else {}
            if test_on is not None:
                split = f"{prefix}test"
                seen.passes[split] = _pass(subject, split, test_on, features=features, readouts=readouts)
        if "gradients" in needs:
            seen.gradients = _gradients(subject, train)
    return seen


def _pass(
    subject: Subject,
    split: str,
    data: Any,
    *,
    moments: bool = False,
    keep: bool = False,
    features: bool = False,
    inputs: bool = False,
    readouts: Mapping[Readout, probes.Probe] = MappingProxyType({}),
) -> Pass:
    """Show every sample to the net once."""
    one, taps = Pass(), subject.taps
    penultimate = Tap(taps[-1].path, at="input")
    wanted = [*(taps if moments or keep or readouts else ()), *([penultimate] if features else ())]
    raw = {tap: Tap(tap.path, at="input", view="raw") for tap in taps} if inputs else {}
    labels, logits, kept, held = [], [], [], {tap: [] for tap in taps if keep}
    correct = dict.fromkeys(readouts, torch.tensor(0))
    stride, start = _stride(data), 0
    for arguments, truth in subject.show(split, data):
        with capture(subject.net, [*wanted, *raw.values()]) as seen:
            logits.append(_finite(subject.run(arguments), "logits"))
        labels.append(truth)
        kept += [seen[penultimate]] if features else []
        for tap in taps if moments else ():
            _update(one.moments, tap, _finite(seen[tap], tap.path), truth)
        for tap in held:
            held[tap].append(_finite(seen[tap], tap.path))
        for tap, place in raw.items():
            _update_inputs(one.inputs, tap, subject.net.get_submodule(tap.path), seen[place], start, stride)
        for readout, probe in readouts.items():
            correct[readout] = correct[readout] + (probe.predict(seen[readout.tap]) == truth).sum().cpu()
        start += len(truth)
    one.labels, one.logits = torch.cat(labels), torch.cat(logits)
    one.features = torch.cat(kept) if features else one.features
    one.kept = {tap: torch.cat(parts) for tap, parts in held.items()}
    one.probe_accuracy = {readout: int(count) / len(one.labels) for readout, count in correct.items()}
    return one


def _stride(data: Any) -> int:
    """Every how-manieth sample gives `FEW` of them; sets may be sorted by class, so never the first ones."""
    return max((source.count(data) or 8 * FEW) // FEW, 1)


def _update(moments: dict[Tap, ClassMoments], tap: Tap, value: Tensor, labels: Tensor) -> None:
    """Take a batch into a layer's moments, which widen when a class is met that no batch before had."""
    classes = int(labels.max()) + 1
    one = moments.get(tap)
    if one is None:
        one = moments[tap] = ClassMoments(value.shape[1], classes, device=value.device)
    if (more := classes - len(one.counts)) > 0:
        one.counts, one.means = functional.pad(one.counts, (0, more)), functional.pad(one.means, (0, 0, 0, more))
    one.update(value, labels)


def _update_inputs(moments: dict[Tap, Moments], tap: Tap, layer: nn.Module, value: Tensor, start: int, stride: int) -> None:
    """Take what a layer multiplies its weight with, of some samples, into its moments."""
    if isinstance(layer, nn.Conv2d) and layer.groups == 1:
        # Every image gives a row for each place in it, so an eighth of them is plenty.
        rows = geometry.unfold_patches(value[source.every(start, 8 * stride)], layer)
    elif isinstance(layer, nn.Linear):
        rows = value[source.every(start, stride)].flatten(0, -2)
    else:
        return
    if tap not in moments:
        moments[tap] = Moments(rows.shape[1], device=rows.device)
    moments[tap].update(rows)


def _gradients(subject: Subject, data: Any) -> dict[Tap, Tensor]:
    """dL/dW of every tapped layer over `FEW` samples, leaving the .grad of parameters alone."""
    weights = {tap: cast(Tensor, subject.net.get_submodule(tap.path).weight) for tap in subject.taps}
    frozen = {weight: weight.requires_grad for weight in weights.values()}
    total = {tap: torch.zeros_like(weight) for tap, weight in weights.items()}
    stride, start, count = _stride(data), 0, 0
    try:
        for weight in frozen:
            weight.requires_grad_(True)
        for arguments, labels in source.batches(data, subject.net, size=BATCH):
            chosen = source.every(start, stride)
            start, some = start + len(labels), labels[chosen]
            if not len(some):
                continue
            with torch.enable_grad():
                logits = subject.run(tuple(argument[chosen] for argument in arguments))
                loss = softmax.tempered_cross_entropy(logits, some, temperature=subject.temperature) * len(some)
                found = torch.autograd.grad(loss, list(weights.values()))
            count += len(some)
            for tap, gradient in zip(weights, found):
                total[tap] += gradient
    finally:
        for weight, required in frozen.items():
            weight.requires_grad_(required)
    return {tap: gradient / count for tap, gradient in total.items()}


@contextlib.contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Evaluation mode, and afterwards each module in the mode it had."""
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _finite(value: Tensor, where: str) -> Tensor:
    if not torch.isfinite(value).all():
        raise Failure(f"the net gives NaN or infinite values at {where}: nothing can be measured on it")
    return value


def _readouts(subject: Subject, one: Pass) -> dict[Readout, probes.Probe]:
    """The probes of every layer, of every kind asked for, fitted on what a pass over a training split left behind."""
    fits = {"ridge": _ridge, "logistic": _logistic}
    return {readout: probe for kind in subject.probes for readout, probe in fits[kind](subject.taps, one).items()}


def _ridge(taps: tuple[Tap, ...], one: Pass) -> dict[Readout, probes.Probe]:
    found = {}
    for tap in taps:
        variance = one.moments[tap].all.scatter.diagonal().mean()
        # A layer whose units are all dead has no variance; any positive penalty then gives the majority class.
        probe = probes.ridge_probe(one.moments[tap], alpha=float(RIDGE * variance) or 1.0)
        found[Readout(tap, params(probe="ridge", penalty=RIDGE))] = probe
    return found


def _logistic(taps: tuple[Tap, ...], one: Pass) -> dict[Readout, probes.Probe]:
    """Adam at 1e-3 for 30 passes in batches of 512, without decay [masarczyk2023tunnel], all layers together."""
    count = itertools.count()

    def epoch() -> Iterator[tuple[dict[Tap, Tensor], Tensor]]:
        generator = torch.Generator().manual_seed(next(count))
        for chosen in torch.randperm(len(one.labels), generator=generator).to(one.labels.device).split(512):
            yield {tap: one.kept[tap][chosen] for tap in taps}, one.labels[chosen]

    fits = probes.fit_probes(epoch, classes=max(int(one.labels.max()) + 1, 2), passes=30, batch=512, lr=(1e-3,))
    one.kept.clear()
    return {Readout(tap, params(probe="logistic", lr=1e-3, passes=30)): fits[tap].probe for tap in taps}
