"""Measure, steer and reproduce what softmax temperature does to a network's representations.

The names below load on first use, so that `import thermocline` and `thermocline --help` do not import torch.
"""

import importlib
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thermocline.data import load as load
    from thermocline.measure import MEASURES as MEASURES
    from thermocline.measure import capture as capture
    from thermocline.record import load_rows as load_rows
    from thermocline.report import render as render
    from thermocline.scanner import Watch as Watch
    from thermocline.scanner import scan as scan
    from thermocline.shelf import load_detector as load_detector
    from thermocline.shelf import save_detector as save_detector

__version__ = "0.1.0"
_HOMES = {"load": "data", "MEASURES": "measure", "capture": "measure", "load_rows": "record", "render": "report"}
_HOMES |= {"scan": "scanner", "Watch": "scanner", "load_detector": "shelf", "save_detector": "shelf"}
_MODULES = (
    "advise", "attention", "data", "detect", "geometry", "measure", "moments", "nets", "probes", "record", "report", "run",
    "screening", "shelf", "softmax", "spec", "team", "train",
)  # fmt: skip
__all__ = [*_HOMES, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    before = random.getstate()  # from which rich draws while it is imported, which may be long after a script has seeded it
    try:
        if name in _MODULES:
            return importlib.import_module(f"thermocline.{name}")
        if name in _HOMES:
            return getattr(importlib.import_module(f"thermocline.{_HOMES[name]}"), name)
    finally:
        random.setstate(before)
    raise AttributeError(f"module 'thermocline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
