"""Runs by what they are of, and by what they were trained with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thermocline.report import facts
from thermocline.report.facts import Summary

# How weights start is a temperature by another name, so nets that differ here are compared with each other.
_STARTS = {"net.init", "net.init_scale", "net.head_init_scale", "net.logit_norm_init"}


def subjects(summaries: Sequence[Summary]) -> list[tuple[str, list[Summary]]]:
    """Runs by net, data set and first probe, coldest first, with a name that tells them from the others."""
    found: dict[tuple[Any, ...], list[Summary]] = {}
    for one in sorted(summaries, key=lambda one: (one.temperature, one.seed)):
        key = (*(one.settings[path] for path in _paths(one)), one.settings["probes"][:1])
        found.setdefault(key, []).append(one)
    firsts = [members[0] for members in found.values()]
    named = []
    for one in firsts:
        alike = [other for other in firsts if (other.net, other.data) == (one.net, one.data)]
        named.append(facts.named(one, facts.varying(alike, [*_paths(one), "probes"])))
    return list(zip(named, found.values()))


def labelled(members: Sequence[Summary]) -> list[str]:
    """What each run was trained with, as far as it is not the same in all: equal for runs that differ by seed alone."""
    paths = [path for path in members[0].settings if path.startswith(("net.", "train.")) and path not in facts.OBSERVING]
    others = [path for path in facts.varying(members, paths) if not path.startswith("train.temperature")]
    return [", ".join([_heat(one), *_given(one, others)]) for one in members]


def _heat(one: Summary) -> str:
    """The temperature and how it moves, if it does."""
    way, end, at, target = (one.settings[f"train.temperature_{name}"] for name in ("schedule", "end", "at", "target"))
    start = f"T = {one.temperature:g}"
    if target is not None:
        return f"T by {way} at {target:g}"
    if end is None:
        return start if way == "constant" else f"{start}, {way}"
    return f"{start}, then {end:g} from {100 * at:g}% on" if way == "step" else f"{start} to {end:g}, {way}"


def _given(one: Summary, paths: Sequence[str]) -> list[str]:
    values = ((path, one.settings[path]) for path in paths)
    return [f"{path} = {f'{value:.12g}' if isinstance(value, float) else value}" for path, value in values if value is not None]


def _paths(one: Summary) -> list[str]:
    paths = [path for path in one.settings if path.startswith(("data.", "net."))]
    return [path for path in paths if path not in facts.OBSERVING | _STARTS]
