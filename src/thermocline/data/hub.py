"""Which parquet files make up which split, by the names Hugging Face gives them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from thermocline.spec import InputError, unknown

_TRAIN, _TESTS = "train", ("test", "validation", "valid", "val")


class Files(NamedTuple):
    """The files of the two splits; the same files twice: one split, to be cut in two."""

    train: tuple[Path, ...]
    test: tuple[Path, ...]


def find(root: Path, *, train: str | None = None, test: str | None = None) -> Files:
    """The files of a set: SPLIT-*.parquet or SPLIT/*.parquet in a folder, in its data/, or in its only other folder.

    The test split is the one called test, or else validation. A single file, or one split named as both, is to be cut.
    """
    if root.is_file():
        return Files((root,), (root,))
    splits = _splits(root, known={_TRAIN, *_TESTS, *filter(None, (train, test))})
    train = train or _TRAIN
    test = test or next((name for name in _TESTS if name in splits), None)
    for wanted in (train, test):
        if wanted is not None and wanted not in splits:
            raise InputError(f"{root}: {unknown('split', wanted, splits)}")
    if test is None:
        raise InputError(
            f"{root} has {train} files but no test or validation files; to test on a fifth of them, add :test={train}"
        )
    return Files(*(_whole(splits[name]) for name in (train, test)))


def _splits(root: Path, known: set[str]) -> dict[str, list[Path]]:
    """The files of each split, all from one place."""
    if not root.is_dir():
        raise InputError(f"{root} does not exist; it should be a folder of files such as train-00000-of-00001.parquet")
    places: dict[Path, dict[str, list[Path]]] = {}
    for file in sorted(root.rglob("*.parquet")):
        if not any(part.startswith(".") for part in file.relative_to(root).parts):
            split, place = _split(file, known)
            places.setdefault(place, {}).setdefault(split, []).append(file)
    if not places:
        raise InputError(f"{root} has no .parquet files; expected some such as train-00000-of-00001.parquet")
    if root in places or root / "data" in places:
        return places.get(root) or places[root / "data"]
    if len(places) > 1:
        sets = ", ".join(os.path.relpath(place, root) for place in places)
        raise InputError(f"{root} holds several sets: {sets}; name the folder of one of them")
    return next(iter(places.values()))


def _split(file: Path, known: set[str]) -> tuple[str, Path]:
    """(split, folder of the set) of a file: train-00000-of-00002.parquet, train.parquet or train/0000.parquet.

    >>> _split(Path("a/train-00000-of-00002-1f2e.parquet"), {"train"})
    ('train', PosixPath('a'))
    >>> _split(Path("a/train/0000.parquet"), {"train"})
    ('train', PosixPath('a'))
    """
    word = re.sub(r"[-_.]?\d.*", "", file.stem)
    if word not in known and file.parent.name in known:
        return file.parent.name, file.parent.parent
    return word or file.stem, file.parent


def _whole(files: list[Path]) -> tuple[Path, ...]:
    """The files, after checking that as many are there as their names say."""
    totals = {int(found[1]) for file in files if (found := re.search(r"-of-(\d+)", file.stem))}
    if totals and totals != {len(files)}:
        raise InputError(f"{files[0].parent} has {len(files)} of the {max(totals)} files that {files[0].name} belongs to")
    return tuple(files)
