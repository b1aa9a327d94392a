"""Runs that a spec alone would take for one net: a watch beside scans, and different scans of one setting and seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from thermocline import spec as specs
from thermocline.record import Loaded, same_run

# What does not change the trained network, so that runs differing only here are still alike.
OBSERVING = {"seed", "measures", "data.ood", "train.snapshots"}


def told_apart(runs: Iterable[Loaded]) -> tuple[list[Loaded], list[str]]:
    """All runs, those of other nets under other names, and a line on each net that only its folder tells from another.

    Each adds as much of the end of its path as no other ends in. So do the nets of other seeds where folders of one name
    pair them, as checkpoints of several trainings; where none does, the first of a seed is compared with the other seeds.
    """
    found, notes = _watches_named(list(runs)), []
    taken = {run.spec.key for run in found}
    places: dict[tuple[Any, ...], dict[int, list[int]]] = {}
    for number, run in enumerate(found):
        place = _place(run, ("data.", "net.", "train."))
        places.setdefault(place, {}).setdefault(run.spec.seed, []).append(number)
    for seeds in places.values():
        by_seed = [_nets(found, numbers) for numbers in seeds.values()]
        if all(len(nets) == 1 for nets in by_seed):
            continue
        paths_by_seed = [[found[net[0]].path for net in nets] for nets in by_seed]
        paired = _paired(paths_by_seed)
        for nets, paths in zip(by_seed, paths_by_seed, strict=True):
            if len(nets) == 1 and not paired:
                continue
            beside = len(seeds) > 1 and not paired  # then the first is one of them
            for net, path in list(zip(nets, paths, strict=True))[beside:]:
                words = next(end for end in _ends(path, paths) if _renamed(found[net[0]], end).spec.key not in taken)
                for number in net:
                    found[number] = _renamed(found[number], words)
                    taken.add(found[number].spec.key)
            if len(nets) > 1:
                notes.append(
                    f"{', '.join(map(str, paths[:-1]))} and {paths[-1]} have one net's name, temperature and seed, and are"
                    " shown as different nets, as checkpoints of one training should be; trainings of one setting need seed="
                    " (scan --seed) each"
                )
    return found, notes


def _paired(paths: Sequence[Sequence[Path]]) -> bool:
    """Whether the names of folders tell the nets of a seed apart, and some are of several seeds."""
    names = [[path.resolve().name for path in some] for some in paths]
    every = [name for some in names for name in some]
    return all(len(set(some)) == len(some) for some in names) and len(set(every)) < len(every)


def _watches_named(runs: list[Loaded]) -> list[Loaded]:
    """A watch has training data alone, and of a sample: beside other runs of its net it is a column of its own."""
    kinds = ("data.", "net.")
    others = {_place(run, kinds) for run in runs if not _watched(run)}
    return [_renamed(run, "watched") if _watched(run) and _place(run, kinds) in others else run for run in runs]


def _watched(run: Loaded) -> bool:
    return bool(run.spec.scanned and run.spec.follow)


def _place(run: Loaded, kinds: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(value for path, value in specs.leaves(run.spec) if path.startswith(kinds) and path not in OBSERVING)


def _nets(runs: Sequence[Loaded], numbers: Iterable[int]) -> list[list[int]]:
    """The numbers of runs alike, net by net."""
    nets: list[list[int]] = []
    for number in numbers:
        own = next((net for net in nets if not _different(runs[net[0]], runs[number])), None)
        if own is None:
            nets.append([number])
        else:
            own.append(number)
    return nets


def _different(one: Loaded, other: Loaded) -> bool:
    """Whether runs of one setting and seed are of two nets, and not of one that was observed twice."""
    return one.spec.scanned != other.spec.scanned or (one.spec.key == other.spec.key and not same_run(one, other))


def _ends(path: Path, paths: Sequence[Path]) -> Iterable[str]:
    """The ends of a path that are those of no other, shortest first."""
    parts, places = path.resolve().parts, [one.resolve().parts for one in paths]
    for length in range(1, len(parts) + 1):
        if sum(place[-length:] == parts[-length:] for place in places) == 1:
            yield "/".join(parts[-length:])


def _renamed(run: Loaded, words: str) -> Loaded:
    net = dataclasses.replace(run.spec.net, name=f"{run.spec.net.name} ({words})")
    return dataclasses.replace(run, spec=dataclasses.replace(run.spec, net=net))
