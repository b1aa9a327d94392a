"""`parquet:DIR`: Hugging Face's files, SPLIT-00000-of-00002.parquet, with a column of images and one of labels."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from thermocline.data import arrays, decoding
from thermocline.data.hashing import held_out
from thermocline.data.hub import Files, find
from thermocline.data.pixels import fit
from thermocline.data.source import Set, Source, Want, located
from thermocline.spec import InputError, unknown

OPTIONS = ("image", "label", "train", "test")
_IMAGES, _LABELS = ("image", "img"), ("label", "fine_label", "labels")
_ROWS = decoding.AT_ONCE  # read together


class Columns(NamedTuple):
    """The names of the columns of images and of labels."""

    image: str
    label: str


def options(name: str, rest: str) -> tuple[Path, dict[str, str]]:
    """The path and the options of `parquet:DIR:label=coarse_label:test=validation`, from what stands after the first colon.

    >>> options("parquet:a/b:label=coarse_label", "a/b:label=coarse_label")[1]
    {'label': 'coarse_label'}
    """
    path, chosen = rest, {}
    while found := re.fullmatch(r"(.*):(\w+)=([^:]*)", path):
        path, option, value = found.groups()
        if option not in OPTIONS:
            raise InputError(f"{name!r}: {unknown('option', option, OPTIONS)}")
        if not value or option in chosen:
            raise InputError(f"{name!r}: give {option} once, and a value, as in parquet:DIR:label=coarse_label")
        chosen[option] = value
    if not path:
        raise InputError(f"data set {name!r} names no path; write parquet:DIR")
    return located(path), chosen


def named(root: Path, chosen: dict[str, str]) -> Set:
    """The set in a folder of files, or in one file."""

    def there() -> tuple[Files, Columns]:
        files = find(root, train=chosen.get("train"), test=chosen.get("test"))
        columns = _columns(files.train[0], chosen)
        for file in (*files.train, *files.test):
            if _columns(file, chosen) != columns:
                raise InputError(f"{file} has other columns than {files.train[0]}; say which with :image= and :label=")
        return files, columns

    def read(want: Want) -> tuple[Source, Source]:
        files, columns = there()
        y, tests = labels(files.train, columns.label), labels(files.test, columns.label)
        size, channels = want.size, want.channels
        if size is None or channels is None:
            own_size, own_channels = natural(files.train, columns.image, size)
            size, channels = size or own_size, channels or own_channels
        sizes: set[tuple[int, int]] = set()
        exact = want.size is None
        decode = partial(images, column=columns.image, size=size, channels=channels, exact=exact, sizes=sizes)
        source = partial(Source, shape=(channels, size, size), sizes=sizes)
        if files.test != files.train:
            return source(y, partial(decode, files.train)), source(tests, partial(decode, files.test))
        held = held_out(y)
        train, test = (
            source(y[rows], lambda indices, rows=rows: decode(files.train, rows[indices]))
            for rows in ((~held).nonzero()[:, 0], held.nonzero()[:, 0])
        )
        return train, test

    return Set(lambda: there() and None, read, lambda: _names(*there()))


def _names(files: Files, columns: Columns) -> list[str]:
    """What the classes are called, where Hugging Face wrote it into the file."""
    with _readable(files.train[0]):
        written = (pq.read_schema(files.train[0]).metadata or {}).get(b"huggingface", b"{}")
    found = None
    with contextlib.suppress(ValueError):
        found = json.loads(written)
    for key in ("info", "features", columns.label, "names"):
        found = found.get(key) if isinstance(found, dict) else None
    return [str(name) for name in found] if isinstance(found, list) else []


def _columns(file: Path, chosen: dict[str, str]) -> Columns:
    """The columns to read, after checking that they are there and of a kind that can be read; reads the footer only."""
    with _readable(file):
        schema = pq.read_schema(file)
    names = {}
    for what, usual in (("image", _IMAGES), ("label", _LABELS)):
        if what in chosen and chosen[what] not in schema.names:
            raise InputError(f"{file}: {unknown('column', chosen[what], schema.names)}")
        there = [name for name in usual if name in schema.names]
        if twice := [name for name in there if schema.names.count(name) > 1]:
            raise InputError(f"{file} has several columns called {twice[0]}")
        if what not in chosen and not there:
            has = ", ".join(schema.names) or "none"
            raise InputError(f"{file} has no column {' or '.join(usual)}; it has {has}: say which with :{what}=COLUMN")
        names[what] = chosen.get(what) or there[0]
    columns = Columns(**names)
    kind = schema.field(columns.label).type
    if not pa.types.is_integer(kind):
        raise InputError(f"{file}: {columns.label} is {kind}; labels must be integers, 0 to classes - 1")
    kind = schema.field(columns.image).type
    if not (_encoded(kind) or _listed(kind)):
        raise InputError(f"{file}: {columns.image} is {kind}; images must be encoded (bytes), or lists of pixels")
    return columns


def _encoded(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and _encoded(kind.field("bytes").type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _listed(kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def labels(files: tuple[Path, ...], column: str) -> Int[Tensor, "n"]:
    """The labels of all files, in order."""
    parts = []
    for file in files:
        with _readable(file):
            values = pq.read_table(file, columns=[column]).column(0)
        what = f"{file}: {column}"
        if values.null_count:
            raise InputError(f"{what} has {values.null_count} rows without a label")
        y = values.to_numpy()
        if len(y) and y.min() == -1:
            raise InputError(f"{what} is -1, which means unlabelled; choose another split, as in parquet:DIR:test=validation")
        parts.append(arrays.labels(what, y))
    return torch.cat(parts)


def natural(files: tuple[Path, ...], column: str, size: int | None) -> tuple[int, int]:
    """(size, channels) to read at when none are asked for: the size of the first image; 1 channel if all are gray."""
    channels = 1
    for file, rows, cells in _read(files, column):
        if _listed(cells.type):
            pixels = _pixels(f"{file}: {column}", cells)
            return pixels.shape[-1], pixels.shape[1]
        for row, cell in zip(rows, _cells(cells)):
            what = f"{file}: row {row}"
            with decoding.opened(decoding.Encoded(what, cell)) as image:
                if size is None and image.width != image.height:
                    raise InputError(
                        f"{what} has {image.width} x {image.height} pixels; say at what size to read with data.size"
                    )
                size = size or image.width
                channels = 1 if image.mode in decoding.GRAY else 3
            if channels == 3:
                return size, channels
    if size is None:
        raise InputError(f"{files[0].parent} holds no training images")
    return size, channels


def images(
    files: tuple[Path, ...],
    indices: Int[Tensor, "n"],
    *,
    column: str,
    size: int,
    channels: int,
    exact: bool,
    sizes: set[tuple[int, int]],
) -> Iterator[UInt8[Tensor, "b c s s"]]:
    """The images at these ascending indices, some at a time. If `exact`, they must have that size; else they are resized.

    `sizes` gets what they had.
    """
    for file, rows, cells in _read(files, column, indices):
        if _listed(cells.type):
            some = _pixels(f"{file}: {column}", cells)
            if exact and some.shape[-1] != size:
                raise InputError(f"{file}: {column} has images of different sizes; say at what size to read with data.size")
            yield fit(some, size, channels)
        else:
            chosen = [decoding.Encoded(f"{file}: row {row}", cell) for row, cell in zip(rows, _cells(cells))]
            yield decoding.squares(chosen, size=size, channels=channels, sizes=sizes, exact=exact)


def _read(
    files: tuple[Path, ...], column: str, indices: Int[Tensor, "n"] | None = None
) -> Iterator[tuple[Path, list[int], Any]]:
    """A column some rows at a time, of all rows or of these alone, as (file, rows in it, cells); skips other row groups."""
    before = 0  # rows in earlier files
    for file in files:
        with _readable(file), pq.ParquetFile(file) as opened:
            count = opened.metadata.num_rows
            here = (
                torch.arange(count) if indices is None else indices[(indices >= before) & (indices < before + count)] - before
            )
            wanted, start = here.numpy(), 0
            for group in range(opened.num_row_groups):
                end = start + opened.metadata.row_group(group).num_rows
                if _between(wanted, start, end).size:
                    for batch in opened.iter_batches(_ROWS, row_groups=[group], columns=[column]):
                        rows = _between(wanted, start, start + len(batch))
                        if rows.size:
                            yield file, rows.tolist(), batch.column(0).take(pa.array(rows - start))
                        start += len(batch)
                start = end
        before += count


def _between(ascending: np.ndarray, low: int, high: int) -> np.ndarray:
    return ascending[slice(*np.searchsorted(ascending, [low, high]))]


def _cells(cells: Any) -> list[bytes | None]:
    return (cells.field("bytes") if pa.types.is_struct(cells.type) else cells).to_pylist()


def _pixels(what: str, cells: Any) -> UInt8[Tensor, "n c h w"]:
    """Images stored as nested lists of numbers."""
    shape = [len(cells)]
    while _listed(cells.type):
        lengths = pc.call_function("list_value_length", [cells]).unique().to_pylist()
        if len(lengths) != 1 or lengths[0] is None:
            raise InputError(f"{what} has lists of different lengths; images stored as lists must all have one size")
        shape.append(lengths[0])
        cells = cells.flatten()
    if cells.null_count:
        raise InputError(f"{what} has pixels without a value")
    values = cells.to_numpy(zero_copy_only=False)
    if values.dtype.kind in "iu" and values.size and values.min() >= 0 and values.max() <= 255:
        values = values.astype(np.uint8)
    return arrays.images(what, values.reshape(shape))


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{file} does not exist") from None
    except (pa.ArrowException, OSError):
        raise InputError(f"{file} is damaged, or not a parquet file") from None
