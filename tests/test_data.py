"""A split and its batches, augmentation, and reading one set to match another."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from thermocline import data
from thermocline.data import Split
from thermocline.spec import InputError


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(256, shape, generator=seeded(seed), dtype=torch.uint8)


def rgb_split(count: int = 10) -> Split:
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.25, 0.3])
    return Split(noise(count, 3, 8, 8), torch.arange(count) % 2, "noise", 2, mean, std)


def test_normalised_training_pixels_have_mean_zero_and_variance_one() -> None:
    train, test = data.load("digits")
    pixels = torch.cat([batch.images for batch in train.batches(100, dtype=torch.float64)])
    assert pixels.mean().item() == pytest.approx(0, abs=1e-6)
    assert pixels.var(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert torch.equal(test.mean, train.mean)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_take_normalises_by_the_formula(dtype: torch.dtype) -> None:
    split = rgb_split()
    indices = torch.tensor([4, 0, 4])
    batch = split.take(indices, dtype=dtype)
    expected = (split.images[indices].double() / 255 - split.mean.double().view(3, 1, 1)) / split.std.double().view(3, 1, 1)
    assert batch.images.dtype == dtype
    assert torch.allclose(batch.images.double(), expected, rtol=torch.finfo(dtype).eps, atol=4 * 2.0**-23)
    assert torch.equal(batch.labels, split.labels[indices])
    assert torch.equal(batch.indices, indices)


def test_batches_run_through_everything_once_in_order() -> None:
    split = rgb_split(10)
    batches = list(split.batches(4))
    assert [len(batch.labels) for batch in batches] == [4, 4, 2]
    assert torch.equal(torch.cat([batch.indices for batch in batches]), torch.arange(10))
    everything = split.take(torch.arange(10))
    assert torch.equal(torch.cat([batch.images for batch in batches]), everything.images)
    assert torch.equal(torch.cat([batch.labels for batch in batches]), everything.labels)
    with pytest.raises(InputError, match="at least one"):
        next(split.batches(0))


def test_take_augments_as_drawn() -> None:
    split, indices = rgb_split(), torch.arange(10)
    draws = data.draw("crop+flip", 10, size=(8, 8), generator=seeded(1))
    first, again = (split.take(indices, augment="crop+flip", draws=draws).images for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, split.take(indices).images)
    with pytest.raises(InputError, match="draws"):
        split.take(indices, augment="flip")


def test_a_split_shows_itself_without_its_pixels() -> None:
    assert repr(rgb_split()) == "Split(noise: 10 images, 8 x 8 pixels, RGB, 2 classes)"
    unlabelled = dataclasses.replace(rgb_split(), classes=0)
    assert repr(unlabelled) == "Split(noise: 10 images, 8 x 8 pixels, RGB, no labels)"


def test_to_moves_every_tensor() -> None:
    moved = rgb_split().to("meta")
    assert {t.device.type for t in (moved.images, moved.labels, moved.mean, moved.std)} == {"meta"}
    assert (moved.size, moved.channels, len(moved), moved.device.type) == (8, 3, 10, "meta")


SHAPES = [(64, 1, 16, 16), (65, 3, 32, 24), (33, 2, 5, 40)]


def changed(images: torch.Tensor, how: str, seed: int = 0) -> torch.Tensor:
    h, w = images.shape[2:]
    return data.augment(images, how, draws=data.draw(how, len(images), size=(h, w), generator=seeded(seed)))


def test_none_changes_nothing() -> None:
    images = noise(*SHAPES[0])
    assert torch.equal(changed(images, "none"), images)


@pytest.mark.parametrize("shape", SHAPES)
def test_flip_mirrors_about_half_and_twice_is_nothing(shape: tuple[int, ...]) -> None:
    images = noise(*shape)
    flipped = changed(images, "flip")
    same, mirrored = (flipped == images).flatten(1).all(1), (flipped == images.flip(-1)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert 0.2 < mirrored.double().mean() < 0.8
    assert torch.equal(changed(flipped, "flip"), images)


@pytest.mark.parametrize("shape", SHAPES)
def test_crop_cuts_a_window_of_the_padded_image(shape: tuple[int, ...]) -> None:
    images = noise(*shape)
    cropped = changed(images, "crop")
    assert cropped.shape == images.shape
    assert cropped.is_contiguous()
    (h, w), (down, right) = shape[2:], (max(1, side // 8) for side in shape[2:])
    padded = torch.nn.functional.pad(images, (right, right, down, down))
    windows = set()
    for image, frame in zip(cropped, padded):
        places = [(y, x) for y in range(2 * down + 1) for x in range(2 * right + 1)]
        windows.add(next((y, x) for y, x in places if torch.equal(frame[:, y : y + h, x : x + w], image)))
    assert {y for y, _ in windows} == set(range(2 * down + 1))
    assert len({x for _, x in windows}) > right


def test_crop_and_flip_are_both_done() -> None:
    images = noise(*SHAPES[1])
    draws = data.draw("crop+flip", len(images), size=(32, 24), generator=seeded())
    stages = data.augment(data.augment(images, "crop", draws=draws), "flip", draws=draws)
    assert torch.equal(data.augment(images, "crop+flip", draws=draws), stages)
    assert not torch.equal(stages, changed(images, "crop+flip", seed=1))


def test_an_unknown_augmentation_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'crop\\+flip'"):
        changed(noise(*SHAPES[0]), "crop-flip")


def test_like_takes_size_and_normalisation() -> None:
    base, _ = data.load("runes", classes=4, train=40, test=8)
    for name in ("digits", "runes:1"):
        for split in data.load(name, like=base, train=100):
            assert split.images.shape[1:] == (1, 16, 16)
            assert torch.equal(split.mean, base.mean)
            assert torch.equal(split.std, base.std)
    assert data.load("digits", like=base, classes=3, train=30, test=9)[0].labels.bincount().tolist() == [10] * 3


def test_like_and_size_must_not_disagree() -> None:
    base, _ = data.load("runes", classes=2, train=4, test=2)
    with pytest.raises(InputError, match="contradicts"):
        data.load("digits", like=base, size=32)
    assert data.load("digits", like=base, size=16)[0].size == 16


def test_digits_are_cut_without_overlap_and_evenly() -> None:
    train, test = data.load("digits")
    assert len(train) + len(test) == 1797
    assert (test.labels.bincount() / train.labels.bincount()).tolist() == pytest.approx([0.25] * 10, abs=0.01)
    assert train.images.max() == 255
    seen = {image.numpy().tobytes() for image in train.images}
    assert sum(image.numpy().tobytes() in seen for image in test.images) < 4  # scikit-learn has a few doubles


def test_resizing_keeps_the_mean() -> None:
    own, large = (data.load("digits", size=size)[0] for size in (8, 20))
    assert large.size == 20
    assert large.mean.item() == pytest.approx(own.mean.item(), rel=0.02)
