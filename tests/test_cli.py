"""The command line as a user meets it: in a process of its own, with typos, missing files and bad data."""

import functools
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import thermocline
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from thermocline import __version__, record
from thermocline.record import load_runs
from thermocline.report import summary

TINY = [
    *(w for s in ("data.classes=5", "data.train=100", "data.test=50", "net.depth=3", "net.width=16", "train.epochs=2",
                  "train.snapshots=2") for w in ("--set", s)),
    "--device", "cpu",
]  # fmt: skip


def test_train_then_report_then_again(tmp_path: Path) -> None:
    printed = thermocline("train", "--ood", "digits", "--temperature", "3", *TINY, "--out", "mine", cwd=tmp_path)
    assert "report: mine/report.html" in printed
    assert "Effective depth" in printed
    again = thermocline("train", "--ood", "digits", "--temperature", "3", *TINY, "--out", "mine", cwd=tmp_path)
    assert "report: mine/report.html" in again
    printed = thermocline("report", "mine", "-o", "page.html", "--figures", "figures", cwd=tmp_path)
    assert (tmp_path / "page.html").stat().st_size > 100_000
    assert list((tmp_path / "figures").glob("*.svg"))
    other = thermocline("train", "--ood", "digits", "--temperature", "4", *TINY, "--out", "mine", cwd=tmp_path, code=2)
    assert "its train.temperature is 3.0, this one's is 4.0" in other


def test_sweep_compares(tmp_path: Path) -> None:
    which = ["--data", "digits", "--ood", "runes:1", "--net", "mlp"]
    words = [*which, *TINY, "--over", "train.temperature=1,20", "--out", "runs"]
    printed = thermocline("sweep", *words, cwd=tmp_path)
    assert "mlp on digits" in printed
    assert "T = 20" in printed
    assert "which setting to take: thermocline advise runs" in printed
    runs = [file.parent for file in (tmp_path / "runs").glob("*/rows.parquet")]
    assert [record.load_run(run).spec.data.ood for run in runs] == [("runes:1",)] * 2
    said = thermocline("sweep", *words, "--device", "gpu", cwd=tmp_path, code=2)
    assert said.count("\n") == 1, "without a report of what is there"
    (runs[0] / "rows.parquet").unlink()
    with record.open_run(runs[0], record.load_run(runs[0]).spec):  # as another process would
        said = " ".join(thermocline("sweep", *words, cwd=tmp_path).split())
    assert "1 run was left to another process that is at it; once that is done, the same command shows all" in said


def test_what_finished_of_a_failed_sweep_is_reported(tmp_path: Path) -> None:
    printed = thermocline("sweep", *TINY, "--over", "train.lr=0.1,1e9", "--out", "runs", cwd=tmp_path, code=1)
    assert "report: runs/report.html" in printed
    assert "try a smaller train.lr" in printed
    assert "error: runes-mlp-T1-s0-" in printed


def test_the_demo_shows_the_effect(tmp_path: Path) -> None:
    """Both nets fit, and heat lowers rank and depth and raises the OOD drop, as the README says."""
    printed = thermocline("demo", "--out", "here", cwd=tmp_path)
    assert "report: here/report.html" in printed
    cold, hot = sorted(summary(load_runs(tmp_path / "here")), key=lambda one: one.temperature)
    assert min(cold.train_accuracy, hot.train_accuracy) > 0.99
    assert hot.solution_rank < 0.5 * cold.solution_rank
    assert hot.effective_depth < cold.effective_depth
    assert all(hot.ood_drop[name] > cold.ood_drop[name] for name in ("runes:1", "digits"))


def test_the_version_is_told(tmp_path: Path) -> None:
    assert thermocline("--version", cwd=tmp_path) == f"thermocline {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--data", "runse"], "unknown data set 'runse'; did you mean 'runes'?"),
        (["train", "--set", "train.temprature=3"], "unknown setting 'train.temprature'; did you mean 'train.temperature'?"),
        (["train", "--temperature", "-1"], "temperature must be above 0"),
        (["train", "--data", "arrays:nowhere.npz"], "nowhere.npz"),
        (["train", "--data", "arrays:text.npz"], "text.npz"),
        (["train", "--data", "arrays:labels.npz"], "label"),
        (["train", "--data", "folder:empty"], "empty"),
        (["train", "--data", "folder:single"], "class"),
        (["train", "--data", "cifar10"], "--data-dir"),
        (["train", "--data", "cifar10", "--data-dir", "empty"], "cifar10.npz"),
        (["train", "--out", "text.npz/run"], "text.npz"),
        (["train", "--out", "busy"], "precious.txt"),
        (["train", "--ood", "runes"], "runes is the training data, and cannot be other data too"),
        (["train", "--ood", "runes:0"], "runes is the training data, and cannot be other data too"),
        (["train", "--ood", "digits", "--ood", "digits"], "digits is named twice"),
        (["train", "--ood", "runes:1", "--ood", "runes:01"], "runes:1 is named twice"),
        (["train", "--device", "gpu"], "did you mean 'cuda'"),
        (["sweep", "--epochs", "3"], "sweep has no --epochs: write --over train.epochs=a,b,c to try several, --set"),
        (["sweep", "--temperature=10"], "write --over train.temperature=a,b,c to try several"),
        (["sweep", "demoo"], "did you mean 'demo'"),
        (["sweep", "--over", "train.lr"], "names no values"),
        (
            ["sweep", "--over", "seed=0", "--over", "seed=1"],
            "--over names seed twice; write all of its values at once, seed=a,b,c",
        ),
        (
            ["sweep", "--over", "train.temperature=1,2", "--set", "train.temperature=3"],
            "--over and --set both name train.temperature; leave one of them out",
        ),
        (["sweep", "--data", "digits", "--over", "data.name=runes,digits"], "--data and --over both name data.name"),
        (["train", "--temperature", "1", "--set", "train.temperature=7"], "--temperature and --set both name train."),
        (["train", "--seed", "3", "--set", "seed = 4"], "--seed and --set both name seed"),
        (["train", "--set", "seed=1", "--set", "seed=2"], "--set names seed twice; leave one of them out"),
        (["train", "--data", "digits", "--set", "data.name=runes"], "--data and --set both name data.name"),
        (["sweep", "--over", "train.temperature=1,2", "--jobs", "2", "--out", "text.npz/runs"], "cannot write"),
        (["train", "--device", "meta"], "unknown device 'meta'"),
        (["report", "nowhere"], "no run directory at nowhere"),
        (["report", "busy"], "busy is not a run directory"),
        (["list", "netz"], "did you mean 'nets'"),
        (["bench", "mesure"], "did you mean 'measure'"),
        (["reproduce", "table1/cifar100-resnet81"], "did you mean 'table1/cifar100-resnet18'"),
        (["reproduce", "demo"], "makes no claim"),
        (["sweep", "figure6"], "trains nothing"),
        (["trian"], "Did you mean 'train'?"),
        (["train", "--temprature", "3"], "--temperature"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "text.npz").write_text("not an array")
    (tmp_path / "empty").mkdir()
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "precious.txt").write_text("kept")
    (tmp_path / "single" / "cats").mkdir(parents=True)
    Image.new("L", (16, 16), 90).save(tmp_path / "single" / "cats" / "1.png")
    images, labels = np.arange(10 * 256, dtype=np.uint8).reshape(10, 16, 16), np.arange(10) % 2
    arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    np.savez(tmp_path / "labels.npz", **{**arrays, "y_test": labels + 7})
    printed = thermocline(
        *words, *(["--device", "cpu"] if words[0] == "train" and "--device" not in words else []), cwd=tmp_path, code=2
    )
    assert message in " ".join(printed.split())
    ours = [line for line in printed.splitlines() if line.startswith("error:")]
    assert len(ours) == 1 or "Usage:" in printed
    assert (tmp_path / "busy" / "precious.txt").read_text() == "kept"


def test_divergence_is_said_and_keeps_the_rows(tmp_path: Path) -> None:
    printed = thermocline("train", *TINY, "--set", "train.lr=1e9", "--out", "hot", cwd=tmp_path, code=1)
    assert "try a smaller train.lr" in printed
    assert (tmp_path / "hot" / "rows.log").stat().st_size > 0


MINE = """
from torch import nn
def net(): return nn.Sequential(nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 10))
number = 3
made = net()
def text(): return "no net"
"""


def test_scan_of_a_model_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    words = ["scan", "mine:net", "--data", "arrays:small.npz", "--ood", "digits", "--device", "cpu", "--inputs", "unit"]
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (60, 16, 16), dtype=np.uint8), np.arange(60) % 10
    np.savez(tmp_path / "small.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    printed = thermocline(*words, "--seed", "4", cwd=tmp_path)
    assert "report: scan/report.html" in printed
    assert "layers, in order of depth: 1, 3" in printed
    assert "Effective depth" in printed
    assert json.loads((tmp_path / "scan" / "spec.json").read_text())["seed"] == 4
    assert "images were shown as unit: pixels in [0, 1]; 16 x 16 pixels, grey" in printed
    assert "holds an earlier scan" in thermocline(*words, cwd=tmp_path, code=2)
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "precious.txt").write_text("kept")
    for place, message in {
        "/proc/x": "nothing can be written in /proc",
        "busy": "busy holds 'precious.txt'",
        "small.npz/x": "small.npz is a file",
    }.items():
        said = thermocline(*words[:2], *words[4:], "--data", "arrays:unread", "--out", place, cwd=tmp_path, code=2)
        assert message in said, "before any data are read"
    words += ["--out", "second"]
    for model, message in {
        "mine:nett": "did you mean 'net'?",
        "yours:net": "no module 'yours'",
        "mine.py:net": "names a file: write mine:net",
        "nets/mine.py:net": "names a file: write nets.mine:net",
        "./nets/mine:net": "names a file: write nets.mine:net",
        "../mine.py:net": "names a file: write mine:net, as Python imports it, in its folder",
        "mine": "not MODULE:CALLABLE",
        "mine:number": "is a int",
        "mine:made": "is a Sequential: name a class or a function that gives the model",
        "mine:text": "gives a str",
    }.items():
        assert message in " ".join(thermocline("scan", model, *words[2:], cwd=tmp_path, code=2).split())


KNOWN = """
import torch
from torch import nn
class Threshold(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(CHANNELS, 2)
        nn.init.constant_(self.head.weight, 1.0 / CHANNELS)
        self.head.weight.data[0] = 0.0
        self.head.bias.data = torch.tensor([0.0, -LEVEL])
    def forward(self, x): return self.head(x.mean((2, 3)))
"""


def test_images_are_shown_at_the_size_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(
        "from torch import nn\ndef net(): return nn.Sequential(nn.Flatten(), nn.Linear(192, 2))\n"
    )
    pixels = np.random.default_rng(0).integers(0, 256, (16, 12, 12, 3), dtype=np.uint8)
    for index, image in enumerate(pixels):
        for place in (tmp_path / "all" / "ab"[index % 2], tmp_path / "flat"):
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{index}.png")
    words = ["small:net", "--data", "folder:all", "--inputs", "unit", "--device", "cpu"]
    assert "small:net does not take images of folder:all, (8, 3, 12, 12)" in thermocline("scan", *words, cwd=tmp_path, code=2)
    assert "; 8 x 8 pixels, RGB" in thermocline("scan", *words, "--size", "8", "--ood", "folder:flat", cwd=tmp_path)
    words = ["detect", "features", *words, "--size", "8", "-o", "f.npz", "--data"]
    for more in (
        ["folder:all"],
        ["folder:flat", "--split", "test"],
        ["folder:flat", "--split", "test", "--like", "folder:all"],
    ):
        assert "shown as unit, 8 x 8 pixels, RGB" in thermocline(*words, *more, cwd=tmp_path)


@pytest.mark.parametrize(("inputs", "level"), [("unit", 0.6), ("imagenet", 0.68), ("standardised", 0.0)])
def test_a_net_is_shown_images_as_it_was_trained_on_them(tmp_path: Path, inputs: str, level: float) -> None:
    """Classes are told apart at a brightness of 0.6, which is another number in each way of seeing."""
    (tmp_path / "known.py").write_text(KNOWN.replace("CHANNELS", "3").replace("LEVEL", str(level)))
    values = np.concatenate([np.arange(100, 150), np.arange(160, 210)]).astype(np.uint8)
    images, labels = values[:, None, None, None].repeat(8, 1).repeat(8, 2).repeat(3, 3), np.arange(100) // 50
    np.savez(tmp_path / "grey.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    np.savez(tmp_path / "dark.npz", x_train=images // 2, y_train=labels, x_test=images // 2, y_test=labels)
    words = ["scan", "known:Threshold", "--data", "arrays:grey.npz", "--device", "cpu"]
    thermocline(*words, "--inputs", inputs, cwd=tmp_path)
    (found,) = load_runs(tmp_path / "scan")
    assert summary([found])[0].test_accuracy == 1
    like = ["--like", "arrays:grey.npz", "--inputs", inputs, "--device", "cpu", "-o", "f.npz"]
    printed = thermocline("detect", "features", "known:Threshold", "--data", "arrays:dark.npz", *like, cwd=tmp_path)
    assert f"100 samples of arrays:dark.npz (train), shown as {inputs}, 8 x 8 pixels, RGB, 3 features" in printed
    assert "head's weight" not in printed
    assert not np.load(tmp_path / "f.npz")["logits"].argmax(1).any(), "by the statistics of grey.npz, all of it is dark"


def test_features_without_a_linear_head_say_which_detectors_they_do_without(tmp_path: Path) -> None:
    known = KNOWN.replace("CHANNELS", "3").replace("LEVEL", "0.6").replace("x.mean((2, 3)))", "x.mean((2, 3))).mul_(0.5)")
    (tmp_path / "known.py").write_text(known)
    images, labels = np.arange(100, 160, dtype=np.uint8)[:, None, None, None].repeat(3, 3), np.arange(60) % 2
    np.savez(tmp_path / "grey.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    words = ["--data", "arrays:grey.npz", "--inputs", "unit", "--device", "cpu", "-o", "f.npz"]
    printed = thermocline("detect", "features", "known:Threshold", *words, cwd=tmp_path)
    assert "without the head's weight, so no residual, vim, react, ash, nci: the head is" in " ".join(printed.split())
    assert "weight" not in np.load(tmp_path / "f.npz")


OTHERS = """
import torch
from torch import nn
class Needs(nn.Module):
    def __init__(self, width): super().__init__()
def broken():
    return nn.Linear(2, missing)
def colour(): return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(784, 10))
def words(): return nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 10))
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(256, 10)
    def forward(self, x):
        raise ValueError("not\\nthis way")
class Parts(Own):
    def forward(self, x): return {"scores": self.head(x.flatten(1))}
"""


def test_what_a_model_of_ones_own_raises_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "others.py").write_text(OTHERS)
    (tmp_path / "torn.py").write_text("import torch\n1 / 0\n")
    (tmp_path / "lacking.py").write_text("import torch\nimport timmm\n")
    options = ["--inputs", "unit", "--device", "cpu"]
    shown = "images of runes, (8, 1, 16, 16) float32"
    for model, message in {
        "torn:net": "importing torn fails at torn.py:2: ZeroDivisionError: division by zero",
        "lacking:net": "importing lacking fails at lacking.py:2: ModuleNotFoundError: No module named 'timmm'",
        "others:Parts": "returns a dict, not (samples, classes) logits: let others:Parts give a module that returns the logits",
        "others:Needs": "'width': it is called without arguments; name a function that fills them in",
        "others:broken": "others:broken() fails at others.py:7: NameError: name 'missing' is not defined",
        "others:colour": f"others:colour does not take {shown}: RuntimeError: Given groups=1, weight of size [4, 3, 3, 3]",
        "others:words": f"others:words does not take {shown}: RuntimeError: Expected tensor for argument #1 'indices'",
        "others:Own": f"others:Own does not take {shown} at others.py:15: ValueError: not",
    }.items():
        said = thermocline("scan", model, "--data", "runes", *options, cwd=tmp_path, code=2)
        assert message in said
        assert ("these images are grey: if it takes RGB" in said) is ("does not take" in message)
        assert said.count("\n") == 1
    features = ["detect", "features", "others:words", "--data", "runes", "-o", "x.npz", *options]
    assert f"others:words does not take {shown}" in thermocline(*features, cwd=tmp_path, code=2)


def test_weights_are_read_in_the_forms_people_have(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    with torch.random.fork_rng(devices=[]):
        net = nn.Sequential(nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 10))
    nn.init.constant_(net[3].weight, 0.0)
    nn.init.constant_(net[3].bias, 7.0)
    state = net.state_dict()
    save_file(state, tmp_path / "w.safetensors")
    for name, saved in {
        "bare.pt": state,
        "lightning.ckpt": {"epoch": 3, "state_dict": state},
        "parallel.pth": {"model": {f"module.{name}": value for name, value in state.items()}, "best": 0.5},
        "hub.bin": OrderedDict(state),
        "held.ckpt": {"state_dict": {f"model.{name}": value for name, value in state.items()}},
        "net.pt": net,
        "list.pt": [1, 2],
        "extra.pt": {"state_dict": {**state, "4.weight": torch.zeros(1), "5.weight": torch.zeros(1)}},
        "lacking.pt": {name: value for name, value in state.items() if "1" not in name},
        "other.pt": {**state, "3.weight": torch.zeros(10, 31)},
    }.items():
        torch.save(saved, tmp_path / name)
    (tmp_path / "torn.safetensors").write_bytes(b"nothing")
    (tmp_path / "torn.pt").write_bytes(b"nothing")
    (tmp_path / "pickled.pt").write_bytes(pickle.dumps(net, protocol=4))
    images, labels = np.arange(20 * 256, dtype=np.uint16).reshape(20, 16, 16).astype(np.uint8), np.arange(20) % 10
    np.savez(tmp_path / "small.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    words = ["detect", "features", "mine:net", "--data", "arrays:small.npz", "--split", "test", "--inputs", "unit"]
    words += ["-o", "x.npz", "--device", "cpu", "--weights"]
    for name in ("w.safetensors", "bare.pt", "lightning.ckpt", "parallel.pth", "hub.bin", "held.ckpt"):
        thermocline(*words, name, cwd=tmp_path)
        assert (np.load(tmp_path / "x.npz")["logits"] == 7).all()
    for name, message in {
        "net.pt": "holds more than tensors; save the weights alone, with torch.save(model.state_dict(), FILE)",
        "torn.pt": "does not load as weights",
        "pickled.pt": "does not load as weights",
        "torn.safetensors": "does not load as weights",
        "list.pt": "holds no weights, but a list",
        "none.pt": "there is no file none.pt",
        "extra.pt": "does not fit mine:net. it has too many: 4.weight, 5.weight",
        "lacking.pt": "it lacks: 1.weight, 1.bias",
        "other.pt": "of another shape: 3.weight",
    }.items():
        said = thermocline(*words, name, cwd=tmp_path, code=2)
        assert message in said
        assert said.count("\n") == 1


def test_what_can_be_refused_before_images_are_read_is(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    for number in range(8):  # found to be damaged once they are read
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"no image")
    words = ["mine:net", "--data", "folder:photos", "--inputs", "unit", "--device", "cpu"]
    for verb in (["scan"], ["detect", "features", "-o", "x.npz"]):
        assert "cannot be read as an image" in thermocline(*verb, *words, cwd=tmp_path, code=2)
        assert "there is no file w.pt" in thermocline(*verb, *words, "--weights", "w.pt", cwd=tmp_path, code=2)
        assert "gives a str" in thermocline(*verb, "mine:text", *words[1:], cwd=tmp_path, code=2)
    for option, value, message in (
        ("--ood", "folder:photo", "photo does not exist"),
        ("--ood", "arrays:photo.npz", "photo.npz does not exist"),
        ("--probe", "logit", "did you mean 'logistic'?"),
        ("--temperature", "0", "temperature must be above 0"),
    ):
        assert message in thermocline("scan", *words, option, value, cwd=tmp_path, code=2)


def test_other_data_may_be_a_test_set_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (60, 16, 16), dtype=np.uint8), np.arange(60) % 10
    np.savez(tmp_path / "small.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    np.savez(tmp_path / "other.npz", x_test=images // 2)
    (tmp_path / "flat").mkdir()
    for number, image in enumerate(images[:20]):
        Image.fromarray(image).save(tmp_path / "flat" / f"{number}.png")
    ood = [word for name in ("arrays:other.npz", "folder:flat", "digits") for word in ("--ood", name)]
    words = ["mine:net", "--inputs", "unit", "--device", "cpu"]
    printed = thermocline("scan", *words, "--data", "arrays:small.npz", *ood, cwd=tmp_path)
    assert "folder:flat has no labelled training images: detection only" in printed
    (found,) = summary(load_runs(tmp_path / "scan"))
    assert set(found.ood_drop) == {"digits"}
    assert {name for name, _ in found.auroc} == {"arrays:other.npz", "folder:flat", "digits"}
    for name, more in {"arrays:other.npz": [], "folder:flat": ["--like", "arrays:small.npz"]}.items():
        reading = ["--data", name, *more, "--split", "test", "-o", "x.npz"]
        assert f"of {name} (test)" in thermocline("detect", "features", *words, *reading, cwd=tmp_path)
        assert "labels" not in np.load(tmp_path / "x.npz").files
    reading[reading.index("test")] = "train"
    assert "flat has no class folders" in thermocline("detect", "features", *words, *reading, cwd=tmp_path, code=2)


def test_images_that_are_not_square_are_cut_aloud_and_not_for_a_net_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    generator = np.random.default_rng(0)
    for number in range(20):
        path = tmp_path / "wide" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (16, 30), dtype=np.uint8)).save(path)
    cut = "folder:wide: images of 30 x 16 pixels are cut to their middle 16 x 16"
    words = ["mine:net", "--inputs", "unit", "--device", "cpu"]
    for verb in (["scan"], ["detect", "features", "-o", "x.npz"]):
        said = thermocline(*verb, *words, "--data", "folder:wide", cwd=tmp_path, code=2)
        assert cut in said
        assert "thermocline.scan takes images of any shape" in said
        assert said.count("\n") == 1
    other = ["detect", "features", *words, "--like", "digits", "--data", "folder:wide", "-o", "x.npz"]
    (tmp_path / "mine.py").write_text(MINE.replace("256", "64"))
    assert f"warning: {cut}" in thermocline(*other, cwd=tmp_path)
    sized = [word for one in ("net.depth=3", "net.width=16", "train.epochs=1") for word in ("--set", one)]
    said = thermocline("train", "--data", "folder:wide", *sized, "--device", "cpu", "--out", "mine", cwd=tmp_path)
    assert said.count(f"warning: {cut}") == 1


def test_how_a_model_sees_images_must_be_said(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    for verb in (["scan"], ["detect", "features", "-o", "x.npz"]):
        said = thermocline(*verb, "mine:net", "--data", "runes", "--device", "cpu", cwd=tmp_path, code=2)
        for words in ("--inputs", "standardised: by the mean and std", "unit: pixels in [0, 1]", "ImageNet's mean"):
            assert words in said
        said = thermocline(*verb, "mine:net", "--data", "runes", "--inputs", "untit", cwd=tmp_path, code=2)
        assert "unknown --inputs 'untit'; did you mean 'unit'?" in said
    words = ["detect", "features", "mine:net", "--data", "runes", "-o", "x.npz", "--inputs"]
    assert "name them with --like NAME" in thermocline(*words, "standardised", cwd=tmp_path, code=2)
    assert "runes is grey" in thermocline(*words, "imagenet", "--device", "cpu", cwd=tmp_path, code=2)
    assert not (tmp_path / "x.npz").exists()


@pytest.mark.parametrize("verb", [["train"], ["sweep", "--over", "train.temperature=1,2", "--jobs", "2"]])
def test_ctrl_c_leaves_a_run_that_goes_on(tmp_path: Path, verb: list[str]) -> None:
    words = [*verb, *TINY, "--out", "runs"]
    words[words.index("train.epochs=2")] = "train.epochs=100000"
    # Started from a shell's background, this process and its children would ignore the signal.
    heeding = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "preexec_fn": heeding}
    with subprocess.Popen([sys.executable, "-m", "thermocline", *words], cwd=tmp_path, **pipes) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.rglob("rows.log")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        try:
            printed = "".join(process.communicate(timeout=120))
        finally:
            process.kill()
    assert process.returncode == 130, printed
    assert "the same command goes on from there" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("verb", ["scan", "detect features"])
def test_ctrl_c_says_that_nothing_was_written(tmp_path: Path, verb: str) -> None:
    cut = "class Net(torch.nn.Linear):\n    def forward(self, images): raise KeyboardInterrupt\n"
    (tmp_path / "cut.py").write_text(f"import torch\n\n{cut}\ndef net(): return Net(64, 10)\n")
    words = [*verb.split(), "cut:net", "--data", "digits", "--inputs", "unit", "--out", "there"]
    assert "interrupted; nothing was written" in thermocline(*words, cwd=tmp_path, code=130)
    assert not (tmp_path / "there").exists()


def test_lists_name_everything(tmp_path: Path) -> None:
    printed = thermocline("list", cwd=tmp_path)
    for word in ("runes:SEED", "resnet18", "effective_depth", "train.temperature", "table1/cifar100-resnet18", "scan-hooks"):
        assert word in printed
    printed = " ".join(thermocline("list", "detectors", cwd=tmp_path).split())
    assert "neco-maxlogit the same as neco with --set logit_factor=true reads features, logits" in printed
    assert "reads features; settings: k (must be given, e.g. 50)" in printed


def test_experiments_are_counted_where_their_results_are(tmp_path: Path) -> None:
    said = thermocline("list", "experiments", cwd=tmp_path)
    assert "none counts as run, since there is no folder results: give --results DIR" in said
    results = Path(__file__).parents[1] / "results"
    said = thermocline("list", "experiments", "--results", str(results), cwd=tmp_path)
    assert "none counts as run" not in said
    assert "run: 6 of 6" in " ".join(said.split())


def test_reproduce_reads_what_is_there(tmp_path: Path) -> None:
    """Without data or GPU: a comparison from the committed rows, in a folder that is none of the repository's."""
    home = Path(__file__).parents[1] / "results" / "table1" / "cifar100-resnet18"
    shutil.copytree(home, tmp_path / "results" / "table1" / "cifar100-resnet18")
    printed = thermocline("reproduce", "table1/cifar100-resnet18", "--report", cwd=tmp_path)
    for words in ("effective depth", "0.19", "all verdicts: results/reproduction.md", "seeds 0-2"):
        assert words in printed
    page = (tmp_path / "results" / "table1" / "cifar100-resnet18" / "README.md").read_text()
    assert "TF32" in page, "notes are kept"
    again = thermocline("reproduce", "table1/cifar100-resnet18", "--device", "cpu", cwd=tmp_path)
    assert "--data-dir" in again or "missing" not in again
    assert "table3/cifar10-vgg19: 6 runs are not made here" in thermocline(
        "reproduce", "table3", "--device", "cpu", cwd=tmp_path
    )
    told = thermocline("reproduce", "table3/cifar10-vgg19", "--data-dir", ".", cwd=tmp_path)
    assert "there is no GPU here" in told
    assert "; and the data directory . has no cifar10" in told, "both things that are in the way"
    for wrong, words in (
        (("--report", "--results", "nowhere"), "there is no folder nowhere to report on"),
        (("--data-dir", "nowhere"), "there is no folder nowhere to read data from"),
        (("--device", "cud"), "unknown device 'cud'"),
    ):
        assert words in thermocline("reproduce", "table1/runes-mlp", *wrong, cwd=tmp_path, code=2)
    assert not (tmp_path / "nowhere").exists()


def test_letters_that_a_terminal_lacks_end_no_command(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    words, plain = (
        [sys.executable, "-m", "thermocline", "reproduce", "figure6", "--report"],
        {**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    done = subprocess.run(words, cwd=tmp_path, env=plain, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "?" in done.stdout
    assert "all verdicts: " in done.stdout


def test_help_is_quick_and_light(tmp_path: Path) -> None:
    """The half second of the design is kept by not importing the slow things; the clock itself is printed, not asserted."""
    began = time.monotonic()
    printed = thermocline("--help", cwd=tmp_path)
    print(f"--help took {time.monotonic() - began:.2f} s")
    for verb in ("demo", "train", "sweep", "scan", "report", "advise", "tradeoff", "detect", "reproduce", "bench", "list"):
        assert verb in printed
    code = "import sys, thermocline.cli; assert not {'torch', 'pyarrow', 'altair', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    report = "from thermocline.cli import reproduce; reproduce.reproduce(['figure6'], report=True)"
    (tmp_path / "results").mkdir()
    code = f"import sys; {report}; assert 'pyarrow' in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
