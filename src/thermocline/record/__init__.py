"""The run directory: spec, provenance, append-only rows, checkpoint; and reading them back.

    spec.json               what was asked for
    provenance.json         versions, commit, hardware, wall time, and what each measure means
    rows.log                one line a measured step: CRC-32, then JSON; a torn last line is dropped and said
    rows.parquet            the same rows, written once when the run is finished
    checkpoint.safetensors  tensors to continue from, and their CRC-32; the step is in its metadata
    .thermocline-lock       held while a process writes

Importing this module does not import torch: reports are made from records alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, SupportsFloat

import pyarrow as pa
import pyarrow.parquet as pq

from thermocline import spec as specs
from thermocline.record.checkpoint import NAME as CHECKPOINT
from thermocline.record.checkpoint import load_checkpoint, save_checkpoint, sealed, unsealed
from thermocline.record.files import drop_drafts, encoded, read_facts, read_json, write, writing
from thermocline.spec import InputError, Run

__all__ = [
    "RANK", "SCHEMA", "Busy", "Loaded", "Paths", "Record", "Row", "as_runs", "begun", "check_place", "encoded", "find_runs",
    "load_checkpoint", "load_rows", "load_run", "load_runs", "open_run", "parameters", "params", "parquet", "read_facts",
    "same_run", "sealed", "stopped", "table", "unsealed", "write",
]  # fmt: skip

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

if TYPE_CHECKING:
    from torch import Tensor


LOCK = ".thermocline-lock"
RANK = {"of": "covariance", "rtol": 1e-3}  # the convention of the rank that is put first [masarczyk2023tunnel]


class Row(NamedTuple):
    """One measured number. `depth` is the 1-based position of `layer` (0: not about a layer)."""

    split: str
    layer: str
    depth: int
    view: str
    measure: str
    params: str
    value: float

    @classmethod
    def whole(cls, split: str, measure: str, params: str, value: SupportsFloat) -> Row:
        """A number about a net as a whole, or about none."""
        return cls(split, "", 0, "", measure, params, float(value))


_ROW_SCHEMA = [
    ("step", pa.int64()), ("split", pa.string()), ("layer", pa.string()), ("depth", pa.int32()), ("view", pa.string()),
    ("measure", pa.string()), ("params", pa.string()), ("value", pa.float64()),
]  # fmt: skip
_RUN_SCHEMA = [
    ("run", pa.string()), ("data", pa.string()), ("net", pa.string()), ("temperature", pa.float64()), ("seed", pa.int64()),
]  # fmt: skip
SCHEMA = pa.schema(_RUN_SCHEMA + _ROW_SCHEMA)


def params(**values: object) -> str:
    """The conventions behind a number as one string, in the order given.

    >>> params(of="covariance", rtol=1e-3)
    'of=covariance,rtol=0.001'
    """
    return ",".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items())


def parameters(text: str) -> dict[str, str]:
    """The conventions behind a number, out of the column `params`: the inverse of `params`, values as text.

    >>> parameters("of=covariance,rtol=0.001")
    {'of': 'covariance', 'rtol': '0.001'}
    """
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


class Record:
    """A run directory held open for writing; get one from `open_run`."""

    def __init__(self, path: Path, run: Run) -> None:
        self.path, self.run = path, run
        # Of a finished run the table counts: nothing is measured again, whatever became of the log.
        self._rows = {} if self.finished else dict(_read_log(path / "rows.log", repair=True))
        self._whole = (path / "rows.log").stat().st_size if (path / "rows.log").exists() else 0  # bytes of whole lines

    @property
    def finished(self) -> bool:
        return (self.path / "rows.parquet").exists()

    @property
    def steps(self) -> set[int]:
        """Those whose rows are on disk."""
        return set(self._rows)

    def recorded(self, step: int) -> bool:
        """Whether the rows of this step are already on disk."""
        return step in self._rows

    def append(self, step: int, rows: Iterable[Row]) -> None:
        """Add the rows of one step, all or none of them; a step is recorded once."""
        if self.recorded(step):
            raise ValueError(f"step {step} is already recorded in {self.path}")
        rows = list(rows)
        body = json.dumps({"step": step, "rows": rows}, separators=(",", ":")).encode()
        with writing(self.path / "rows.log"), open(self.path / "rows.log", "ab") as log:
            log.truncate(min(self._whole, log.tell()))  # of what a full disk cut short, if somebody made room and goes on
            log.write(b"%08x %s\n" % (zlib.crc32(body), body))
            log.flush()
            os.fsync(log.fileno())
            self._whole = log.tell()
        self._rows[step] = rows

    def save(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Replace the checkpoint, atomically."""
        save_checkpoint(self.path, step, tensors)

    def load(self) -> tuple[int, dict[str, Tensor]] | None:
        """The step and tensors of the checkpoint, if there is one."""
        return load_checkpoint(self.path)

    def provenance(self) -> dict[str, Any]:
        """What is known of how the rows came about."""
        return _provenance(self.path)

    def describe(self, facts: Mapping[str, Any]) -> None:
        """Merge facts into the provenance."""
        write(self.path / "provenance.json", json.dumps({**self.provenance(), **facts}, indent=1).encode())

    def finish(self, steps: Iterable[int]) -> None:
        """Write the Parquet table, which makes the run a finished one, after checking that these steps are all there."""
        if set(steps) != set(self._rows):
            raise ValueError(f"{self.path} has rows of steps {sorted(self._rows)}, not of {sorted(steps)}")
        self.fill(table(self.run, sorted(self._rows.items())))

    def fill(self, rows: pa.Table) -> None:
        """Write that table: all there is at once, of what was measured once and has no log."""
        write(self.path / "rows.parquet", parquet(rows))


def begun(path: str | os.PathLike[str]) -> bool:
    """Whether a directory holds rows; where a kill left none, another run may take its place."""
    return any((Path(path) / rows).exists() for rows in ("rows.log", "rows.parquet"))


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise where a run directory cannot be: a folder that holds other things."""
    path = Path(path)
    if path.is_dir() and not (path / "spec.json").exists():
        strangers = sorted(p.name for p in path.iterdir() if p.name != LOCK and p.suffix != ".draft")
        if strangers:
            raise InputError(f"{path} holds {strangers[0]!r} and no spec.json: not a run directory; choose an empty one")


class Busy(InputError):
    """Another process is writing this run."""


def require_idle(path: str | os.PathLike[str]) -> None:
    """Raise where another process writes this run, be it before its first row."""
    file = Path(path) / LOCK
    if file.exists():
        with open(file) as held:
            _lock(held, Path(path))


@contextlib.contextmanager
def open_run(path: str | os.PathLike[str], run: Run) -> Iterator[Record]:
    """Create or reopen the directory of a run, locked against every other process; one that is finished is only read."""
    path = Path(path)
    if (path / "rows.parquet").exists():
        check_place(path)
        _claim(path, run)
        yield Record(path, run)  # whose folder may be one that nobody can write
        return
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        check_place(path)
        held = open(path / LOCK, "a")  # noqa: SIM115  closed below
    with held:
        _lock(held, path)
        with writing(path):
            drop_drafts(path, "spec.json", "provenance.json", "rows.parquet", CHECKPOINT)
        _claim(path, run)
        yield Record(path, run)


def _lock(held: IO[str], path: Path) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy(f"{path} is being written by another process; wait for it, or choose another directory") from None
    except OSError as error:  # as where Lustre is mounted without flock
        told = "two processes could write it at once; choose a directory on another file system"
        raise InputError(f"{path} cannot be locked ({error.strerror}): {told}") from None


def _claim(path: Path, run: Run) -> None:
    """Write the spec where there is none, or where one was left by a run that never got as far as recording anything."""
    file = path / "spec.json"
    if (holds := begun(path)) and file.exists() and (there := _read_spec(file)) != run:
        raise InputError(f"{path} holds another run: {_difference(there, run)}; choose another directory")
    if not holds:
        with writing(path):
            (path / "provenance.json").unlink(missing_ok=True)  # it speaks of data and sessions that no row came from
        write(file, json.dumps(specs.to_json(run), indent=1).encode())


@dataclass(frozen=True)
class Loaded:
    """A run read back: its directory, spec, provenance and rows."""

    path: Path
    spec: Run
    provenance: dict[str, Any]
    rows: pa.Table
    finished: bool

    @property
    def name(self) -> str:
        return self.path.name


def stopped(path: str | os.PathLike[str]) -> str:
    """Why the training of a run stopped itself, as it would again; nothing where it did not."""
    return "" if (Path(path) / "rows.parquet").exists() else _provenance(Path(path)).get("stopped", "")


def _provenance(path: Path) -> dict[str, Any]:
    """The facts of a run directory; none where nobody has written any."""
    file = path / "provenance.json"
    return read_facts(file) if file.exists() else {}


def load_run(path: str | os.PathLike[str]) -> Loaded:
    """Read one run directory, finished or not."""
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"no run directory at {path}")
    if not (path / "spec.json").exists():
        below = next((file.parent.parent for file in path.glob("*/*/spec.json")), None)
        hint = f"; there are runs in {below}" if below else ""
        raise InputError(f"{path} is not a run directory: it has no spec.json{hint}")
    run = _read_spec(path / "spec.json")
    provenance, finished = _provenance(path), (path / "rows.parquet").exists()
    if finished:
        try:
            rows = pq.read_table(path / "rows.parquet", schema=SCHEMA, page_checksum_verification=True)
            if any(column.null_count for column in rows.columns):
                raise pa.ArrowInvalid("a column is missing")
        except (pa.ArrowException, OSError) as error:
            told = " ".join(str(error).split())  # some of what pyarrow says is in several lines
            raise InputError(f"{path / 'rows.parquet'} is damaged ({told}); delete it and run again to rebuild it") from None
    else:
        rows = table(run, _read_log(path / "rows.log", repair=False))
    return Loaded(path, run, provenance, rows, finished)


def find_runs(paths: Paths) -> list[Path]:
    """Run directories among paths, folders of them and glob patterns: finished ones first, since of copies the first counts."""
    found: list[Path] = []
    for given in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        places = sorted(map(Path, glob.glob(os.fspath(given))), key=_counted) or [Path(given)]
        for place in places:
            inside = sorted((file.parent for file in place.glob("*/spec.json")), key=_counted)
            found += [place] if (place / "spec.json").exists() or not inside else []
            found += inside
    return sorted(dict.fromkeys(found), key=lambda path: not (path / "rows.parquet").exists())


def _counted(path: Path) -> list[str | int]:
    """What sorts names by the numbers in them.

    >>> sorted([Path("epoch10"), Path("epoch2")], key=_counted)[0].name
    'epoch2'
    """
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"([0-9]+)", str(path)))]


def load_runs(paths: Paths) -> list[Loaded]:
    """Every run at these paths. A second copy of a run is no second seed: it is left out, and said."""
    runs: dict[str, list[Loaded]] = {}
    for path in find_runs(paths):
        run = load_run(path)
        alike = runs.setdefault(run.spec.key, [])
        if same := next((one for one in alike if same_run(one, run)), None):
            warnings.warn(f"{path} is the same run as {same.path}: it is left out", stacklevel=2)
        else:
            alike.append(run)
    return [run for alike in runs.values() for run in alike]


def same_run(one: Loaded, other: Loaded) -> bool:
    """Whether one is a copy of the other: a spec says all of what was trained here, and of a scan only with its rows."""
    return one.spec.key == other.spec.key and ("sessions" in other.provenance or one.rows.equals(other.rows))


def as_runs(runs: Paths | Iterable[Loaded]) -> list[Loaded]:
    """Runs that were read already, as they are; or every run at these paths."""
    some = [runs] if isinstance(runs, (str, os.PathLike)) else list(runs)
    read = [run for run in some if isinstance(run, Loaded)]
    return read if len(read) == len(some) else load_runs(one for one in some if not isinstance(one, Loaded)) + read


def load_rows(paths: Paths) -> pa.Table:
    """The rows of every run at these paths, as one table with the columns of `SCHEMA`."""
    tables = [run.rows for run in load_runs(paths)]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def _read_log(file: Path, *, repair: bool) -> list[tuple[int, list[Row]]]:
    """The recorded steps. A torn last line was never acknowledged, so it goes; damage elsewhere is an error."""
    if not file.exists():
        return []
    whole = file.read_bytes()
    steps, good = [], 0
    for number, line in enumerate(lines := whole.splitlines(keepends=True), 1):
        checksum, _, body = line.rstrip(b"\n").partition(b" ")
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(body):
            if number < len(lines):
                raise InputError(f"{file} is damaged at line {number} of {len(lines)}: its checksum does not match")
            warnings.warn(f"{file}: the last line was cut short by a kill; that step is measured again", stacklevel=3)
            break
        entry = json.loads(body)
        steps.append((entry["step"], [Row(*row) for row in entry["rows"]]))
        good += len(line)
    if repair and good < len(whole):
        os.truncate(file, good)
    return steps


def table(run: Run, steps: Iterable[tuple[int, list[Row]]]) -> pa.Table:
    """Rows by step as a table with the columns of `SCHEMA`."""
    flat = [(step, *row) for step, rows in steps for row in rows]
    columns = list(zip(*flat)) if flat else [[] for _ in _ROW_SCHEMA]
    facts = [run.name, run.data.name, run.net.name, run.train.temperature, run.seed]
    arrays = [pa.array([fact] * len(flat), kind) for fact, (_, kind) in zip(facts, _RUN_SCHEMA)]
    arrays += [pa.array(column, kind) for column, (_, kind) in zip(columns, _ROW_SCHEMA)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def parquet(rows: pa.Table) -> pa.Buffer:
    """A table of rows as a Parquet file; values are stored byte by byte, which makes one of many spectra some 30 % smaller."""
    sink, words = pa.BufferOutputStream(), [name for name in rows.column_names if name != "value"]
    how: dict[str, Any] = {"use_dictionary": words, "use_byte_stream_split": ["value"]}  # pyarrow says bool, and takes lists
    pq.write_table(rows, sink, compression="zstd", write_page_checksum=True, **how)
    return sink.getvalue()


def _read_spec(file: Path) -> Run:
    try:
        return specs.from_json(read_json(file))
    except (InputError, AttributeError, TypeError, OverflowError) as error:
        raise InputError(f"{file} cannot be read as a spec of this version: {error}") from None


def _difference(there: Run, here: Run) -> str:
    path, value = next(leaf for leaf in specs.leaves(there) if leaf not in list(specs.leaves(here)))
    return f"its {path} is {value!r}, this one's is {dict(specs.leaves(here))[path]!r}"
