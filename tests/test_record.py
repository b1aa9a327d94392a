"""Rows survive a kill at any byte, are never doubled, and damage is said."""

import errno
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from thermocline import record
from thermocline.record import Row, open_run
from thermocline.spec import Data, InputError, Run, Train

RUN = Run(train=Train(temperature=10), seed=4)


def rows(step: int, count: int = 3) -> list[Row]:
    return [Row("train", f"layer.{i}", i + 1, "flatten", "rank", "of=features,rtol=0.001", step + i / 7) for i in range(count)]


def filled(path: Path, steps: int = 3) -> Path:
    with open_run(path, RUN) as log:
        for step in range(steps):
            log.append(step, rows(step))
    return path


def values(path: Path) -> list[tuple[int, float]]:
    table = record.load_rows(path).to_pylist()
    return [(row["step"], row["value"]) for row in table]


def test_rows_come_back_exactly(tmp_path: Path) -> None:
    path = filled(tmp_path / "a")
    expected = [(step, row.value) for step in range(3) for row in rows(step)]
    assert values(path) == expected
    with open_run(path, RUN) as log:
        log.finish(range(3))
    assert values(path) == expected
    table = record.load_rows(path)
    assert table.schema.equals(record.SCHEMA)
    first = table.to_pylist()[0]
    assert (first["run"], first["temperature"], first["seed"], first["net"]) == (RUN.name, 10.0, 4, "mlp")


def test_a_kill_at_any_byte_loses_at_most_the_unfinished_step(tmp_path: Path) -> None:
    whole = (filled(tmp_path / "whole") / "rows.log").read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    path = filled(tmp_path / "cut", steps=0)
    for length in range(0, len(whole) + 1, 3):
        (path / "rows.log").write_bytes(whole[:length])
        complete = sum(end <= length for end in ends)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert len(values(path)) == 3 * complete
        torn = length not in (0, *ends)
        assert any("cut short" in str(w.message) for w in caught) == torn
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with open_run(path, RUN) as log:
                for step in range(3):
                    if not log.recorded(step):
                        log.append(step, rows(step))
        assert (path / "rows.log").read_bytes() == whole


def test_damage_in_the_middle_is_an_error_not_a_loss(tmp_path: Path) -> None:
    path = filled(tmp_path / "a")
    content = bytearray((path / "rows.log").read_bytes())
    content[40] ^= 1
    (path / "rows.log").write_bytes(content)
    with pytest.raises(InputError, match="damaged at line 1 of 3"):
        record.load_rows(path)
    with pytest.raises(InputError, match="damaged at line 1 of 3"), open_run(path, RUN):
        pass
    assert (path / "rows.log").read_bytes() == content, "nothing is repaired away"


def test_a_step_is_recorded_once(tmp_path: Path) -> None:
    with open_run(filled(tmp_path / "a"), RUN) as log, pytest.raises(ValueError, match="already recorded"):
        log.append(1, rows(1))


def test_checkpoints_round_trip_and_damage_is_said(tmp_path: Path, gen: torch.Generator) -> None:
    tensors = {"net.w": torch.randn(3, 5, generator=gen).T, "net.count": torch.tensor(7)}
    with open_run(tmp_path / "a", RUN) as log:
        assert log.load() is None
        log.save(12, tensors)
        loaded = log.load()
    assert loaded is not None
    assert loaded[0] == 12
    assert all(torch.equal(loaded[1][name], tensors[name]) for name in tensors)
    file = tmp_path / "a" / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(InputError, match="checkpoint.safetensors is damaged"):
        record.load_checkpoint(tmp_path / "a")


@pytest.mark.parametrize("where", [b'"step":"12', b"\x00\x00\x80?"])
def test_a_flipped_bit_of_a_checkpoint_is_damage(tmp_path: Path, where: bytes) -> None:
    """Of its step, or of a weight; the format itself notices neither."""
    with open_run(tmp_path / "a", RUN) as log:
        log.save(12, {"net.w": torch.ones(3, 5), "temperature": torch.tensor(1.0)})
    file = tmp_path / "a" / "checkpoint.safetensors"
    content = bytearray(file.read_bytes())
    content[content.index(where) + len(where) - 1] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match="its checksum does not match"):
        record.load_checkpoint(tmp_path / "a")


def test_a_checkpoint_of_others_or_of_an_earlier_version(tmp_path: Path) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "checkpoint.safetensors")
    with pytest.raises(InputError, match="is damaged"):
        record.load_checkpoint(tmp_path)
    save_file({"w": torch.ones(2)}, tmp_path / "checkpoint.safetensors", metadata={"step": "3"})  # without a checksum
    assert record.load_checkpoint(tmp_path) == (3, {"w": pytest.approx(torch.ones(2))})


def test_a_flipped_bit_of_a_table_is_damage(tmp_path: Path) -> None:
    """Values are stored as they are, and would be read as others; a column of another name would be one of nothing."""
    with open_run(tmp_path / "a", RUN) as log:
        log.append(0, rows(0, count=200))
        log.finish([0])
    file = tmp_path / "a" / "rows.parquet"
    whole, table = file.read_bytes(), record.load_rows(tmp_path / "a")
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    said = []
    for place in [*range(4, footer, 41), footer + 1, whole.index(b"value", footer)]:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert record.load_rows(tmp_path / "a").equals(table)  # it is in something of a header that nobody reads
        except InputError as error:
            said.append(str(error))
    assert said
    assert not [error for error in said if "\n" in error]


def test_a_finished_run_does_not_mind_its_log(tmp_path: Path) -> None:
    with open_run(tmp_path / "a", RUN) as log:
        log.append(0, rows(0))
        log.finish([0])
    (tmp_path / "a" / "rows.log").write_bytes(b"torn")
    with warnings.catch_warnings(), open_run(tmp_path / "a", RUN) as log:
        warnings.simplefilter("error")  # that the step is measured again, which it is not
        assert log.finished
    assert len(values(tmp_path / "a")) == 3


def test_a_directory_of_another_run_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "a")
    before = (path / "rows.log").read_bytes()
    other = Run(Data("digits"), train=Train(temperature=10), seed=4)
    with pytest.raises(InputError, match="its data.name is 'runes', this one's is 'digits'"), open_run(path, other):
        pass
    assert (path / "rows.log").read_bytes() == before


def test_a_directory_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="thesis.tex"), open_run(tmp_path, RUN):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_file_of_the_users_is_never_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("precious")
    with pytest.raises(InputError, match="lock"), open_run(tmp_path, RUN):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]
    assert (tmp_path / "lock").read_text() == "precious"


def test_a_run_that_recorded_nothing_gives_way(tmp_path: Path) -> None:
    with open_run(tmp_path / "a", RUN) as log:
        log.describe({"data": {"train": "another hash"}})
    other = Run(seed=9)
    with open_run(tmp_path / "a", other) as log:
        assert not log.provenance()
        log.append(0, rows(0))
    assert record.load_run(tmp_path / "a").spec == other


def test_an_incomplete_run_is_not_finished(tmp_path: Path) -> None:
    with open_run(filled(tmp_path / "a"), RUN) as log:
        with pytest.raises(ValueError, match="not of"):
            log.finish(range(4))
        assert not log.finished


def test_a_copy_of_a_run_counts_once(tmp_path: Path) -> None:
    shutil.copytree(filled(tmp_path / "a"), tmp_path / "b")
    with pytest.warns(UserWarning, match="b is the same run as"):
        assert record.load_rows(tmp_path).num_rows == 9


def test_of_two_copies_of_a_run_the_finished_one_counts(tmp_path: Path) -> None:
    with open_run(filled(tmp_path / "b"), RUN) as log:
        log.describe({"sessions": []})
        shutil.copytree(tmp_path / "b", tmp_path / "a")
        log.append(3, rows(3))
        log.finish(range(4))
    with pytest.warns(UserWarning, match="a is the same run as"):
        assert record.load_rows(tmp_path).num_rows == 12


def test_a_file_that_cannot_be_written_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(InputError, match="cannot write"):
        record.write(tmp_path / "page.html", b"a page")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_ctrl_c_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", cut)
    with pytest.raises(KeyboardInterrupt):
        record.write(tmp_path / "page.html", b"a page")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    path = filled(tmp_path / "a")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open_run(path, RUN) as log:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, ((path / "rows.log").stat().st_size + 100, limit[1]))
            with pytest.raises(InputError, match=r"cannot write .*rows\.log"):
                log.append(3, rows(3, count=50))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            signal.signal(signal.SIGXFSZ, handler)
    with pytest.warns(UserWarning, match="cut short"):
        assert len(values(path)) == 9


def test_a_step_that_could_not_be_written_can_be_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a watch, whose training goes on when somebody has made room."""
    path, sync, whole = filled(tmp_path / "a"), os.fsync, values(tmp_path / "a")

    def full(file: int) -> None:
        os.truncate(file, os.fstat(file).st_size - 20)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open_run(path, RUN) as log:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"cannot write .*rows\.log"):
            log.append(3, rows(3))
        monkeypatch.setattr(os, "fsync", sync)
        log.append(4, rows(4))
    assert values(path)[: len(whole)] == whole
    assert len(values(path)) == 12


def test_two_processes_may_write_one_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As two do that share a sweep and end together: each writes the whole of it, and the last one stands."""
    page, sync = tmp_path / "report.html", os.fsync

    def meanwhile(file: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        other = f"from pathlib import Path; from thermocline.record import write; write(Path({str(page)!r}), b'theirs')"
        subprocess.run([sys.executable, "-c", other], check=True)
        sync(file)

    monkeypatch.setattr(os, "fsync", meanwhile)
    record.write(page, b"ours, which is longer")
    assert page.read_bytes() == b"ours, which is longer"
    assert list(tmp_path.iterdir()) == [page]


def test_what_kills_leave_of_files_is_cleared_away(tmp_path: Path) -> None:
    path = filled(tmp_path / "a")
    for name in ("checkpoint.safetensors.1", "rows.parquet.7", "report.html.9"):
        (path / f".{name}.draft").write_bytes(b"torn")
    with open_run(path, RUN):
        pass
    assert [file.name for file in path.glob(".*.draft")] == [".report.html.9.draft"]  # which another may be writing now


def test_a_file_system_without_locks_is_no_other_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(record.fcntl, "flock", unknown)
    with (
        pytest.raises(InputError, match=r"cannot be locked \(Function not implemented\)") as said,
        open_run(tmp_path / "a", RUN),
    ):
        pass
    assert not isinstance(said.value, record.Busy)


def test_a_kill_before_the_spec_was_written_leaves_a_usable_directory(tmp_path: Path) -> None:
    (tmp_path / ".spec.json.draft").write_text("{")
    with open_run(tmp_path, RUN) as log:
        assert not log.finished


def _hold(path: Path, held, release) -> None:
    with open_run(path, RUN):
        held.set()
        release.wait(20)


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path / "a", held, release))
    other.start()
    try:
        assert held.wait(60)
        with pytest.raises(InputError, match="being written by another process"), open_run(tmp_path / "a", RUN):
            pass
    finally:
        release.set()
        other.join()
    with open_run(tmp_path / "a", RUN):
        pass


def test_a_finished_run_needs_no_folder_that_can_be_written(tmp_path: Path) -> None:
    path = filled(tmp_path / "a")
    with open_run(path, RUN) as log:
        log.finish(range(3))
    (path / record.LOCK).unlink()
    path.chmod(0o555)  # which stops everyone but root
    with open_run(path, RUN) as log:
        assert log.finished
    assert not (path / record.LOCK).exists()
    with pytest.raises(InputError, match="holds another run"), open_run(path, Run()):
        pass


def test_runs_are_found_in_stores_and_patterns(tmp_path: Path) -> None:
    for seed, name in enumerate(("b", "a")):
        with open_run(tmp_path / "store" / name, Run(seed=seed)) as log:
            log.append(0, rows(0))
    store = tmp_path / "store"
    assert [path.name for path in record.find_runs(store)] == ["a", "b"]
    assert [path.name for path in record.find_runs([store / "b", store])] == ["b", "a"]
    assert [path.name for path in record.find_runs(f"{store}/*")] == ["a", "b"]
    assert record.load_rows(store).num_rows == 6
    assert record.load_rows([]).schema.equals(record.SCHEMA)
    with pytest.raises(InputError, match="no run directory at"):
        record.load_rows(tmp_path / "nowhere")
    with pytest.raises(InputError, match="has no spec.json"):
        record.load_run(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"train": {"heat": 3}}'])
def test_a_broken_spec_is_named(tmp_path: Path, content: str) -> None:
    path = filled(tmp_path / "a")
    (path / "spec.json").write_text(content)
    with pytest.raises(InputError, match=r"spec\.json"):
        record.load_run(path)


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    path = filled(tmp_path / "a")
    (path / "rows.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="rows.parquet is damaged"):
        record.load_run(path)


@pytest.mark.parametrize("file", ["spec.json", "provenance.json"])
def test_json_of_another_kind_is_damage(tmp_path: Path, file: str) -> None:
    with record.open_run(tmp_path / "run", Run()) as opened:
        opened.append(0, [])
        opened.describe({"seed": 0})
    (tmp_path / "run" / file).write_text("[]")
    with pytest.raises(InputError, match=f"{file} is damaged: it holds a list"):
        record.load_run(tmp_path / "run")
    with pytest.raises(InputError, match="it holds a list"), record.open_run(tmp_path / "run", Run()) as opened:
        opened.provenance()


EDITED = {  # what a hand may have made of a provenance
    "guessing": "a fifth", "wall_seconds": True, "versions": "2", "hardware": ["cpu"], "data": {"train": 5}, "classes": "abc",
    "notes": {"a": "b"}, "sessions": [5], "commit": 5, "stopped": ["no"], "measures": [],
}  # fmt: skip


@pytest.mark.parametrize("name", EDITED)
def test_an_edited_provenance_is_named_with_what_is_wrong(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a"
    with open_run(path, RUN) as log:
        log.append(0, [Row("train", "", 0, "", "loss", "", 1.0)])
        log.describe({"guessing": 0.1})
    file = path / "provenance.json"
    file.write_text(json.dumps({"guessing": 0.1, name: EDITED[name]}))
    line = rf"^[^\n]*provenance\.json is damaged or was edited: {name} should be [^\n]*, and is [^\n]*$"
    with pytest.raises(InputError, match=line):
        record.load_run(path)
    with open_run(path, RUN) as opened, pytest.raises(InputError, match="provenance"):
        opened.provenance()
    if name == "stopped":
        with pytest.raises(InputError, match="provenance"):
            record.stopped(path)


def test_what_a_provenance_does_not_know_is_left_out(tmp_path: Path) -> None:
    with open_run(tmp_path / "a", RUN) as log:
        log.describe({"commit": None, "classes": None, "of mine": 5})
    assert record.load_run(tmp_path / "a").provenance == {"of mine": 5}


@pytest.mark.parametrize("value", [10**400, [[]], None, "x"], ids=["huge", "lists", "null", "text"])
def test_an_edited_spec_is_named(tmp_path: Path, value: object) -> None:
    with open_run(tmp_path / "a", RUN):
        pass
    file = tmp_path / "a" / "spec.json"
    kept = json.loads(file.read_text())
    for edited in ({**kept, "train": value}, {**kept, "train": {**kept["train"], "temperature": value}}):
        file.write_text(json.dumps(edited))
        with pytest.raises(InputError, match=r"spec\.json cannot be read as a spec of this version"):
            record.load_run(tmp_path / "a")
