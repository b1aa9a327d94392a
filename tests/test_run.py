"""One path from a spec to rows: golden numbers, kill and resume, sweeps."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import thermocline as tc
from thermocline import data, nets, record, report, run, spec
from thermocline.report import curves
from thermocline.run import several
from thermocline.spec import Data, InputError, Net, Run, Train

TINY = Run(
    Data("runes", classes=10, size=16, train=400, test=100, ood=("digits",)),
    Net("mlp", depth=4, width=32),
    Train(epochs=5, batch=100, lr=0.1, temperature=5, snapshots=4),
)


def final(path: Path) -> dict[tuple, float]:
    rows = record.load_rows(path).to_pylist()
    last = max(row["step"] for row in rows)
    return {(r["split"], r["layer"], r["measure"], r["params"]): r["value"] for r in rows if r["step"] == last}


def test_golden_run(tmp_path: Path) -> None:
    """20 CPU steps gave these numbers; if one moves, the commit says from what to what, and why."""
    what = spec.replace(TINY, {"data.ood": ("runes:1", "digits")})  # 15,000 images more than other tests need
    rows = final(run.run(what, tmp_path / "a", device="cpu"))
    golden = {
        ("train", "", "loss", ""): 1.3098707,
        ("test", "", "loss", ""): 1.3239747,
        ("train", "", "logit_norm", ""): 17.960782,
        ("train", "layers.1", "stable_rank", ""): 1.9616819,
        ("train", "layers.2", "entropy_rank", ""): 12.251476,
        ("train", "head", "solution_rank", "of=covariance,rtol=0.001"): 10.0,
        ("test", "layers.1", "probe_accuracy", "probe=ridge,penalty=0.001,guessing=0.1,tested=100"): 0.89,
        ("test", "", "effective_depth", "probe=ridge,penalty=0.001,threshold=0.99"): 0.25,
        ("digits/test", "", "ood_drop", "probe=ridge,penalty=0.001"): 0.25377644,
        ("runes:1/test", "head", "auroc", "detector=neco,dim=0.9"): 0.73960333,
        ("digits/test", "head", "auroc", "detector=msp"): 0.49337047,
    }
    for key, value in golden.items():
        assert math.isclose(rows[key], value, rel_tol=2e-3), (key, rows[key])


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    path = run.run(TINY, tmp_path / "a", device="cpu")
    before = {file.name: file.stat().st_mtime_ns for file in path.iterdir() if file.name != "lock"}
    events = list(run.follow(TINY, path, device="cpu"))
    assert [event.phase for event in events] == ["finished"]
    assert before == {file.name: file.stat().st_mtime_ns for file in path.iterdir() if file.name != "lock"}


def test_provenance_says_how_the_rows_came_about(tmp_path: Path) -> None:
    loaded = record.load_run(run.run(TINY, tmp_path / "a", device="cpu"))
    facts = loaded.provenance
    assert loaded.finished
    assert loaded.spec == TINY
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["hardware"]["cores"] == os.cpu_count()
    assert facts["wall_seconds"] > 0
    assert facts["device"] == "cpu"
    assert facts["measures"]["ood_drop"]["formula"].startswith("rho")


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_an_interrupted_run_goes_on_to_the_same_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Resuming from checkpoints between snapshots (saved at every chance) and at them (saved rarely)."""
    monkeypatch.setattr(run.one, "SAVE_SECONDS", seconds)
    whole = run.run(TINY, tmp_path / "whole", device="cpu")
    steps = []
    for attempt in range(9):
        for event in run.follow(TINY, tmp_path / "cut", device="cpu"):
            if event.phase == "training":
                steps.append(event.step)
                if len(steps) % 7 == 6 and attempt < 8:
                    break  # the generator is closed here, as by Ctrl-C
        else:
            break
    assert attempt > 2
    assert (whole / "rows.log").read_bytes() == (tmp_path / "cut" / "rows.log").read_bytes()
    assert (whole / "checkpoint.safetensors").read_bytes() == (tmp_path / "cut" / "checkpoint.safetensors").read_bytes()


def half_done(path: Path, what: Run) -> None:
    """A run interrupted after its checkpoint at step 11 of 20."""
    for event in run.follow(what, path, device="cpu"):
        if event.phase == "training" and event.step >= 11:
            break


def test_changed_data_is_refused_not_mixed(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    arrays = {"x_train": generator.integers(0, 256, (400, 16, 16), dtype=np.uint8), "y_train": np.arange(400) % 10}
    arrays |= {"x_test": arrays["x_train"][:100], "y_test": arrays["y_train"][:100]}
    np.savez(tmp_path / "mine.npz", **arrays)
    what = spec.replace(TINY, {"data.name": f"arrays:{tmp_path / 'mine.npz'}", "data.train": None, "data.test": None})
    half_done(tmp_path / "a", what)
    before = (tmp_path / "a" / "rows.log").read_bytes()
    np.savez(tmp_path / "mine.npz", **{**arrays, "x_train": arrays["x_train"][::-1]})
    with pytest.raises(InputError, match="begun with other train images"):
        run.run(what, tmp_path / "a", device="cpu")
    assert (tmp_path / "a" / "rows.log").read_bytes() == before
    np.savez(tmp_path / "mine.npz", **arrays)
    assert record.load_run(run.run(what, tmp_path / "a", device="cpu")).finished


def test_lost_rows_are_measured_again(tmp_path: Path) -> None:
    whole = run.run(TINY, tmp_path / "whole", device="cpu")
    half_done(tmp_path / "cut", TINY)
    log = tmp_path / "cut" / "rows.log"
    log.write_bytes(log.read_bytes().split(b"\n")[0] + b"\n")
    with pytest.warns(UserWarning, match="lost the rows of step 1"):
        run.run(TINY, tmp_path / "cut", device="cpu")
    tables = [record.load_rows(tmp_path / name).sort_by([("step", "ascending")]) for name in ("whole", "cut")]
    assert tables[0].equals(tables[1])
    assert (whole / "checkpoint.safetensors").read_bytes() == (tmp_path / "cut" / "checkpoint.safetensors").read_bytes()


def test_every_session_is_remembered(tmp_path: Path) -> None:
    half_done(tmp_path / "a", TINY)
    first = record.load_run(tmp_path / "a").provenance
    provenance = record.load_run(run.run(TINY, tmp_path / "a", device="cpu")).provenance
    assert len(provenance["sessions"]) == 2
    assert provenance["started"] == first["started"]
    assert provenance["wall_seconds"] >= first["wall_seconds"]
    assert set(provenance["data"]) == {"train", "test", "digits/train", "digits/test"}


COMMAND = [
    sys.executable, "-m", "thermocline", "train", "--data", "runes", "--ood", "digits", "--temperature", "5", "--set",
    *" --set ".join(("data.classes=10", "data.train=2000", "data.test=200", "net.width=64", "train.epochs=60", "train.batch=50",
                     "train.augment=crop", "train.snapshots=6")).split(),
]  # fmt: skip
PLACES = {
    "cpu": ["--set", "net.depth=5"],
    # Not compiled, which gives up this promise.
    "cuda": ["--net", "resnet8", "--set", "train.precision=bfloat16", "--set", "measures=accuracy,logit_norm"],
}


@pytest.mark.parametrize("device", PLACES)
def test_kill_9_at_any_moment_changes_nothing(tmp_path: Path, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [*COMMAND, *PLACES[device], "--device", device]
    subprocess.run([*command, "--out", "whole"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    log = tmp_path / "cut" / "rows.log"
    for lines, later in ((1, 0.0), (3, 0.13), (4, 0.31)):
        victim = subprocess.Popen(
            [*command, "--out", "cut"], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 120
        while (not log.exists() or log.read_bytes().count(b"\n") < lines) and time.monotonic() < deadline:
            assert victim.poll() is None, "finished before it could be killed: the test shows nothing"
            time.sleep(0.002)
        time.sleep(later)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        assert not (tmp_path / "cut" / "rows.parquet").exists()
    subprocess.run([*command, "--out", "cut"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    for name in ("rows.log", "checkpoint.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name
    tables = [record.load_rows(tmp_path / name).drop_columns("run") for name in ("whole", "cut")]
    assert tables[0].equals(tables[1])


def test_a_sweep_in_processes_gives_every_run(tmp_path: Path) -> None:
    runs = spec.grid(TINY, {"train.temperature": [1, 50], "train.epochs": [1]})
    events = list(run.follow_all(_places(runs, tmp_path), jobs=2, device="cpu"))
    assert {event.run for event in events if event.phase == "finished"} == {one.name for one in runs}
    paths = run.sweep(runs, tmp_path, device="cpu")
    assert paths == [tmp_path / one.name for one in runs]
    table = record.load_rows(tmp_path)
    assert set(table["temperature"].to_pylist()) == {1.0, 50.0}


def test_what_a_process_of_a_sweep_warns_of_is_a_warning_of_the_sweep(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = spec.grid(TINY, {"seed": [0, 1], "train.epochs": [1], "train.batch": [10_000]})
    with pytest.warns(UserWarning, match="train.batch=10000 is more than the .* training images"):
        run.sweep(runs, tmp_path, jobs=2, device="cpu")
    assert "Warning" not in capfd.readouterr().err


def test_a_run_that_fails_leaves_the_others_to_be_run_wherever_they_belong(tmp_path: Path) -> None:
    good = spec.replace(TINY, {"train.epochs": 1})
    places = {tmp_path / "a" / "bad": spec.replace(good, {"train.lr": 1e9}), tmp_path / "b" / "good": good}
    with pytest.raises(spec.Failure, match="loss.* try a smaller"):
        list(run.follow_all(places, device="cpu"))
    assert record.load_run(tmp_path / "b" / "good").finished
    kept = record.load_run(tmp_path / "a" / "bad")
    assert not kept.finished
    assert kept.rows.num_rows > 0, "what was measured before is kept"


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_another_process_is_at_is_left_to_it(tmp_path: Path, jobs: int) -> None:
    """So the same sweep can be started on several machines that share a folder."""
    runs = spec.grid(TINY, {"train.temperature": [1, 50, 100], "train.epochs": [1]})
    with record.open_run(tmp_path / runs[1].name, runs[1]):
        events = list(run.follow_all(_places(runs, tmp_path), jobs=jobs, device="cpu"))
    assert [event.run for event in events if event.phase == "elsewhere"] == [runs[1].name]
    assert {event.run for event in events if event.phase == "finished"} == {runs[0].name, runs[2].name}
    assert not (tmp_path / runs[1].name / "rows.log").exists()
    run.sweep(runs, tmp_path, device="cpu")
    assert all(record.load_run(tmp_path / one.name).finished for one in runs)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc to see processes")
def test_closing_a_sweep_ends_its_processes_and_it_goes_on_later(tmp_path: Path) -> None:
    runs = spec.grid(TINY, {"train.temperature": [1, 50], "train.epochs": [2000]})
    before = _children()
    stream = run.follow_all(_places(runs, tmp_path), jobs=2, device="cpu")
    for event in stream:
        if event.phase == "training" and event.step:
            break
    assert len(_children() - before) == 2
    stream.close()
    assert not _children() - before
    assert record.load_run(tmp_path / event.run).rows.num_rows > 0


def _places(runs: list[spec.Run], folder: Path) -> dict[Path, spec.Run]:
    return {folder / one.name: one for one in runs}


def _children() -> set[str]:
    """The processes this one has started that still live."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc to see processes")
def test_a_worker_that_is_killed_is_said_and_the_others_finish(tmp_path: Path) -> None:
    runs = spec.grid(TINY, {"train.temperature": [1, 50], "train.epochs": [60]})
    before = _children()
    stream = run.follow_all(_places(runs, tmp_path), jobs=2, device="cpu")
    next(event for event in stream if event.phase == "training")
    os.kill(int(min(_children() - before)), signal.SIGKILL)
    with pytest.raises(spec.Failure, match="died, exit code -9"):
        list(stream)
    begun = [path for one in runs if ((path := tmp_path / one.name) / "spec.json").exists()]  # the killed one may not be
    assert sum(record.load_run(path).finished for path in begun) == 1
    run.sweep(runs, tmp_path, device="cpu")
    assert all(record.load_run(tmp_path / one.name).finished for one in runs)


def test_a_worker_that_dies_after_its_run_was_finished_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a driver crashes while Python ends."""
    runs = {tmp_path / what.name: what for what in spec.grid(TINY, {"train.temperature": [1, 50]})}
    told = "import os, json; print(json.dumps({'run': 'a', 'phase': 'finished'}), flush=True); os.kill(os.getpid(), 11)"

    def start(*_: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", told], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(several, "_start", start)
    assert [event.phase for event in run.follow_all(runs, jobs=2, device="cpu")] == ["finished"] * 2


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc to see processes")
def test_processes_of_a_sweep_that_was_killed_end_and_their_runs_can_go_on(tmp_path: Path) -> None:
    """In the middle of many steps that they would report nothing of."""
    script = f"""
from pathlib import Path
from thermocline import run, spec
from thermocline.spec import Data, Net, Run, Train
runs = spec.grid({TINY!r}, {{"train.temperature": [1, 50], "train.epochs": [10**7]}})
for event in run.follow_all({{Path("runs") / one.name: one for one in runs}}, jobs=2):
    print(event.phase, flush=True)
"""
    sweep = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert sweep.stdout is not None
    phases = []
    while phases.count("training") < 2:
        phases.append(sweep.stdout.readline().strip())
        assert phases[-1], "it ended by itself"
    workers = Path(f"/proc/{sweep.pid}/task/{sweep.pid}/children").read_text().split()
    assert len(workers) == 2
    sweep.kill()
    sweep.wait()
    sweep.stdout.close()
    try:
        for path in (tmp_path / "runs").iterdir():
            _wait_for(path)
            with record.open_run(path, record.load_run(path).spec) as log:
                assert log.recorded(0)
    finally:
        for one in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(one), signal.SIGKILL)


def _wait_for(path: Path) -> None:
    """Until nobody holds a run directory, or for longer than anyone should."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(record.Busy), record.open_run(path, record.load_run(path).spec):
            return
        time.sleep(0.01)


def test_a_sweep_needs_no_main_guard(tmp_path: Path) -> None:
    script = """
from thermocline import run, spec
base = spec.parse(spec.Run(), ["data.classes=5", "data.train=100", "data.test=50", "net.width=16", "train.epochs=1"])
print(len(run.sweep(spec.grid(base, {"train.temperature": [1, 2]}), "runs", jobs=2, device="cpu")))
"""
    done = subprocess.run([sys.executable, "-"], input=script, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2", done.stderr


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path, jobs: int) -> None:
    runs = spec.grid(TINY, {"seed": [0, 1], "train.epochs": [1]})
    with record.open_run(tmp_path / runs[0].name, runs[0]) as log:
        (log.path / "rows.log").mkdir()
    with pytest.raises(InputError, match="Is a directory"):
        run.sweep(runs, tmp_path, jobs=jobs, device="cpu")
    assert record.load_run(tmp_path / runs[1].name).finished


def test_blowing_up_on_the_last_step_is_divergence_too(tmp_path: Path) -> None:
    what = spec.replace(TINY, {"train.lr": 1e30, "train.epochs": 1, "train.batch": 400, "train.snapshots": 1})
    with pytest.raises(spec.Failure, match=r"at step 1 there are NaN .* try a smaller train.lr"):
        run.run(what, tmp_path / "a", device="cpu")
    with pytest.raises(spec.Failure, match=r"at step 0 there are NaN .*, before anything was trained; try a smaller net.init"):
        run.run(spec.replace(TINY, {"net.init_scale": 1e30}), tmp_path / "b", device="cpu")


def test_running_out_of_memory_is_said(tmp_path: Path) -> None:
    with pytest.raises(spec.Failure, match="out of memory: try a smaller train.batch"):
        run.run(spec.replace(TINY, {"net.width": 1_000_000}), tmp_path / "a", device="cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data.name": "runse"}, "did you mean 'runes'"),
        ({"data.ood": ("digit",)}, "did you mean 'digits'"),
        ({"net.name": "mpl"}, "did you mean 'mlp'"),
        ({"measures": ("ranks",)}, "did you mean 'rank'"),
        ({"measures": ()}, "measures is empty"),
        ({"probes": ()}, "probes is empty"),
        ({"net.name": "resnet8", "net.depth": None, "net.width": None, "train.batch": 1}, "batch normalisation"),
    ],
)
def test_a_wrong_name_fails_before_anything_is_made(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run.run(spec.replace(TINY, change), tmp_path / "a", device="cpu")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_train": np.zeros(40, int), "y_test": np.zeros(40, int)}, "one class"),
        ({"x_train": np.full((40, 8, 8), np.nan)}, "values from nan"),
        ({"x_test": np.zeros((40, 8, 9), np.uint8)}, "must be square"),
        ({"y_test": np.arange(39) % 4}, "40 images but y_test has 39 labels"),
        ({}, "cannot be held: 4 classes"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(tmp_path: Path, change: dict, message: str) -> None:
    images, labels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 4
    np.savez(tmp_path / "mine.npz", **{"x_train": images, "y_train": labels, "x_test": images, "y_test": labels, **change})
    recipe = Train(batch=10, temperature_schedule="hold-entropy", temperature_target=2.0)
    what = Run(Data(f"arrays:{tmp_path / 'mine.npz'}"), Net("mlp", depth=2, width=8), recipe)
    with pytest.raises(InputError, match=message):
        run.run(what, tmp_path / "runs" / "a", device="cpu")
    assert not (tmp_path / "runs").exists()


def test_a_batch_of_more_than_there_is_is_said(tmp_path: Path) -> None:
    what = spec.replace(TINY, {"train.batch": 100_000, "train.snapshots": 1, "measures": ("loss",), "data.ood": ()})
    said = r"^train.batch=100000 is more than the 400 training images: every step takes all of them$"
    with pytest.warns(UserWarning, match=said):
        run.run(what, tmp_path / "a", device="cpu")


def test_other_data_may_be_at_any_path(tmp_path: Path) -> None:
    images, labels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 4
    (tmp_path / "deep").mkdir()
    np.savez(other := tmp_path / "deep" / "test.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    changes = {"data.ood": (f"arrays:{other}",), "train.epochs": 1, "train.snapshots": 1}
    (found,) = report.summary([run.run(spec.replace(TINY, changes), tmp_path / "run", device="cpu")])
    assert set(found.ood_drop) == {f"arrays:{other}"}
    assert set(found.probes) == {"test", f"arrays:{other}"}
    with pytest.raises(InputError, match="cannot be called 'test'"):
        run.check(spec.replace(TINY, {"data.ood": ("test",)}), data_dir=str(tmp_path / "deep"))


def test_why_a_run_stopped_itself_is_kept(tmp_path: Path) -> None:
    what = spec.replace(TINY, {"train.lr": 1e6, "train.epochs": 20, "train.clip": None})
    with pytest.raises(spec.Failure, match="try a smaller train.lr") as error:
        run.run(what, tmp_path / "run")
    assert record.stopped(tmp_path / "run") == str(error.value)
    again = run.follow(what, tmp_path / "run")
    next(event for event in again if event.phase == "training")
    again.close()
    assert not record.stopped(tmp_path / "run"), "it goes on"
    assert not record.stopped(tmp_path / "elsewhere")
    assert not record.stopped(run.run(TINY, tmp_path / "fine"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_said() -> None:
    with pytest.raises(InputError, match="no GPU"):
        run.check(TINY, device="cuda")
    with pytest.raises(InputError, match="did you mean 'cuda'"):
        run.check(TINY, device="cudda")


def test_dear_measures_are_followed_when_asked_for(tmp_path: Path) -> None:
    what = spec.replace(TINY, {"train.epochs": 1, "train.snapshots": 2, "data.ood": ("digits",)})
    for name, follow in (("plain", ()), ("followed", ("alignment", "orthodev"))):
        (folder,) = run.sweep([spec.replace(what, {"follow": follow})], tmp_path / name)
        rows = record.load_rows([folder]).to_pylist()
        for measure in ("alignment", "orthodev"):
            steps = {row["step"] for row in rows if row["measure"] == measure}
            assert steps == ({row["step"] for row in rows} if follow else {max(row["step"] for row in rows)})
    with pytest.raises(InputError, match="follow names orthodev, which measures leaves out"):
        run.check(spec.replace(what, {"measures": ("loss",), "follow": ("orthodev",)}))
    with pytest.raises(InputError, match="orthodef"):
        run.check(spec.replace(what, {"follow": ("orthodef",)}))


def test_confused_classes_have_their_names(tmp_path: Path) -> None:
    gen = np.random.default_rng(0)
    pixels = gen.integers(0, 256, (60, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(60) % 3
    np.savez(tmp_path / "pets.npz", x_train=pixels[:40], y_train=labels[:40], x_test=pixels[40:], y_test=labels[40:],
             names=np.array(["ant", "bee", "cat"]))  # fmt: skip
    what = Run(Data("pets"), Net("mlp", depth=2, width=8), Train(epochs=1, batch=20, snapshots=1), measures=("confusion",))
    made = record.load_run(run.run(what, tmp_path / "run", device="cpu", data_dir=str(tmp_path)))
    assert made.provenance["classes"] == ["ant", "bee", "cat"]
    pairs = [point["pair"] for point in curves.confused(made)]
    assert pairs
    assert all(pair.split(" as ")[0] in ("ant", "bee", "cat") for pair in pairs)
    scanned = tc.scan(
        nets.build(what.net, classes=3, size=8, channels=1), *data.load("pets", data_dir=tmp_path), temperature=1.0
    )
    assert scanned.found.provenance["classes"] == ["ant", "bee", "cat"]
