"""Long tails and false labels: as many as was asked, always the same, and never in the test split."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thermocline import data, run, spec
from thermocline.data import sources, tampering
from thermocline.spec import InputError

RUNES = {"classes": 10, "train": 1000, "test": 100}


@given(st.lists(st.integers(5, 200), min_size=2, max_size=12), st.floats(1, 20))
def test_a_tail_has_the_ratio_asked_and_no_more_than_there_is(counts: list[int], imbalance: float) -> None:
    there = torch.tensor(counts)
    kept = tampering.long_tail(there, imbalance=imbalance)
    assert (kept <= there).all()
    assert (kept.diff() <= 0).all()
    head = (there.double() * imbalance ** torch.linspace(0, 1, len(counts), dtype=torch.float64)).min().item()
    assert kept[0].item() == pytest.approx(head, abs=0.5001)
    assert kept[-1].item() == pytest.approx(head / imbalance, abs=0.5001)


def test_long_tailed_cifar_has_its_published_counts() -> None:
    # CIFAR-10-LT of imbalance 100: 5000 * 100^(-k / 9), which the authors' code rounds down and we to the nearest.
    kept = tampering.long_tail(torch.full((10,), 5000), imbalance=100.0).tolist()
    published = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert all(0 <= ours - theirs <= 1 for ours, theirs in zip(kept, published))
    assert (kept[0], kept[-1]) == (5000, 50)


def test_an_imbalanced_set_is_part_of_the_whole_and_its_test_split_is_untouched() -> None:
    whole, test = data.load("runes", **RUNES)
    tailed, same = data.load("runes", imbalance=10.0, **RUNES)
    assert tailed.labels.bincount().tolist() == [100, 77, 60, 46, 36, 28, 22, 17, 13, 10]
    seen = {image.numpy().tobytes(): int(label) for image, label in zip(whole.images, whole.labels)}
    assert all(seen[image.numpy().tobytes()] == int(label) for image, label in zip(tailed.images, tailed.labels))
    assert same.fingerprint() == test.fingerprint()
    assert data.load("runes", imbalance=10.0, **RUNES)[0].fingerprint() == tailed.fingerprint()
    steeper, _ = data.load("runes", imbalance=50.0, **RUNES)
    kept = {image.numpy().tobytes() for image in tailed.images}
    assert all(image.numpy().tobytes() in kept for image in steeper.images)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.333, 0.999])
def test_false_labels_are_as_many_as_asked_and_images_stay(share: float) -> None:
    whole, test = data.load("runes", **RUNES)
    noisy, same = data.load("runes", label_noise=share, **RUNES)
    assert torch.equal(noisy.images, whole.images)
    assert int((noisy.labels != whole.labels).sum()) == round(share * 1000)
    assert same.fingerprint() == test.fingerprint()
    assert torch.equal(data.load("runes", label_noise=share, **RUNES)[0].labels, noisy.labels)


def test_false_labels_are_uniform_over_the_other_classes_and_over_images() -> None:
    n, c = 60_000, 6
    labels = torch.arange(n) % c
    noisy = tampering.mislabelled(labels, torch.arange(n), share=0.5, classes=c)
    changed = noisy != labels
    table = torch.zeros(c, c).index_put_((labels[changed], noisy[changed]), torch.ones(n // 2), accumulate=True)
    expected = n / 2 / (c * (c - 1))
    assert table.diagonal().sum() == 0
    off = table[~torch.eye(c, dtype=torch.bool)]
    chi2 = ((off - expected) ** 2 / expected).sum().item()
    assert chi2 < 60  # 29 degrees of freedom: beyond 60 once in 1500
    assert changed[: n // 2].double().mean().item() == pytest.approx(0.5, abs=0.01)


def test_more_noise_keeps_the_false_labels_and_so_do_subsets() -> None:
    labels, indices = torch.arange(500) % 7, torch.arange(500)
    some, more = (tampering.mislabelled(labels, indices, share=share, classes=7) for share in (0.2, 0.6))
    changed = some != labels
    assert torch.equal(more[changed], some[changed])
    part = tampering.mislabelled(labels[::2], indices[::2], share=0.9, classes=7)
    both = (part != labels[::2]) & changed[::2]
    assert both.sum() > 30
    assert torch.equal(part[both], some[::2][both])


def test_fingerprints_tell_them_apart() -> None:
    options = [{}, {"imbalance": 2.0}, {"imbalance": 3.0}, {"label_noise": 0.1}, {"label_noise": 0.2}]
    options.append({"imbalance": 2.0, "label_noise": 0.1})
    prints = {data.load("digits", **option)[0].fingerprint() for option in options}
    assert len(prints) == len(options)


def test_an_uneven_set_still_gets_the_ratio_asked(tmp_path: Path) -> None:
    y = np.repeat(np.arange(3), [50, 20, 90])
    x = np.arange(160, dtype=np.uint8)[:, None, None] + np.zeros((1, 4, 4), np.uint8)
    np.savez(tmp_path / "uneven.npz", x_train=x, y_train=y, x_test=x[::5], y_test=y[::5])
    train, test = data.load("uneven", data_dir=tmp_path, imbalance=4.0)
    assert train.labels.bincount().tolist() == [40, 20, 10]
    assert test.labels.bincount().tolist() == [10, 4, 18]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"imbalance": 0.5}, "imbalance must be at least 1"),
        ({"imbalance": float("nan")}, "imbalance must be finite"),
        ({"imbalance": 1000.0}, "leaves class 7 of runes without a training image; class 0 has 100: try 100 or less"),
        ({"label_noise": 1.0}, "label_noise must be below 1"),
        ({"label_noise": -0.1}, "label_noise must be at least 0"),
    ],
)
def test_impossible_tampering_is_refused(options: dict[str, float], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        data.load("runes", **RUNES, **options)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_tampers_with_the_training_split_of_its_own_set_only() -> None:
    wanted = spec.Data("runes", classes=4, train=80, test=20, ood=("digits",), imbalance=4, label_noise=0.25)
    untouched = dataclasses.replace(wanted, imbalance=1.0, label_noise=0.0)
    tell = functools.partial(run.Progress, "run")
    there, plain = (sources.last(run.one._load(one, torch.device("cpu"), None, tell)) for one in (wanted, untouched))
    assert len(there["train"]) == 20 + 13 + 8 + 5
    assert there["train"].guessing == there["train"].labels.bincount().max().item() / 46 > plain["train"].guessing == 0.25
    assert there["test"].fingerprint() == plain["test"].fingerprint()
    assert there["train"].fingerprint() != plain["train"].fingerprint()
    assert torch.equal(there["digits/train"].labels, plain["digits/train"].labels)
    assert len(there["digits/train"]) == len(plain["digits/train"])
