"""Both sides of every benchmark give the same answer, and a run in processes of its own works; no clock is asserted."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from thermocline import bench
from thermocline.bench import case, worker
from thermocline.spec import Failure, InputError

TINY = 0.02


@pytest.mark.parametrize("name", bench.BENCHES)
def test_both_sides_agree(name: str) -> None:
    one = bench.BENCHES[name]
    inputs = one.inputs(TINY)
    agree, difference = one.compare(one.ours(inputs), one.theirs(inputs))
    assert agree, difference


@pytest.mark.parametrize("name", bench.BENCHES)
def test_inputs_are_the_same_in_every_process(name: str) -> None:
    """Else the two sides, each in its own process, would answer different questions."""
    one = bench.BENCHES[name]
    first, again = (one.ours(one.inputs(TINY)) for _ in range(2))
    assert all(np.array_equal(first[key], again[key]) for key in first)


def test_a_difference_is_seen() -> None:
    compare = case.within({"rank": 0, "scores": 1e-6})
    same = {"rank": np.array(3), "scores": np.array([0.5, 0.25])}
    assert compare(same, same) == (True, "rank equal, scores equal")
    assert compare(same, {**same, "rank": np.array(4)}) == (False, "rank within 1, scores equal")
    assert not compare(same, {**same, "scores": np.array([0.5, np.nan])})[0]
    logistic = bench.BENCHES["probes-logistic"]
    assert not logistic.compare({"accuracy": np.array([0.5, 0.8])}, {"accuracy": np.array([0.5, 0.9])})[0]


def test_the_registry_is_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "performance.md").read_text()
    for name, one in bench.BENCHES.items():
        assert f"`{name}`" in page
        assert one.description
        assert "\n" not in one.description
        assert one.theirs_is


def test_a_tiny_run() -> None:
    results = list(bench.run(["auroc", "spectrum-rank"], scale=0.01, repeat=1))
    assert [one.name for one in results] == ["spectrum-rank", "auroc"]
    for one in results:
        assert one.agree, one.difference
        assert one.ratio == one.theirs_seconds / one.ours_seconds
        assert one.ours_seconds > 0
        assert one.memory_ratio > 0
        assert one.note


def test_a_group_stands_for_its_benchmarks() -> None:
    assert bench._select(["measure"]) == [name for name, one in bench.BENCHES.items() if one.group == "measure"]
    assert bench._select(["neco", "measure"]) == bench._select(["measure"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["spectrum-rnk"]}, "unknown bench 'spectrum-rnk'; did you mean 'spectrum-rank'?"),
        ({"names": ["measures"]}, "unknown bench 'measures'; did you mean 'measure'?"),
        ({"names": ["auroc"], "threads": 0}, "threads must be at least 1"),
        ({"names": ["auroc"], "repeat": 0}, "repeat must be at least 1"),
        ({"names": ["auroc"], "scale": 0.0}, "scale must be above 0"),
        ({"names": ["auroc"], "scale": float("nan")}, "scale must be above 0"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        bench.run(**options)


def test_a_side_that_fails_says_so() -> None:
    with pytest.raises(Failure, match="bench nothing: the side 'ours' failed: KeyError: 'nothing'"):
        bench._measured("nothing", "ours", 1, 0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget an earlier peak")
def test_memory_is_what_was_taken_after_the_peak_was_forgotten() -> None:
    code = (
        "import torch; from thermocline.bench import worker; torch.ones(50_000_000); worker.forget_peak(); "
        "before = worker.peak_mb(); torch.ones(25_000_000); print(worker.peak_mb() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert 95 < float(done.stdout) < 110


def test_a_worker_leaves_answers_and_cost(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    worker.main("auroc", "theirs", "0.01", str(threads), str(tmp_path))
    assert {file.name for file in tmp_path.iterdir()} == {"answers.npz", "cost.json"}
