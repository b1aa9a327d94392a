"""Detection by files: features of a model, a detector fitted to them, its scores, and how well they tell data apart."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from thermocline import detect, measure, nets, record, spec
from thermocline.data import Split
from thermocline.measure import source
from thermocline.measure.capture import capture
from thermocline.measure.detecting import linear_head, usual
from thermocline.nets import Tap
from thermocline.scanner import head_of, inner
from thermocline.shelf import Features
from thermocline.spec import Failure, InputError

FPR = {"tpr": 0.95, "positive": "id"}
READS = {  # what each detector, by the name that rows give it, is fitted to or scores by
    "msp": "logits", "maxlogit": "logits", "energy": "logits", "entropy": "logits", "gen": "logits", "kl-matching": "logits",
    "neco": "features", "neco-maxlogit": "features, logits", "residual": "features, weight", "vim": "features, logits, weight",
    "mahalanobis": "features, labels", "relative-mahalanobis": "features, labels", "knn": "features",
    "nnguide": "features, logits", "nci": "features, logits, weight", "react": "features, weight", "ash": "features, weight",
}  # fmt: skip
_PRESET = {"neco-maxlogit": ("neco", "logit_factor=true")}


def features_of(model: nn.Module, data: Any) -> Features:
    """What the head of a classifier reads and gives for every sample of a Split, tensors, a Dataset or a DataLoader.

    Labels are None where the data have none.
    """
    net = inner(model)
    head = head_of(net, data)
    place = Tap(head.path, at="input")
    parts: list[tuple[Tensor, Tensor]] = []
    known: list[Tensor] = []
    subject = measure.Subject(net, (head,), 1.0, lambda output: output)
    with measure.evaluating(net), torch.no_grad():
        for arguments, labels in source.samples(data, net, size=1000):
            with capture(net, [place]) as at:
                logits = subject.run(arguments)
            parts.append((at[place], logits))
            known += [] if labels is None else [labels]
        features, logits = (torch.cat(some) for some in zip(*parts))
        weight, bias = linear_head(net.get_submodule(head.path), features, logits)
    if not (features.isfinite().all() and logits.isfinite().all()):
        where = data.name if isinstance(data, Split) else "these data"
        raise Failure(f"the net gives NaN or infinite values on {where}: nothing can be detected by them")
    labels = torch.cat(known) if len(known) == len(parts) else None
    return Features(features, logits, labels, weight, bias)


def make(name: str, settings: Iterable[str], found: Features, *, temperature: float) -> detect.Detector:
    """A detector by name, not yet fitted: case and hyphens do not matter, settings are `name=value`."""
    kind, preset = _kind(name)
    given = _parsed([*preset, *settings])
    inner = [f"{key.removeprefix('inner.')}={json.dumps(given.pop(key))}" for key in list(given) if key.startswith("inner.")]
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    own = [key for key in fields if key not in ("weight", "bias")]  # which are the features' own
    if unknown := [key for key in given if key not in own]:
        raise spec.unknown(f"setting of {kind.__name__}", unknown[0], own)
    values: dict[str, Any] = {"temperature": temperature} if "temperature" in fields else {}
    if "inner" in fields:
        values["inner"] = make(str(given.pop("inner", "Energy")), inner, found, temperature=temperature)
    elif inner:
        raise InputError(f"{kind.__name__} has no detector inside: leave out inner.")
    if "weight" in fields and found.weight is None:
        raise InputError(f"{kind.__name__} reads the head's weight: the features' file needs an array 'weight' (c, d)")
    values |= {key: getattr(found, key) for key in ("weight", "bias") if key in fields}
    missing = [key for key, field in fields.items() if field.default is dataclasses.MISSING and key not in {**values, **given}]
    if missing:
        scans = usual(*found.features.shape)[missing[0]]
        raise InputError(f"{kind.__name__} needs --set {missing[0]}=..., which papers choose differently; scans take {scans}")
    for key, value in given.items():
        if (fields[key].type == "bool") != isinstance(value, bool) or value in (math.inf, -math.inf):
            raise InputError(f"{kind.__name__}: {key} takes {fields[key].type}, got {value!r}")
    try:
        return kind(**{**values, **given})
    except (TypeError, ValueError) as error:
        raise InputError(f"{kind.__name__}: {error}") from None


def fit(detector: detect.Detector, found: Features) -> detect.Detector:
    """Fit a detector to features; what cannot be fitted to is the user's to know."""
    try:
        return detector.fit(found.features, found.logits, found.labels)
    except ValueError as error:
        raise InputError(str(error)) from None


def score(detector: detect.Detector, found: Features) -> Tensor:
    """The scores of samples, higher the more in-distribution."""
    try:
        return detector.score(found.features, found.logits)
    except (ValueError, RuntimeError) as error:  # the latter: a file whose tensors do not fit each other
        raise InputError(str(error).splitlines()[0]) from None


def evaluate(detector: detect.Detector, inside: Features, outside: Mapping[str, Features]) -> pa.Table:
    """How well a detector tells ID samples from each OOD set: AUROC with its interval, AUPR both ways, FPR at 95 % TPR."""
    known = score(detector, inside)
    rows = []
    for name, found in outside.items():
        other = score(detector, found)
        try:
            interval = detect.auroc_interval(known, other, level=0.95)
            both = {f"aupr_{side}": float(detect.aupr(known, other, positive=side)) for side in ("id", "ood")}
            fpr = float(detect.fpr_at_tpr(known, other, **FPR))
        except ValueError as error:
            raise InputError(f"{name}: {error}") from None
        auroc = dict(zip(("auroc", "auroc_low", "auroc_high"), map(float, interval)))
        rows.append({"ood": name, **auroc, **both, "fpr95": fpr, "id_samples": len(known), "ood_samples": len(other)})
    return pa.Table.from_pylist(rows)


def saved(directory: str | os.PathLike[str]) -> tuple[spec.Run, dict[str, Tensor]]:
    """What a run directory is of, and the tensors it last saved."""
    what = record.load_run(directory).spec
    if (checkpoint := record.load_checkpoint(directory)) is None:
        raise InputError(f"{directory} has no checkpoint: its weights are not there to read")
    return what, checkpoint[1]


def trained(what: spec.Run, tensors: Mapping[str, Tensor], train: Split) -> tuple[nn.Module, Tensor]:
    """The net of a run as `saved`, and the temperature training was at then; `train`: what it was trained on."""
    net = nets.build(what.net, classes=train.classes, size=train.size, channels=train.channels, seed=what.seed)
    net.load_state_dict({name.removeprefix("net."): one for name, one in tensors.items() if name.startswith("net.")})
    return net.to(train.device), tensors["temperature"]


def described() -> Iterator[tuple[str, str]]:
    """Every detector as it is typed, and what it is: its meaning, what it reads, its settings."""
    for name, reads in READS.items():
        kind, preset = _kind(name)
        meaning = " ".join((kind.__doc__ or "").strip().split("\n\n")[0].split())
        own = [field for field in dataclasses.fields(kind) if field.init and field.name not in ("weight", "bias")]
        settings = f"; settings: {', '.join(map(_setting, own))}" if own and not preset else ""
        said = f"the same as {_PRESET[name][0]} with --set {preset[0]}" if preset else meaning
        yield name, f"{said}\n  reads {reads}{settings}"


def _setting(field: dataclasses.Field[Any]) -> str:
    """A setting as it is typed, with its default or, where it has none, an example."""
    if field.name == "inner":
        return "inner=energy"
    if field.default is dataclasses.MISSING:
        return f"{field.name} (must be given, e.g. {usual(1000, 512)[field.name]})"
    return f"{field.name}={json.dumps(field.default)}"


def _kind(name: str) -> tuple[type, list[str]]:
    """The class of a detector, and the settings that its name stands for."""
    plain = {typed.replace("-", ""): typed for typed in READS}
    if (short := name.lower().replace("-", "").replace("_", "")) not in plain:
        raise spec.unknown("detector", name.lower(), READS)
    kind, *preset = _PRESET.get(plain[short], (plain[short],))
    return {key.lower(): one for key, one in detect.DETECTORS.items()}[kind.replace("-", "")], preset


def _parsed(settings: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in map(_parse, settings):
        if key in found:
            raise InputError(f"--set names {key} twice; leave one of them out")
        found[key] = value
    return found


def _parse(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set {text!r}: write name=value, e.g. k=50")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
