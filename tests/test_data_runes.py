"""Runes depend on nothing but (alphabet, split, index, class), and so do the subsets taken from any set."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thermocline import data
from thermocline.data import hashing, runes


def render(indices: torch.Tensor, *, seed: int = 0, split: str = "train", classes: int = 7, size: int = 16) -> torch.Tensor:
    return runes.render(indices, seed=seed, split=split, classes=classes, size=size)


def test_the_hash_is_splitmix64() -> None:
    # First outputs of the published generator from state 0: the mix of one golden-ratio step, and of two.
    golden = 0x9E3779B97F4A7C15 - (1 << 64)
    first, second = 0xE220A8397B1DCDAF - (1 << 64), 0x6E789E6AA1B965F4
    assert hashing.scramble(0).item() == first
    assert hashing.scramble(golden).item() == second


def test_hashed_numbers_look_random() -> None:
    bits = hashing.scramble(3, torch.arange(400)[:, None], torch.arange(500))
    flat, normal = hashing.uniform(bits), hashing.bell(bits)
    assert flat.mean().item() == pytest.approx(0.5, abs=0.005)
    assert flat.var().item() == pytest.approx(1 / 12, abs=0.002)
    assert normal.mean().item() == pytest.approx(0, abs=0.01)
    assert normal.var().item() == pytest.approx(1, abs=0.02)
    correlations = torch.corrcoef(flat[:, :40].T) - torch.eye(40)
    assert correlations.abs().max() < 0.3  # six standard errors at 400 rows
    assert bits.unique().numel() == bits.numel()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 60))
def test_subsets_are_as_balanced_as_can_be_and_nested(labels: list[int], count: int) -> None:
    y = torch.tensor(labels)
    count = min(count, len(y))
    chosen = hashing.balanced(y, count)
    taken, there = y[chosen].bincount(minlength=5), y.bincount(minlength=5)
    assert len(chosen.unique()) == count
    unexhausted = taken[taken < there]
    assert taken.max() - (unexhausted.min() if len(unexhausted) else taken.max()) <= 1
    assert set(chosen.tolist()) <= set(hashing.balanced(y, min(count + 3, len(y))).tolist())


def test_a_subset_is_not_the_head_of_each_class() -> None:
    chosen = hashing.balanced(torch.arange(2).repeat_interleave(500), 100)
    assert chosen[:50].float().mean().item() == pytest.approx(250, abs=80)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.sampled_from([16, 19, 32]))
def test_an_image_does_not_depend_on_its_batch(indices: list[int], size: int) -> None:
    together = render(torch.tensor(indices), size=size)
    alone = torch.cat([render(torch.tensor([index]), size=size) for index in indices])
    assert torch.equal(together, alone)


def test_an_image_does_not_depend_on_how_many_are_drawn() -> None:
    few, _ = data.load("runes", classes=7, train=50, test=10)
    many, _ = data.load("runes", classes=7, train=3000, test=10)  # several chunks
    assert torch.equal(few.images, many.images[:50])


def test_a_class_looks_the_same_whatever_the_number_of_classes() -> None:
    assert torch.equal(render(torch.arange(10), classes=10), render(torch.arange(10), classes=1200))
    few, exists = runes.alphabet(5, 3)
    many, all_exist = runes.alphabet(5, 1200)
    assert torch.equal(few, many[:3])
    assert torch.equal(exists, all_exist[:3])


def test_a_class_has_two_to_four_strokes_and_all_occur() -> None:
    _, exists = runes.alphabet(0, 200)
    assert exists.sum(1).unique().tolist() == [2, 3, 4]


def test_the_drawing_does_not_change_between_versions() -> None:
    # Results are compared across versions and machines: if this number moves, every result on runes does.
    assert render(torch.arange(14)).long().sum().item() == 127524


def test_no_pixel_is_made_off_the_device() -> None:
    on_meta = runes.render(torch.arange(5), seed=0, split="train", classes=3, size=16, device="meta")
    assert on_meta.device.type == "meta"


def test_alphabets_and_splits_differ() -> None:
    one, other = render(torch.arange(70)), render(torch.arange(70), seed=1)
    assert not any(torch.equal(a, b) for a, b in zip(one, other))
    assert not any(torch.equal(a, b) for a, b in zip(one, render(torch.arange(70), split="test")))


def test_pixel_noise_is_drawn_afresh_for_every_alphabet_and_split() -> None:
    indices = torch.arange(500)
    images = [render(indices), render(indices, seed=1), render(indices, split="test"), render(indices + 500)]
    corners = torch.stack([image[:, 0, 0, 0].double() for image in images])  # seldom reached by a stroke
    assert (torch.corrcoef(corners) - torch.eye(4)).abs().max() < 0.25


def test_runes_is_alphabet_zero() -> None:
    plain, named = (data.load(name, train=200, test=100)[0] for name in ("runes", "runes:0"))
    assert torch.equal(plain.images, named.images)
    assert (plain.name, named.name) == ("runes", "runes:0")


def test_classes_can_be_told_apart_across_samples_but_samples_vary() -> None:
    train, test = data.load("runes", classes=20, train=2000, test=400)
    x, z = train.images.flatten(1).double(), test.images.flatten(1).double()
    means = torch.stack([x[train.labels == k].mean(0) for k in range(20)])
    nearest = torch.cdist(z, means).argmin(1)
    accuracy = (nearest == test.labels).double().mean().item()
    assert 0.6 < accuracy < 1.0
    shuffled = (nearest == test.labels.roll(1)).double().mean().item()
    assert shuffled < 0.2


def test_strokes_are_thick_as_the_image_is_large() -> None:
    ink = [render(torch.arange(200), size=size).double().mean().item() for size in (16, 32, 64)]
    assert ink == pytest.approx([ink[0]] * 3, rel=0.04)


def test_runes_by_default() -> None:
    train, test = data.load("runes")
    assert train.images.shape == (12_000, 1, 16, 16)
    assert train.images.dtype == torch.uint8
    assert len(test) == 3_000
    assert train.classes == 100
    assert train.labels.bincount().tolist() == [120] * 100
    assert test.labels.bincount().tolist() == [30] * 100
