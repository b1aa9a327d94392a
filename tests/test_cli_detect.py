"""`thermocline detect` from a run to a table, and what it says to typos and wrong files."""

import shutil
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import thermocline
from test_cli import TINY

from thermocline.record import load_run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and the features of its training data, its test data and other data."""
    folder = tmp_path_factory.mktemp("detect")
    thermocline("train", "--ood", "digits", "--temperature", "3", *TINY, "--out", "run", cwd=folder)
    for name, words in {"train": [], "test": ["--split", "test"], "digits": ["--data", "digits", "--split", "test"]}.items():
        thermocline("detect", "features", "run", *words, "-o", f"{name}.npz", "--device", "cpu", cwd=folder)
    return folder


def test_a_run_is_screened_as_its_scan_was(place: Path) -> None:
    printed = thermocline("detect", "fit", "neco", "train.npz", "-o", "neco.safetensors", cwd=place)
    assert "NECO(dim=0.9, logit_factor=False): neco.safetensors" in printed
    printed = thermocline(
        "detect", "eval", "neco.safetensors", "--id", "test.npz", "--ood", "digits.npz", "-o", "m.csv", cwd=place
    )
    assert "AUROC" in printed
    (row,) = pyarrow.csv.read_csv(place / "m.csv").to_pylist()
    rows = load_run(place / "run").rows.to_pylist()
    last = max(row["step"] for row in rows)
    (scanned,) = (
        one["value"] for one in rows
        if (one["step"], one["measure"], one["params"]) == (last, "auroc", "detector=neco,dim=0.9")
    )  # fmt: skip
    assert row["auroc"] == pytest.approx(scanned, abs=1e-6)
    same = [["neco", "--set", "logit_factor=true"], ["NECO-MaxLogit"]]
    for words in same:
        printed = thermocline("detect", "fit", *words, "train.npz", "-o", "n.safetensors", cwd=place)
        assert "NECO(dim=0.9, logit_factor=True): n.safetensors" in printed
    (place / ("a folder of detectors with a long name")).mkdir()
    shutil.copy(place / "n.safetensors", place / "a folder of detectors with a long name" / "n.safetensors")
    both = ["a folder of detectors with a long name/n.safetensors", "neco.safetensors"]
    printed = thermocline("detect", "eval", *both, "--id", "test.npz", "--ood", "digits.npz", "-o", "both.csv", cwd=place)
    assert all(name in printed for name in both)
    many = pyarrow.csv.read_csv(place / "both.csv").to_pylist()
    assert [one["detector"] for one in many] == both
    assert many[1] == row
    assert "temperature=3.0" in thermocline("detect", "fit", "msp", "train.npz", "-o", "msp.safetensors", cwd=place)
    thermocline("detect", "score", "msp.safetensors", "digits.npz", "-o", "s.parquet", cwd=place)
    assert pq.read_table(place / "s.parquet").column_names == ["index", "score"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "knn", "train.npz", "-o", "x"], "KNN needs --set k=..., which papers choose differently; scans take 50"),
        (["fit", "neco-maxlogit", "train.npz", "--set", "logit_factor=false", "-o", "x"], "--set names logit_factor twice"),
        (["fit", "knn", "train.npz", "--set", "k=100000", "-o", "x"], "100000"),
        (
            ["fit", "msp", "train.npz", "--temperature", "2", "--set", "temperature=3", "-o", "x"],
            "--temperature and --set both name temperature",
        ),
        (["fit", "knn", "none.npz", "-o", "x"], "there is no file none.npz"),
        (["score", "train.npz", "train.npz", "-o", "s.csv"], "train.npz is no .safetensors file"),
        (["score", "neco.safetensors", "train.npz", "-o", "s.txt"], "written as .csv or .parquet"),
        (["features", "run", "--data", "digitz", "-o", "x.npz"], "did you mean 'digits'?"),
        (["features", "run", "--split", "half", "-o", "x.npz"], "takes train or test"),
        (["features", "run", "-o", "/proc/x.npz"], "nothing can be written in /proc"),
        (["features", "run", "-o", "none/x.npz"], "there is no folder none"),
        (["features", "nonsense", "-o", "x.npz"], "there is no run directory nonsense, and it is not MODULE:CALLABLE"),
        (["features", "non:sense", "-o", "x.npz"], "name the data"),
        (["features", "run", "--inputs", "unit", "-o", "x.npz"], "a run directory knows them"),
        (["fit", "msp", "train.npz", "--temperature", "0", "-o", "x"], "temperature"),
    ],
)
def test_bad_input_is_one_line(place: Path, words: list[str], message: str) -> None:
    printed = thermocline("detect", *words, "--device", "cpu", cwd=place, code=2)
    assert message in printed
    assert printed.count("error:") == 1
    assert not (place / "x").exists()
