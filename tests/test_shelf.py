"""Detectors, features and tables go to disk and come back the same; what is not one of them is named."""

import contextlib
import errno
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from detect_cases import NAMES, drawn, every
from safetensors.torch import save_file

from thermocline import detect, shelf
from thermocline.shelf import Features
from thermocline.spec import InputError


@pytest.mark.parametrize("name", NAMES)
def test_a_detector_comes_back_scoring_the_same(gen: torch.Generator, tmp_path: Path, name: str) -> None:
    data = drawn(gen)
    fitted = every(data)[name].fit(data.x, data.logits, data.y)
    shelf.save_detector(fitted, tmp_path / "d.safetensors")
    again = shelf.load_detector(tmp_path / "d.safetensors")
    assert repr(again) == repr(fitted)
    before, after = (one.score(data.test, data.test_logits) for one in (fitted, again))
    torch.testing.assert_close(after, before, rtol=1e-12, atol=1e-12)  # a matrix laid out otherwise is added up otherwise


def test_an_unfitted_detector_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fit"):
        shelf.save_detector(detect.KNN(k=3), tmp_path / "d.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({}, "no detector"),
        ({"detector": "KNN", "settings": "{"}, "not JSON"),
        ({"detector": "NEKO", "settings": "{}"}, "did you mean 'NECO'"),
        ({"detector": "KNN", "settings": json.dumps({"k": 3})}, "lacks bank"),
        ({"detector": "KNN", "settings": json.dumps({"k": "many"})}, "KNN"),
        ({"detector": "MSP", "settings": json.dumps({"temperature": -1})}, "temperature"),
        ({"detector": "MSP", "settings": "[1]"}, "not names and values"),
        ({"detector": "os.system", "settings": json.dumps({"command": "true"})}, "unknown detector"),
    ],
)
def test_files_that_hold_no_detector_say_so(tmp_path: Path, about: dict, message: str) -> None:
    save_file(
        {} if message in ("lacks bank", "temperature") else {"x": torch.zeros(1)}, tmp_path / "d.safetensors", metadata=about
    )
    with pytest.raises(InputError, match=message):
        shelf.load_detector(tmp_path / "d.safetensors")


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    for load in (shelf.load_detector, shelf.load_features):
        with pytest.raises(InputError, match="there is no file"):
            load(tmp_path / "none")
        (tmp_path / "torn").write_bytes(b"PK\x03\x04 torn")
        with pytest.raises(InputError, match="torn"):
            load(tmp_path / "torn")


def test_a_flipped_bit_of_a_detector_is_damage(gen: torch.Generator, tmp_path: Path) -> None:
    """Of a setting, or of a number it learned; the format itself notices neither, and it would score otherwise."""
    data, file = drawn(gen), tmp_path / "d.safetensors"
    shelf.save_detector(detect.KNN(k=3).fit(data.x, data.logits, data.y), file)
    content = file.read_bytes()
    for at in (content.index(b"k") + len('k\\": '), len(content) - 40):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(InputError, match="its checksum does not match"):
            shelf.load_detector(file)


def test_a_detector_of_an_earlier_version_has_no_checksum(tmp_path: Path) -> None:
    save_file({}, tmp_path / "d.safetensors", metadata={"detector": "MSP", "settings": json.dumps({"temperature": 2.0})})
    assert repr(shelf.load_detector(tmp_path / "d.safetensors")) == "MSP(temperature=2.0)"


def test_features_that_cannot_be_written_leave_those_of_before(
    gen: torch.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, file = drawn(gen), tmp_path / "f.npz"
    shelf.save_features(Features(data.x, data.logits), file)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        shelf.save_features(Features(data.x + 1, data.logits), file)
    assert torch.equal(shelf.load_features(file).features, data.x)


def test_features_with_a_flipped_bit_anywhere_are_read_or_named(gen: torch.Generator, tmp_path: Path) -> None:
    data, file = drawn(gen), tmp_path / "f.npz"
    shelf.save_features(Features(data.x[:2], data.logits[:2]), file)
    content = file.read_bytes()
    for at in range(0, len(content), 3):
        file.write_bytes(content[:at] + bytes([content[at] ^ 8]) + content[at + 1 :])
        with contextlib.suppress(InputError):
            shelf.load_features(file)


def test_features_come_back(gen: torch.Generator, tmp_path: Path) -> None:
    data = drawn(gen)
    whole = Features(data.x, data.logits, data.y, data.weight, data.bias, torch.tensor(5.0))
    shelf.save_features(whole, tmp_path / "f.npz")
    again = shelf.load_features(tmp_path / "f.npz")
    assert all(torch.equal(one, other) for one, other in zip(whole, again))
    shelf.save_features(Features(data.x.bfloat16(), data.logits), tmp_path / "f.npz")
    assert torch.equal(shelf.load_features(tmp_path / "f.npz").features, data.x.bfloat16().float())


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.zeros((3, 2))}, "no array 'logits'"),
        ({"features": np.zeros((3, 2)), "logits": np.zeros((4, 2))}, "equally many"),
        ({"features": np.zeros((3, 2), int), "logits": np.zeros((3, 2))}, "features must be floats"),
        ({"features": np.zeros((0, 2)), "logits": np.zeros((0, 2))}, "features must be floats"),
        ({"features": np.zeros((3, 2)), "logits": np.zeros((3, 2)), "labels": np.zeros(3)}, "whole numbers"),
        ({"features": np.zeros((3, 2)), "logits": np.zeros((3, 2)), "temperature": np.ones(2)}, "one number above 0"),
        ({"features": np.array([object()] * 3), "logits": np.zeros((3, 2))}, "cannot be read"),
    ],
)
def test_arrays_that_are_no_features_say_so(tmp_path: Path, arrays: dict, message: str) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(InputError, match=message):
        shelf.load_features(tmp_path / "f.npz")


def test_tables_are_written_by_suffix(tmp_path: Path) -> None:
    table = pa.table({"index": [0, 1], "score": [0.5, 1.0]})
    for name in ("t.csv", "t.parquet"):
        shelf.save_table(table, tmp_path / name)
    assert pyarrow.csv.read_csv(tmp_path / "t.csv").equals(table)
    assert pq.read_table(tmp_path / "t.parquet").equals(table)
    with pytest.raises(InputError, match=".csv or .parquet"):
        shelf.save_table(table, tmp_path / "t.xlsx")
