"""A detector as data: what it was made with and what it has learned, apart from any file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from thermocline import spec
from thermocline.detect.alignment import NCI
from thermocline.detect.confidence import GEN, MSP, Energy, Entropy, KLMatching, MaxLogit
from thermocline.detect.gaussian import Mahalanobis, RelativeMahalanobis
from thermocline.detect.inputs import Detector, learned, require_fitted
from thermocline.detect.neighbours import KNN, NNGuide
from thermocline.detect.shaping import ASH, ReAct
from thermocline.detect.subspace import NECO, Residual, ViM

_ALL = (
    MSP, MaxLogit, Energy, Entropy, GEN, KLMatching, NECO, Residual, ViM,
    Mahalanobis, RelativeMahalanobis, KNN, NNGuide, NCI, ReAct, ASH,
)  # fmt: skip
DETECTORS: dict[str, type] = {one.__name__: one for one in _ALL}


class State(NamedTuple):
    """A fitted detector: its name in `DETECTORS`, settings that JSON can hold, and tensors."""

    name: str
    settings: dict[str, Any]
    tensors: dict[str, Tensor]


def state(detector: Detector) -> State:
    """What `restore` makes an equal detector of. One inside another is a setting, its tensors named after it.

    >>> import torch; from thermocline.detect import MSP, ASH
    >>> state(ASH(MSP(temperature=2.0), torch.eye(3), percentile=65, variant="s")).settings
    {'inner': {'name': 'MSP', 'settings': {'temperature': 2.0}}, 'bias': None, 'percentile': 65, 'variant': 's'}
    """
    name = type(detector).__name__
    if DETECTORS.get(name) is not type(detector):
        raise ValueError(f"a {name} is no detector of ours, whose state is known")
    require_fitted(detector)
    settings, tensors = {}, {}
    for field in dataclasses.fields(DETECTORS[name]):
        value = getattr(detector, field.name)
        if field.name == "inner":
            inside = state(value)
            settings["inner"] = {"name": inside.name, "settings": inside.settings}
            tensors |= {f"inner.{key}": tensor for key, tensor in inside.tensors.items()}
        elif isinstance(value, Tensor):
            tensors[field.name] = value.detach()
        else:
            settings[field.name] = value.item() if isinstance(value, np.generic) else value
    return State(name, settings, tensors)


def restore(name: str, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """The detector that `state` described, which scores as that one does, to the bit. Nothing is run but constructors of ours.

    >>> restore("MSP", {"temperature": 2.0}, {})
    MSP(temperature=2.0)
    >>> restore("NECO", {"dim": 2}, {})
    Traceback (most recent call last):
    thermocline.spec.InputError: the NECO kept here lacks mean, std, axes, others
    """
    if name not in DETECTORS:
        raise spec.unknown("detector", name, DETECTORS)
    kind, values = DETECTORS[name], {**settings}
    if "inner" in values:
        values["inner"] = _inside(values["inner"], tensors)
    values |= {key: tensor for key, tensor in tensors.items() if not key.startswith("inner.")}
    fields = {field.name: field for field in dataclasses.fields(kind)}
    needed = [key for key, field in fields.items() if not field.init or field.default is dataclasses.MISSING]
    for what, names in (
        ("lacks", [key for key in needed if key not in values]),
        ("has no place for", [key for key in values if key not in fields]),
    ):
        if names:
            raise spec.InputError(f"the {name} kept here {what} {', '.join(names)}")
    if wrong := [key for key in learned(kind) if not isinstance(values[key], Tensor)]:
        raise spec.InputError(f"the {name} kept here has no tensor for {', '.join(wrong)}")
    return _made(kind, values)


def _inside(kept: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(kept, Mapping) or kept.keys() != {"name", "settings"}:
        raise spec.InputError(f"a detector inside another is kept by name and settings, got {kept!r}")
    mine = {key.removeprefix("inner."): tensor for key, tensor in tensors.items() if key.startswith("inner.")}
    return restore(kept["name"], kept["settings"], mine)


def _made(kind: type, values: Mapping[str, Any]) -> Any:
    inside = learned(kind)
    try:
        detector = kind(**{key: value for key, value in values.items() if key not in inside})
    except (TypeError, AttributeError, ValueError) as error:  # a value of another type than the constructor compares it with
        raise spec.InputError(f"the {kind.__name__} kept here cannot be made: {error}") from error
    for key in inside:
        setattr(detector, key, values[key])
    return detector
