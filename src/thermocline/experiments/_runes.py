"""The small setting that a CPU can do: the demo's MLP on runes, three seeds, cold and hot."""

from collections.abc import Mapping
from typing import Any

from thermocline.experiments._claims import Arm, Cost, temperature, with_settings
from thermocline.experiments.demo import BASE
from thermocline.spec import Run, grid

COLD, HOT = temperature(1), temperature(500)
COST = Cost("a minute a run on one CPU core")
OOD = "runes:1"  # another alphabet


def runs(changes: Mapping[str, Any] | None = None, *, temperatures: tuple[float, ...] = (1, 500)) -> list[Run]:
    """Three seeds at every temperature, with these settings changed."""
    axes = {path: [value] for path, value in (changes or {}).items()}
    return grid(BASE, {**axes, "seed": range(3), "train.temperature": temperatures})


def arms(label: str, settings: Mapping[str, Any]) -> tuple[Arm, Arm]:
    """The cold and the hot runs that have these settings."""
    return with_settings(label, settings, (COLD, HOT))
