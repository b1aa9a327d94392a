"""Both sides of every benchmark give the same answer, and a run in processes of its own works; no clock is asserted."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from thermocline import bench, cli
from thermocline.bench import case, full, images, watching, worker
from thermocline.spec import Failure, InputError

CPU = torch.device("cpu")


def tiny(name: str) -> float:
    """A scale at which both sides take seconds: those meant for a GPU are smallest of all."""
    return 0.02 if bench.BENCHES[name].cpu_scale > 1 else 0.004


@pytest.mark.parametrize("name", bench.BENCHES)
def test_both_sides_agree(name: str) -> None:
    one = bench.BENCHES[name]
    if lacking := [package for package in one.needs if importlib.util.find_spec(package) is None]:
        pytest.skip(f"the other side is not here: {', '.join(lacking)}")
    inputs = one.inputs(tiny(name))
    agree, difference = one.compare(case.answered(one.ours(inputs)), case.answered(one.theirs(inputs)))
    assert agree, difference


@pytest.mark.parametrize("name", [name for name in bench.BENCHES if name != "scan-cached"])  # its inputs are scan-full's
def test_inputs_are_the_same_in_every_process(name: str) -> None:
    """Else the two sides, each in its own process, would answer different questions."""
    one = bench.BENCHES[name]
    first, again = (case.answered(one.ours(one.inputs(tiny(name)))) for _ in range(2))
    assert all(np.array_equal(first[key], again[key]) for key in first if key != "share")  # of the time


def test_a_log_gets_a_line_a_benchmark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A status leaves no trace where nobody looks on, and the table comes at the end."""
    times = {
        "ours_seconds": 1.0,
        "theirs_seconds": 2.0,
        "ratio": 2.0,
        "ours_peak_mb": 1.0,
        "theirs_peak_mb": 1.0,
        "memory_ratio": 1.0,
    }
    seen = []

    def results(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        for name in ("first", "second"):
            yield SimpleNamespace(name=name, hardware="", note="", agree=True, difference="", **times)
            seen.append(capsys.readouterr().err)

    monkeypatch.setattr(bench, "run", results)
    cli.bench(["measure"], threads=1, repeat=1, scale=1.0, device="cpu")
    assert seen == ["done: first\n", "done: second\n"]


def test_a_difference_is_seen() -> None:
    compare = case.within({"rank": 0, "scores": 1e-6})
    same = {"rank": np.array(3), "scores": np.array([0.5, 0.25])}
    assert compare(same, same) == (True, "rank equal, scores equal")
    assert compare(same, {**same, "rank": np.array(4)}) == (False, "rank within 1, scores equal")
    assert not compare(same, {**same, "scores": np.array([0.5, np.nan])})[0]
    relative = case.within({"nc1": 1e-3}, relative=["nc1"])
    assert relative({"nc1": np.array([5000.0])}, {"nc1": np.array([5001.0])})[0]
    assert not relative({"nc1": np.array([0.5])}, {"nc1": np.array([0.501])})[0]
    logistic = bench.BENCHES["probes-logistic"]
    assert not logistic.compare({"accuracy": np.array([0.5, 0.8])}, {"accuracy": np.array([0.5, 0.9])})[0]


def test_a_scan_that_differs_is_seen() -> None:
    """Negative controls: what no float32 and no shuffle explains is a disagreement."""
    accuracy = np.linspace(0.8, 0.3, 18) * np.ones((3, 1))
    same = {name: np.ones(18) for name in ("rank", "stable_rank", "entropy_rank", "alignment", "neural_collapse")}
    same |= {"accuracy": accuracy, "effective_depth": np.array([1 / 18]), "ood_drop": np.array([0.6, 0.6])}
    assert full._agree(same, same)[0]
    for name, value in same.items():
        allowed = {"rank": 1, "accuracy": 0.008, "effective_depth": 1 / 18, "ood_drop": 0.015}.get(name, 5e-4)
        assert full._agree(same, {**same, name: value + allowed})[0], name
        assert not full._agree(same, {**same, name: value + 2.5 * allowed})[0], name


def test_a_disturbed_training_is_seen() -> None:
    loss = np.linspace(2.0, 1.0, 400)
    same = {"loss": loss, "measurements": np.array(2), "share": np.array(0.02), "exact": np.array(True)}
    assert watching._undisturbed(same, same) == (
        True,
        "losses equal, watched at 2 of 400 steps, 2.0% of the time by its own account",
    )
    moved = {**same, "loss": loss * (1 + 1e-6)}
    assert not watching._undisturbed(moved, same)[0]  # a CPU repeats itself
    gpu = {**same, "exact": np.array(False)}
    assert watching._undisturbed({**gpu, "loss": moved["loss"]}, gpu)[0]
    assert not watching._undisturbed({**gpu, "loss": loss + 0.05}, gpu)[0]


def test_drawn_classes_can_be_told_apart_but_not_perfectly() -> None:
    """Else equal accuracies would say nothing. A template matcher is the judge."""
    train, test = images.draw(3, 2000, 500, classes=10, size=16)
    means = torch.stack([train.images[train.labels == c].float().mean(0).flatten() for c in range(10)])
    found = torch.cdist(test.images.float().flatten(1), means).argmin(1)
    assert 0.3 < float((found == test.labels).float().mean()) < 0.95
    assert train.images.float().std() > 10
    other, _ = images.draw(4, 200, 50, classes=10, size=16, like=train)
    assert torch.equal(other.mean, train.mean)
    assert not torch.equal(other.images, train.images[:200])


def test_the_full_scan_is_the_size_it_says() -> None:
    """Only the sizes: at this scale nothing is run on a CPU."""
    work = full.work(full.SMALL)
    assert len(work.net.taps) == 18  # pyright: ignore[reportArgumentType]
    assert (work.train.classes, work.train.images.shape[1:]) == (100, (3, 32, 32))
    assert [len(split) for pair in ((work.train, work.test), *work.ood.values()) for split in pair] == 3 * [1000, 200]


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
        assert f"1 thread, torch {torch.__version__}" in one.hardware


def test_a_group_stands_for_those_of_its_benchmarks_that_can_run() -> None:
    assert bench._select(["measure"], "cpu", 1.0) == [name for name, one in bench.BENCHES.items() if one.group == "measure"]
    assert bench._select(["auroc", "measure"], "cpu", 1.0) == bench._select(["measure"], "cpu", 1.0)
    assert bench._select(["measure"], "cuda", 1.0) == ["spectrum-rank", "probes-gram", "neural-collapse"]
    assert bench._select(["full"], "cuda", 1.0) == bench._select(["full"], "cpu", 0.01) == ["scan-full", "scan-cached", "watch"]


@pytest.mark.parametrize(
    ("names", "device", "scale", "message"),
    [
        (["neco"], "cuda", 1.0, "bench neco compares with scikit-learn .* use --device cpu"),
        (["scan-full"], "cpu", 1.0, "bench scan-full would take days on a CPU at scale 1: use --device cuda, or --scale 0.01"),
        (["full"], "cpu", 0.02, "bench scan-full would take days on a CPU at scale 0.02"),
    ],
)
def test_what_cannot_run_says_what_can(names: list[str], device: str, scale: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bench._select(names, device, scale)


def test_a_package_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs pytorch_ood, torchvision: pip install '.\[ood\]'"):
        bench._select(["knn"], "cpu", 1.0)
    assert bench._select(["detect"], "cpu", 1.0) == ["neco"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["spectrum-rnk"]}, "unknown bench 'spectrum-rnk'; did you mean 'spectrum-rank'?"),
        ({"names": ["measures"]}, "unknown bench 'measures'; did you mean 'measure'?"),
        ({"names": ["auroc"], "threads": 0}, "threads must be at least 1"),
        ({"names": ["auroc"], "repeat": 0}, "repeat must be at least 1"),
        ({"names": ["auroc"], "scale": 0.0}, "scale must be above 0"),
        ({"names": ["auroc"], "scale": float("nan")}, "scale must be above 0"),
        ({"names": ["auroc"], "device": "cudda"}, "unknown device 'cudda'; did you mean 'cuda'?"),
        ({"names": ["watch"]}, "bench watch would take days on a CPU at scale 1"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        bench.run(**options)


def test_a_side_that_fails_says_so() -> None:
    with pytest.raises(Failure, match="bench nothing: the side 'ours' failed: KeyError: 'nothing'"):
        bench._measured("nothing", "ours", 1, 0.01, CPU)


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
    worker.main("auroc", "theirs", "0.01", str(threads), "cpu", str(tmp_path))
    assert {file.name for file in tmp_path.iterdir()} == {"answers.npz", "cost.json"}


def test_inputs_of_every_kind_are_moved() -> None:
    class Pair(NamedTuple):
        net: nn.Module
        rest: dict[str, list]

    split, _ = images.draw(0, 20, 0, classes=2, size=16)
    there = worker.moved(Pair(nn.BatchNorm1d(2), {"split": [split, (torch.zeros(2), None, 3)]}), "meta")
    assert isinstance(there, Pair)
    inside, (tensor, nothing, number) = there.rest["split"]
    found = [inside.images, inside.labels, inside.mean, inside.std, tensor, *there.net.parameters()]
    assert {one.device.type for one in found} == {"meta"}
    assert (nothing, number) == (None, 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", [name for name, one in bench.BENCHES.items() if "cuda" in one.devices])
def test_a_tiny_run_on_a_gpu(name: str) -> None:
    (one,) = bench.run([name], scale=0.01, repeat=1, device="cuda")
    assert one.agree, one.difference
    assert torch.cuda.get_device_name() in one.hardware


def test_the_command_says_where_its_numbers_come_from(tmp_path: Path) -> None:
    def command(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
        arguments = [sys.executable, "-m", "thermocline", "bench", *words]
        return subprocess.run(arguments, env=environment, cwd=tmp_path, capture_output=True, text=True)

    done = command("spectrum-rank", "--scale", "0.01", "--repeat", "1", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert f"1 thread, torch {torch.__version__}, scale 0.01" in done.stdout
    assert "│ spectrum-rank │" in done.stdout, "the table fits 80 columns"
    said = " ".join(done.stdout.split())
    assert "spectrum-rank: numerical rank of a float32 matrix" in said
    assert "; answers: " in said
    assert "--device" in command("--help").stdout
    refused = command("scan-full")
    assert refused.returncode == 2
    assert "use --device cuda, or --scale 0.01" in " ".join(refused.stderr.split())
