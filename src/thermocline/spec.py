"""What a run is: frozen, typed, JSON-able, hashed. Equal specs have equal keys.

A spec knows types, ranges and closed vocabularies; whether a data set, net or measure of that name
exists is for the module that owns the name to say. Standard library only.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import itertools
import json
import math
import numbers
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

_OBSERVED = {"data.name", "data.ood", "net.name", "train.temperature", "measures", "seed", "probes", "follow"}  # of a scan
Probe = Literal["ridge", "ridge-weak", "logistic", "logistic-flatten", "logistic-smooth", "logistic-standard", "logistic-grid"]


class InputError(ValueError):
    """Something the user gave is wrong. The message is one line: what came, what was expected, what to change."""


class Failure(RuntimeError):
    """A computation could not be finished. The message is one line: what happened, where, and what to try."""


def unknown(what: str, word: str, words: Iterable[str], *, see: str = "") -> InputError:
    """The error for a word outside a vocabulary, naming the nearest valid one, or those that end in it after a dot.

    `see` is the command that lists the words, where they are too many for a line.

    >>> unknown("net", "resnet81", ["mlp", "resnet18"])
    InputError("unknown net 'resnet81'; did you mean 'resnet18'?")
    >>> unknown("setting", "name", ["data.name", "net.name", "seed"])
    InputError("unknown setting 'name'; did you mean 'data.name' or 'net.name'?")
    """
    words = list(words)
    close = [one for one in words if one.endswith(f".{word}")] or [one for one in words if one.lower() == word.lower()]
    close = close or difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    known = f"see: {see}" if see else f"valid: {', '.join(words)}"
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else known
    return InputError(f"unknown {what} {word!r}; {hint}")


def setting(default: Any, help: str, **bounds: float) -> Any:
    """A field with its help line and its bounds (`above`, `least`, `below`)."""
    return dataclasses.field(default=default, metadata={"help": help, "bounds": bounds})


def _check(spec: Any) -> None:
    """Coerce and check every field against its annotation and bounds; each class below runs it when constructed."""
    for field in fields(spec):
        value = _coerce(field.name, getattr(spec, field.name), _hints(type(spec))[field.name])
        _bound(field.name, value, field.metadata.get("bounds", {}))
        object.__setattr__(spec, field.name, value)


@dataclass(frozen=True)
class Data:
    """Which images, how many, and what else to test on."""

    __post_init__ = _check
    name: str = setting("runes", "data set: runes, runes:SEED, digits, cifar10, imagenet, folder:DIR, parquet:DIR, ...")
    classes: int | None = setting(None, "how many classes (default: all the set has; runes: 100)", least=2)
    size: int | None = setting(None, "pixels a side (default: the set's own; runes: 16; imagenet: 224)", least=4)
    train: int | None = setting(None, "training images, before imbalance (default: all; runes: 12000)", least=1)
    test: int | None = setting(None, "test images (default: all; runes: 3000)", least=1)
    ood: tuple[str, ...] = setting((), "out-of-distribution sets, by data-set name")
    imbalance: float = setting(1.0, "long tail: training images of class 0 over those of the last (1: as they are)", least=1)
    label_noise: float = setting(0.0, "share of training images given the label of another class", least=0, below=1)


@dataclass(frozen=True)
class Net:
    """Which network. A field left at None takes the architecture's own default."""

    __post_init__ = _check
    name: str = setting("mlp", "architecture: mlp, resnet18, vgg19, vit_tiny, timm:NAME, ...")
    depth: int | None = setting(None, "mlp: weight layers (8); ViTs: blocks (12); others carry it in their name", least=2)
    width: int | None = setting(
        None, "mlp: hidden units (1024); ResNets, VGGs: channels of the first (64; resnet20: 16); ViTs: dimension", least=1
    )
    widen: float = setting(1.0, "multiplies every hidden width", above=0)
    stem: Literal["auto", "small", "imagenet"] = setting("auto", "ResNets: how images enter (auto: small up to 64 pixels)")
    init: Literal["own", "he", "lecun", "xavier", "orthogonal", "torch"] = setting("own", "how weights are drawn")
    init_scale: float = setting(1.0, "multiplies every weight at initialisation", above=0)
    head_init_scale: float = setting(1.0, "multiplies the head's weights and bias at initialisation", above=0)
    logit_norm_init: float | None = setting(
        None, "rescale the head to this initial ||M|| / sqrt(n), batch norms as in training", above=0
    )
    logit_norm: Literal["none", "before", "after"] = setting("none", "normalise the head's inputs, or the logits themselves")
    head: Literal["linear", "bottleneck", "circle"] = setting("linear", "linear; through few dimensions; on a fixed circle")
    head_rank: int | None = setting(None, "head=bottleneck: its dimensions", least=1)


@dataclass(frozen=True)
class Train:
    """The recipe: an optimiser and a loss at a softmax temperature, which may move."""

    def __post_init__(self) -> None:
        _check(self)
        if self.nesterov and not self.momentum:
            raise InputError("nesterov=true needs a momentum above 0")
        if self.nesterov and self.optimizer != "sgd":
            raise InputError(f"nesterov=true is for optimizer=sgd, not {self.optimizer}")
        for name, plan in (("milestones", "schedule"), ("decay", "schedule"), ("temperature_at", "temperature_schedule")):
            if getattr(self, name) != getattr(Train, name) and (chosen := getattr(self, plan)) != "step":
                raise InputError(f"{name} is for {plan}=step, not {chosen}")
        if self.warmup > self.epochs:
            raise InputError(f"warmup={self.warmup:g} epochs are more than the epochs={self.epochs} of training")
        if self.temperature_target is not None and self.temperature != 1:
            found = f"temperature_schedule={self.temperature_schedule} finds the temperature"
            raise InputError(f"{found}: leave out temperature={self.temperature:g}, which would have no effect")
        if self.temperature_target is not None and self.loss == "logitnorm":
            raise InputError("loss=logitnorm fixes the size of the logits, so temperature_target has nothing to hold")
        for name, ways in (("end", ("linear", "cosine", "exponential", "step")), ("target", ("hold-norm", "hold-entropy"))):
            given, way = getattr(self, f"temperature_{name}") is not None, self.temperature_schedule
            if given != (way in ways):
                raise InputError(f"temperature_schedule={way} {'takes no' if given else 'needs a'} temperature_{name}")

    epochs: int = setting(30, "passes over the training images", least=1)
    batch: int = setting(128, "images a step", least=1)
    lr: float = setting(0.1, "learning rate at its highest", above=0)
    optimizer: Literal["sgd", "adam", "adamw"] = setting("sgd", "optimiser; adamw keeps weight decay out of the gradient")
    momentum: float = setting(0.9, "momentum of SGD, first beta of Adam", least=0, below=1)
    nesterov: bool = setting(False, "Nesterov momentum")
    weight_decay: float = setting(0.0, "L2 penalty, added to the gradient", least=0)
    schedule: Literal["constant", "step", "cosine"] = setting("cosine", "how lr falls over training")
    milestones: tuple[float, ...] = setting(
        (0.5, 0.75), "schedule=step: fractions of training at which lr is cut", above=0, below=1
    )
    decay: float = setting(0.1, "schedule=step: what lr is multiplied by at each milestone", above=0)
    warmup: float = setting(0.0, "epochs over which lr rises linearly from zero", least=0)
    clip: float | None = setting(None, "largest gradient norm (default: no clipping)", above=0)
    patience: int | None = setting(None, "epochs at chance before a run is stopped (default: a quarter, 5 at least)", least=1)
    loss: Literal["cross_entropy", "mse", "logitnorm"] = setting("cross_entropy", "loss of softmax_T(logits) against labels")
    label_smoothing: float = setting(0.0, "share of each label spread over all classes", least=0, below=1)
    temperature: float = setting(1.0, "softmax temperature T of the loss; where it moves, at the start", above=0)
    temperature_schedule: Literal[
        "constant", "linear", "cosine", "exponential", "step", "learned", "hold-norm", "hold-entropy"
    ] = setting("constant", "how T moves: to temperature_end, by its gradient, or to hold temperature_target")
    temperature_end: float | None = setting(None, "T at the end, and after a step", above=0)
    temperature_at: float = setting(0.5, "temperature_schedule=step: when T jumps, as a share of training", above=0, below=1)
    temperature_target: float | None = setting(
        None, "hold-norm: ||M|| / (T sqrt(n)); hold-entropy: the mean softmax entropy in nats", above=0
    )
    head_lr: float = setting(1.0, "the head's lr as a multiple of lr", above=0)
    head_weight_decay: float = setting(1.0, "the head's weight decay as a multiple of weight_decay", least=0)
    norm_weight_decay: float = setting(1.0, "the same for biases and normalisation outside the head", least=0)
    augment: Literal["none", "flip", "crop", "crop+flip"] = setting("none", "augmentation of training images")
    precision: Literal["float32", "bfloat16"] = setting("float32", "number format of the forward pass; weights stay float32")
    compile: bool = setting(False, "compile the step, on a single GPU: faster, but a resumed run may round differently")
    snapshots: int = setting(10, "times to measure while training, closer together early on", least=1)


@dataclass(frozen=True)
class Run:
    """One run: data, net, recipe, what to measure, and the seed of everything random."""

    __post_init__ = _check
    data: Data = dataclasses.field(default_factory=Data)
    net: Net = dataclasses.field(default_factory=Net)
    train: Train = dataclasses.field(default_factory=Train)
    measures: tuple[str, ...] = setting(("all",), "what to measure (see: thermocline list measures)")
    seed: int = setting(0, "seed of initialisation, sampling and augmentation", least=0, below=2**63)
    probes: tuple[Probe, ...] = setting(
        ("ridge",), "linear probes to train on every layer; the first gives effective depth and OOD drop in reports"
    )
    follow: tuple[str, ...] = setting((), "measures to take at every snapshot too, beside the cheap ones")
    scanned: str = setting("", "which net trained elsewhere this was found on: no setting, but what tells scans apart")

    @functools.cached_property
    def key(self) -> str:
        """Twelve hex digits of the SHA-256 of every setting that differs from its default.

        Hashing only what differs lets later versions add settings without renaming old runs; the price is
        that a default, once released, never changes.
        """
        default = _defaults()
        changed = {path: value for path, value in leaves(self) if value != default[path]}
        return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """A readable directory name, unique through the key.

        >>> Run(Data("runes"), Net("mlp"), Train(temperature=100), seed=2).name.rsplit("-", 1)[0]
        'runes-mlp-T100-s2'
        """
        words = f"{self.data.name}-{self.net.name}"
        slug = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")[-60:]
        return f"{slug}-T{self.train.temperature:g}-s{self.seed}-{self.key}"


def leaves(spec: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting as (dotted path, value)."""
    for field in fields(spec):
        value = getattr(spec, field.name)
        if is_dataclass(value):
            yield from leaves(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def known(settings: Mapping[str, Any]) -> list[str]:
    """The paths of the leaves that say something: of a net that was trained elsewhere nobody gave a recipe.

    >>> len(known(dict(leaves(Run())))) > len(known(dict(leaves(Run(scanned="0123456789ab")))))
    True
    """
    return [path for path in settings if path != "scanned" and (not settings.get("scanned") or path in _OBSERVED)]


def describe() -> Iterator[tuple[str, str, Any, str]]:
    """Every setting as (dotted path, type, default, help line)."""
    for path, default in _defaults().items():
        if path == "scanned":
            continue
        owner, field = _locate(path)
        hint = _hints(owner)[field.name]
        yield path, _spell(hint), default, field.metadata.get("help", "")


def replace(run: Run, changes: Mapping[str, Any]) -> Run:
    """A copy with the settings at these dotted paths changed, all at once: some are valid only together.

    >>> replace(Run(), {"train.temperature": 100}).train.temperature
    100.0
    """
    for path in changes:
        _locate(path)
    return _replaced(run, changes)


def grid(base: Run, axes: Mapping[str, Iterable[Any]]) -> list[Run]:
    """Every combination of the values along the axes, the last axis fastest.

    >>> [(r.train.temperature, r.seed) for r in grid(Run(), {"train.temperature": [1, 100], "seed": range(2)})]
    [(1.0, 0), (1.0, 1), (100.0, 0), (100.0, 1)]
    """
    for path, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Iterable):  # a text would be a run for every letter
            raise InputError(f"grid takes a sequence of values for {path}, got {values!r}")
    return [replace(base, dict(zip(axes, values))) for values in itertools.product(*map(list, axes.values()))]


def parse(run: Run, assignments: Iterable[str]) -> Run:
    """Apply `--set` texts such as `train.lr=0.5`, `data.ood=digits,runes:1` or `train.clip=none`.

    >>> parse(Run(), ["train.lr=0.5", "data.ood=digits,runes:1"]).data.ood
    ('digits', 'runes:1')
    """
    changes = {}
    for text in assignments:
        path, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text!r} has no '='; write path=value, e.g. train.temperature=100")
        if path.strip() == "scanned":
            raise InputError("scanned is found by scan and Watch, and cannot be set")
        owner, field = _locate(path.strip())
        changes[path.strip()] = _parse(path.strip(), value.strip(), _hints(owner)[field.name])
    return replace(run, changes)


def to_json(run: Run) -> dict[str, Any]:
    """Nested plain data, the inverse of `from_json`; of a scan, only what is known of it."""
    given, default = dict(leaves(run)), _defaults()
    told = {*known(given), *(path for path in given if given[path] != default[path])}
    plain: dict[str, Any] = {}
    for path, value in given.items():
        *parents, last = path.split(".")
        if path in told:
            functools.reduce(lambda inside, name: inside.setdefault(name, {}), parents, plain)[last] = value
    return json.loads(json.dumps(plain))


def from_json(plain: Mapping[str, Any]) -> Run:
    """The run that `to_json` wrote; an unknown setting is an error, a missing one takes its default."""
    return replace(Run(), {path: tuple(value) if isinstance(value, list) else value for path, value in _flat(plain)})


def _flat(plain: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in plain.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _replaced(spec: Any, changes: Mapping[str, Any]) -> Any:
    here = {path: value for path, value in changes.items() if "." not in path}
    for parent in {path.partition(".")[0] for path in changes if "." in path}:
        below = {path.partition(".")[2]: value for path, value in changes.items() if path.startswith(f"{parent}.")}
        here[parent] = _replaced(getattr(spec, parent), below)
    return dataclasses.replace(spec, **here)


@functools.cache
def _defaults() -> dict[str, Any]:
    return dict(leaves(Run()))


@functools.cache
def _locate(path: str) -> tuple[type, dataclasses.Field[Any]]:
    """The class and field behind a dotted path that ends at a leaf."""
    valid = list(_defaults())
    if path not in valid:
        named = [f"{path}.name"] if f"{path}.name" in valid else [name for name in valid if name != "scanned"]
        raise unknown("setting", path, named, see="thermocline list settings")
    owner: type = Run
    *parents, last = path.split(".")
    for parent in parents:
        owner = _hints(owner)[parent]
    return owner, next(field for field in fields(owner) if field.name == last)


@functools.cache
def _hints(owner: type) -> dict[str, Any]:
    return typing.get_type_hints(owner)


def _spell(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return " | ".join(typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"{_spell(typing.get_args(hint)[0])}, ..."
    if isinstance(hint, type):
        return hint.__name__
    return str(hint).replace("NoneType", "none").replace("None", "none")


def _coerce(name: str, value: Any, hint: Any) -> Any:
    """The value in the annotated type, or an error; int becomes float where a float is meant, never the reverse."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return None if value is None else _coerce(name, value, args[0])
    if origin is Literal:
        if value not in args:
            raise unknown(name, str(value), args)
        return value
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise InputError(f"{name} takes a sequence of {_spell(args[0])}, got {value!r}")
        return tuple(_coerce(name, item, args[0]) for item in value)
    if hint is float and isinstance(value, numbers.Real) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise InputError(f"{name} must be finite, got {value!r}")
        return float(value)
    if hint is int and isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if hint in (int, float) or not isinstance(value, hint):
        raise InputError(f"{name} takes {hint.__name__}, got {value!r}")
    return value


def _bound(name: str, value: Any, bounds: Mapping[str, float]) -> None:
    if value is None:
        return
    if isinstance(value, tuple):
        for item in value:
            _bound(f"each of {name}", item, bounds)
        return
    for word, holds in (("above", value.__gt__), ("least", value.__ge__), ("below", value.__lt__)) if bounds else ():
        if word in bounds and not holds(type(value)(bounds[word])):
            raise InputError(f"{name} must be {'at least' if word == 'least' else word} {bounds[word]:g}, got {value!r}")


def _parse(path: str, text: str, hint: Any) -> Any:
    """The typed value of a `--set` text."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return None if text.lower() == "none" else _parse(path, text, args[0])
    if origin is tuple:
        return tuple(_parse(path, item.strip(), args[0]) for item in text.split(",") if item.strip())
    if hint is bool:
        if text.lower() not in ("true", "false"):
            raise InputError(f"{path} takes true or false, got {text!r}")
        return text.lower() == "true"
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            raise InputError(f"{path} takes {hint.__name__}, got {text!r}") from None
    return text
