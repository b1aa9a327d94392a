"""Files of a run directory: written whole or not at all, and read as what people may have edited."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from thermocline.spec import InputError


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf


def _facts(value: Any) -> bool:
    return isinstance(value, dict)


def _texts(value: Any) -> bool:
    """In a list, or by name."""
    return isinstance(value, (list, dict)) and all(map(_text, value.values() if isinstance(value, dict) else value))


_KINDS = {  # what is read of a provenance, and as what
    **dict.fromkeys(("command", "started", "device", "commit", "source", "stopped"), ("a text", _text)),
    **dict.fromkeys(("guessing", "wall_seconds"), ("a finite number", _number)),
    **dict.fromkeys(("hardware", "measures"), ("facts by name", _facts)),
    **dict.fromkeys(("data", "versions"), ("texts by name", lambda value: _facts(value) and _texts(value))),
    **dict.fromkeys(("classes", "notes"), ("a list of texts", lambda value: not _facts(value) and _texts(value))),
    "sessions": ("a list of facts by name", lambda value: isinstance(value, list) and all(map(_facts, value))),
}


def read_json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{file} is not valid JSON ({error})") from None
    if not isinstance(found, dict):
        raise InputError(f"{file} is damaged: it holds a {type(found).__name__}, not settings or facts by name")
    return found


def read_facts(file: Path) -> dict[str, Any]:
    """The facts of a provenance, of which each that anybody reads is what it should be, or null where it is not known."""
    facts = {name: value for name, value in read_json(file).items() if value is not None}
    for name, (kind, fits) in _KINDS.items():
        if name in facts and not fits(facts[name]):
            told = f"{name} should be {kind}, and is {_short(facts[name])}; correct it, or delete the file: reports do without"
            raise InputError(f"{file} is damaged or was edited: {told}")
    return facts


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def encoded(table: pa.Table, ending: str) -> pa.Buffer:
    """Any table as the content of a .csv file, or of a .parquet one."""
    sink = pa.BufferOutputStream()
    (pyarrow.csv.write_csv if ending == ".csv" else pq.write_table)(table, sink)
    return sink.getvalue()


def write(file: Path, content: bytes | memoryview | pa.Buffer) -> None:
    """Write a whole file or nothing: a reader sees the old content or the new, whenever the power goes."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}.draft")  # its own: two processes may end with one report
    with writing(file):
        try:
            with open(draft, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, file)
        except BaseException:  # half a file would keep a full disk full, and Ctrl-C is to leave none either
            draft.unlink(missing_ok=True)
            raise
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def drop_drafts(folder: Path, *names: str) -> None:
    """Remove what kills have left of files that nobody else writes now."""
    for name in names:
        for draft in folder.glob(f".{name}.*draft"):
            draft.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(file: Path) -> Iterator[None]:
    """Say what could not be written, and why, in one line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}; make room or choose another place") from None
