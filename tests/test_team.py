"""Several processes give what one gives, up to rounding; they are real processes, started by torchrun."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from thermocline import run
from thermocline.moments import ClassMoments, Moments
from thermocline.spec import Data, InputError, Net, Run, Train

SMALL = [
    "--data", "runes", "--net", "resnet8", "--temperature", "5", "--ood", "digits",
    "--set", "data.classes=6", "--set", "data.size=16", "--set", "data.train=400", "--set", "data.test=101",
    "--set", "net.width=4", "--set", "train.epochs=2", "--set", "train.batch=33", "--set", "train.lr=0.05",
    "--set", "train.snapshots=2", "--set", "train.augment=crop+flip", "--set", "train.patience=9",
]  # fmt: skip


def launch(processes: int, *words: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
    """One process as users start it, or several under torchrun."""
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
    done = subprocess.run(
        [sys.executable, *start, "-m", "thermocline", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == expect, done.stderr
    return done


def values(directory: Path) -> dict[tuple, float]:
    rows = pq.read_table(directory / "rows.parquet").to_pylist()
    return {tuple(row[key] for key in ("step", "split", "layer", "view", "measure", "params")): row["value"] for row in rows}


def test_three_processes_give_the_rows_of_one(tmp_path: Path) -> None:
    words = ["train", *SMALL, "--set", "probes=ridge,logistic", "--device", "cpu", "--out"]
    launch(1, *words, str(tmp_path / "1"))
    said = launch(3, *words, str(tmp_path / "n"))
    assert said.stdout.count("report.html") == 1  # one of them speaks
    alone, together = values(tmp_path / "1"), values(tmp_path / "n")
    assert alone.keys() == together.keys()
    first = {key for key in alone if key[0] == 0}
    assert first
    for key, value in alone.items():
        # Before training only sums differ in their order. After 24 steps in float32 that has grown; counts may differ by some.
        if key[0] == 0 and "probe" not in key[5] and key[4] not in ("gradient_rank", "alignment", "alignment_top"):
            assert together[key] == pytest.approx(value, rel=1e-4, abs=1e-6), key
        elif key[4] in ("accuracy", "loss", "logit_norm"):
            assert together[key] == pytest.approx(value, rel=0.02, abs=0.02), key
    provenance = json.loads((tmp_path / "n" / "provenance.json").read_text())
    assert provenance["sessions"][0]["processes"] == 3
    # What is on disk does not depend on how many wrote it: one alone trains again for what was lost of the end.
    (tmp_path / "n" / "rows.parquet").unlink()
    log = tmp_path / "n" / "rows.log"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    launch(1, *words, str(tmp_path / "n"))
    last = max(key[0] for key in alone)
    shrunk = values(tmp_path / "n")
    assert {key: value for key, value in shrunk.items() if key[0] == last} == {k: v for k, v in alone.items() if k[0] == last}
    assert {key: value for key, value in shrunk.items() if key[0] < last} == {k: v for k, v in together.items() if k[0] < last}


def test_a_failure_of_one_process_ends_all_of_them(tmp_path: Path) -> None:
    """Else the others would go on with another run, and sum what does not belong together."""
    words = ["sweep", "--set", "train.epochs=1", "--set", "data.train=64", "--set", "data.test=16", "--set", "net.width=8"]
    words += ["--set", "data.classes=4", "--set", "train.batch=16", "--over", "seed=0,1", "--device", "cpu", "--out"]
    first = Run(
        Data("runes", classes=4, train=64, test=16), Net("mlp", width=8), Train(epochs=1, batch=16)
    ).name  # fmt: skip
    (tmp_path / "runs" / first).mkdir(parents=True)
    (tmp_path / "runs" / first / "foreign.txt").touch()
    done = launch(2, *words, str(tmp_path / "runs"), expect=1)
    assert "not a run directory" in done.stderr
    assert not list((tmp_path / "runs").glob("*/rows.parquet"))


def test_what_the_first_process_refuses_ends_the_others_in_a_line(tmp_path: Path) -> None:
    words = ["train", "--set", "data.train=64", "--set", "data.test=16", "--set", "data.classes=2", "--set", "train.epochs=1"]
    words += ["--set", "train.batch=16", "--set", "train.lr=0.01", "--set", "measures=accuracy", "--device", "cpu", "--out"]
    words += [str(tmp_path / "run")]
    launch(1, *words)
    (tmp_path / "run" / "rows.parquet").unlink()
    whole = (file := tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    said = launch(2, *words, expect=1).stderr
    assert said.count("checkpoint.safetensors is damaged") == 2
    assert "thermocline/run/one.py" not in said, "no traceback of ours"


def test_sets_smaller_than_the_team_are_named_before_training(tmp_path: Path) -> None:
    words = ["train", "--set", "data.train=64", "--set", "data.test=2", "--set", "data.classes=2", "--device", "cpu", "--out"]
    done = launch(3, *words, str(tmp_path / "run"), expect=1)
    assert "3 processes share every set, and test has only 2 images" in done.stderr


@pytest.mark.parametrize("size", ["2", ""])
def test_a_world_size_without_torchrun_is_said(tmp_path: Path, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Job scripts set it out of habit."""
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(InputError, match=f"WORLD_SIZE is '{size}', but RANK is not set"):
        run.run(Run(), tmp_path / "a", device="cpu")
    assert not list(tmp_path.iterdir())


def test_verbs_that_do_not_share_their_work_say_so(tmp_path: Path) -> None:
    environment = {**os.environ, "WORLD_SIZE": "2", "RANK": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "thermocline", "demo"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "only train and sweep" in done.stderr


def pooled(parts: list, *, pool: str = "pool") -> None:
    """Let states that are parts of one pool, as a team of threads would: each sum waits for all."""
    import threading

    barrier, slots = threading.Barrier(len(parts)), [None] * len(parts)

    def work(rank: int) -> None:
        def total(x: torch.Tensor) -> torch.Tensor:
            slots[rank] = x
            barrier.wait()
            result = torch.stack(slots).sum(0)  # pyright: ignore[reportArgumentType]
            barrier.wait()
            return result

        getattr(parts[rank], pool)(total)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_pooled_moments_are_the_moments_of_all(gen: torch.Generator) -> None:
    x = 100 + 0.1 * torch.randn(50, 7, generator=gen, dtype=torch.float64)
    labels = torch.randint(3, (50,), generator=gen)
    cuts = [slice(0, 9), slice(9, 10), slice(10, 50)]
    plain, classed = [Moments.of(x[cut]) for cut in cuts], [ClassMoments.of(x[cut], labels[cut], classes=4) for cut in cuts]
    pooled(plain)
    pooled(classed)
    for part in plain:
        assert part.count == 50
        torch.testing.assert_close(part.scatter, Moments.of(x).scatter, rtol=1e-9, atol=1e-12)
    whole = ClassMoments.of(x, labels, classes=4)
    for part in classed:
        assert part.count == 50
        torch.testing.assert_close(part.means, whole.means)
        torch.testing.assert_close(part.within, whole.within, rtol=1e-9, atol=1e-12)
