"""NC1 to NC4 and OrthoDev against the formulas written out in numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thermocline import geometry
from thermocline.moments import ClassMoments


def problem(seed: int, *, c: int = 6, d: int = 11, n: int = 120, offset: float = 4.0):
    gen = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.arange(c), torch.randint(c, (n - c,), generator=gen)])
    features = 3 * torch.randn(c, d, generator=gen, dtype=torch.float64)[labels] + offset
    features = features + torch.randn(n, d, generator=gen, dtype=torch.float64)
    weight = torch.randn(c, d, generator=gen, dtype=torch.float64)
    return features, labels, weight, torch.randn(c, generator=gen, dtype=torch.float64)


def by_definition(h: np.ndarray, y: np.ndarray, w: np.ndarray, b: np.ndarray, *, rtol: float) -> dict[str, float]:
    c = len(w)
    mu = np.stack([h[y == k].mean(0) for k in range(c)])
    m = mu - mu.mean(0)
    within = sum(np.outer(x - mu[k], x - mu[k]) for x, k in zip(h, y)) / len(h)
    between = sum(np.outer(row, row) for row in m) / c

    def equinorm(v: np.ndarray) -> float:
        norms = np.linalg.norm(v, axis=1)
        return norms.std() / norms.mean()

    def equiangular(v: np.ndarray) -> float:
        unit = v / np.linalg.norm(v, axis=1)[:, None]
        return np.mean([abs(unit[i] @ unit[j] + 1 / (c - 1)) for i in range(c) for j in range(c) if i != j])

    nearest = np.argmin(np.linalg.norm(h[:, None] - mu[None], axis=2), axis=1)
    return {
        "nc1": np.trace(within @ np.linalg.pinv(between, rcond=rtol, hermitian=True)) / c,
        "nc1_trace": np.trace(within) / np.trace(between),
        "nc2_equinorm": equinorm(m),
        "nc2_equiangular": equiangular(m),
        "nc2_equinorm_weights": equinorm(w),
        "nc2_equiangular_weights": equiangular(w),
        "nc3": np.linalg.norm(w.T / np.linalg.norm(w) - m.T / np.linalg.norm(m)) ** 2,
        "nc4": 1 - np.mean((h @ w.T + b).argmax(1) == nearest),
    }


@pytest.mark.parametrize(("c", "d", "rtol"), [(6, 11, 1e-3), (11, 6, 1e-3), (2, 5, 1e-3), (9, 30, 0.2)])
def test_neural_collapse_by_definition(c: int, d: int, rtol: float) -> None:
    features, labels, weight, bias = problem(c, c=c, d=d)
    found = geometry.neural_collapse(features, labels, weight, bias, rtol=rtol)
    expected = by_definition(features.numpy(), labels.numpy(), weight.numpy(), bias.numpy(), rtol=rtol)
    assert list(expected) == list(found._fields)
    for name, value in expected.items():
        assert np.isclose(getattr(found, name), value, rtol=1e-9), name


def test_the_bias_only_moves_nc4() -> None:
    features, labels, weight, bias = problem(3)
    without, with_bias = (geometry.neural_collapse(features, labels, weight, b) for b in (None, 30 * bias))
    assert without[:-1] == with_bias[:-1]
    assert without.nc4 != with_bias.nc4
    agree = (features @ weight.T).argmax(1) == geometry.nearest_class_mean(
        features, ClassMoments.of(features, labels, classes=6).means
    )
    assert np.isclose(without.nc4, 1 - agree.double().mean())


@given(st.integers(0, 99), st.lists(st.integers(0, 120), max_size=4))
def test_neural_collapse_streams(seed: int, cuts: list[int]) -> None:
    features, labels, weight, bias = problem(seed)
    moments = ClassMoments(11, 6)
    for a, b in zip(torch.tensor_split(features, sorted(cuts)), torch.tensor_split(labels, sorted(cuts))):
        moments.update(a, b)
    whole = geometry.neural_collapse(features, labels, weight, bias)
    streamed = geometry.collapse_from_moments(moments, weight, nc4=whole.nc4)
    assert np.allclose(whole, streamed, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_long_matrix_agrees_with_its_moments_and_is_left_as_it_was(dtype: torch.dtype) -> None:
    """More rows than are taken at a time; NC4 against its two definitions, each by a product of its own."""
    features, labels, weight, bias = problem(5, c=7, d=700, n=4000)
    features = (features + 1e3).to(dtype)
    before = features.clone()
    found = geometry.neural_collapse(features, labels.to(torch.int16), weight, bias)
    moments = ClassMoments.of(features, labels, classes=7)
    nearest = torch.cdist(features.double(), moments.means, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
    nc4 = ((features.double() @ weight.T + bias).argmax(1) != nearest).double().mean()
    assert np.allclose(found, geometry.collapse_from_moments(moments, weight, nc4=nc4), rtol=1e-9)
    assert torch.equal(features, before)


@given(st.integers(0, 99), st.floats(1e-2, 1e2))
def test_neural_collapse_does_not_see_rotation_scale_offset_or_names(seed: int, scale: float) -> None:
    """The head turns with the features; a common offset moves nothing but the logits, so nc4 is left out."""
    gen = torch.Generator().manual_seed(seed)
    features, labels, weight, _ = problem(seed)
    rotation = torch.linalg.qr(torch.randn(11, 11, generator=gen, dtype=torch.float64)).Q
    names, order = torch.randperm(6, generator=gen), torch.randperm(120, generator=gen)
    renamed = torch.empty_like(weight)
    renamed[names] = weight
    still = geometry.neural_collapse(features, labels, weight)
    moved = geometry.neural_collapse((scale * features @ rotation + 7)[order], names[labels][order], 5 * renamed @ rotation)
    assert np.allclose(still[:-1], moved[:-1], rtol=1e-7)


@pytest.mark.parametrize(("c", "d"), [(3, 8), (10, 64), (10, 10)])
def test_a_simplex_is_collapsed_whatever_its_place_size_and_class_sizes(gen: torch.Generator, c: int, d: int) -> None:
    frame = torch.linalg.qr(torch.randn(d, c, generator=gen, dtype=torch.float64)).Q
    simplex = (torch.eye(c, dtype=torch.float64) - 1 / c) @ frame.T
    labels = torch.cat([torch.arange(c), torch.zeros(17, dtype=torch.int64)])
    found = geometry.neural_collapse(20 * simplex[labels] + 3 * frame.sum(1), labels, simplex)
    assert np.allclose(found, 0, atol=1e-12)


def test_a_random_net_is_not_collapsed() -> None:
    features, labels, weight, _ = problem(0)
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    real, control = (geometry.neural_collapse(features, y, weight) for y in (labels, shuffled))
    assert control.nc1_trace > 5 * real.nc1_trace
    assert control.nc1 > 5 * real.nc1
    assert real.nc3 > 0.5
    assert real.nc4 > 0.3


def test_a_rank_deficit_does_not_explode_nc1(gen: torch.Generator) -> None:
    """Ten classes in three dimensions: the other six directions of their means are sampling noise."""
    labels = torch.arange(2000) % 10
    plane = torch.zeros(10, 40, dtype=torch.float64)
    plane[:, :3] = torch.randn(10, 3, generator=gen, dtype=torch.float64)
    features = plane[labels] + 0.05 * torch.randn(2000, 40, generator=gen, dtype=torch.float64)
    weight = torch.randn(10, 40, generator=gen, dtype=torch.float64)
    nc1 = geometry.neural_collapse(features, labels, weight).nc1
    assert 0 < nc1 < 0.01
    truncated_at_nine = geometry.neural_collapse(features, labels, weight, rtol=1e-9).nc1
    assert truncated_at_nine > 1000 * nc1


def test_collapse_far_below_the_distance_of_the_classes(gen: torch.Generator) -> None:
    labels = torch.arange(90) % 3
    points = torch.eye(3, 7, dtype=torch.float64)
    noise = torch.randn(90, 7, generator=gen, dtype=torch.float64)
    found = [geometry.neural_collapse(points[labels] + scale * noise, labels, points).nc1 for scale in (1e-3, 1e-7)]
    assert np.isclose(found[1] / found[0], 1e-8, rtol=1e-2)


def test_classes_that_cannot_be_compared_are_refused() -> None:
    features, labels, weight, _ = problem(0)
    with pytest.raises(ValueError, match="2 have none, the first is 6"):
        geometry.neural_collapse(features, labels, torch.cat([weight, weight[:2]]))
    with pytest.raises(ValueError, match="two rows or more"):
        geometry.neural_collapse(features, torch.zeros_like(labels), weight[:1])
    moments = ClassMoments.of(features, labels, classes=6)
    with pytest.raises(ValueError, match=r"the head is \(6, 9\)"):
        geometry.collapse_from_moments(moments, weight[:, :9], nc4=torch.tensor(0.0))
    with pytest.raises(ValueError, match=r"0\.\.4"):
        geometry.neural_collapse(features, labels, weight[:5])


def test_measuring_a_head_in_training_leaves_no_graph() -> None:
    features, labels, weight, bias = problem(0)
    moments = ClassMoments.of(features, labels, classes=6)
    weight.requires_grad_()
    bias.requires_grad_()
    found = [*geometry.neural_collapse(features.requires_grad_(), labels, weight, bias)]
    found += geometry.collapse_from_moments(moments, weight, nc4=torch.tensor(0.0))
    assert not any(value.requires_grad for value in found)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(("index", "name"), [(0, "features"), (2, "the weight of the head"), (3, "the bias of the head")])
def test_nan_and_infinity_are_not_collapse(index: int, name: str, value: float) -> None:
    arguments = problem(0)
    arguments[index].view(-1)[4] = value
    with pytest.raises(ValueError, match=f"{name} must not be NaN or infinite"):
        geometry.neural_collapse(*arguments)
    features, labels, weight, _ = arguments
    if index < 3:
        with pytest.raises(ValueError, match=f"{name} must not be NaN or infinite"):
            geometry.collapse_from_moments(ClassMoments.of(features, labels, classes=6), weight, nc4=torch.tensor(0.0))


def test_nothing_is_nearest_to_nan() -> None:
    for features, means in ((torch.eye(3), torch.eye(3) / 0), (torch.eye(3) * torch.nan, torch.eye(3))):
        with pytest.raises(ValueError, match="features and class means must not be NaN or infinite"):
            geometry.nearest_class_mean(features, means)


def test_one_sample_a_class_has_no_scatter() -> None:
    _, _, weight, _ = problem(0)
    found = geometry.neural_collapse(weight, torch.arange(6), weight)
    assert found.nc1 == found.nc1_trace == 0


def test_constant_features_have_no_collapse_to_speak_of() -> None:
    _, labels, weight, _ = problem(0)
    found = geometry.neural_collapse(torch.full((120, 11), 0.1, dtype=torch.float64), labels, weight)
    for name in ("nc1", "nc1_trace", "nc2_equinorm", "nc2_equiangular", "nc3"):
        assert not getattr(found, name).isfinite(), name


def test_equal_means_of_scattered_classes_are_infinitely_far_from_collapse() -> None:
    features = torch.tensor([[-1.0, 2.0], [1.0, -2.0]]).repeat(3, 1)
    found = geometry.neural_collapse(features, torch.tensor([0, 0, 1, 1, 2, 2]), torch.eye(3, 2))
    assert found.nc1 == found.nc1_trace == float("inf")


def test_nearest_class_mean_far_from_the_origin(gen: torch.Generator) -> None:
    means = torch.randn(7, 4, generator=gen, dtype=torch.float64)
    features = torch.randn(50, 4, generator=gen, dtype=torch.float64)
    expected = torch.cdist(features, means, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
    assert torch.equal(geometry.nearest_class_mean(features, means), expected)
    assert torch.equal(geometry.nearest_class_mean(features + 1e7, means + 1e7), expected)


@given(st.integers(0, 99), st.floats(1e-2, 1e2))
def test_orthodev_by_definition(seed: int, scale: float) -> None:
    gen = torch.Generator().manual_seed(seed)
    means, other, centre = (torch.randn(*s, generator=gen, dtype=torch.float64) for s in ((5, 9), (9,), (9,)))

    def expected(mu: np.ndarray, o: np.ndarray) -> float:
        return np.mean([abs(row @ o) / (np.linalg.norm(row) * np.linalg.norm(o)) for row in mu])

    rotation = torch.linalg.qr(torch.randn(9, 9, generator=gen, dtype=torch.float64)).Q
    plain = geometry.orthodev(means, other, centered=False)
    assert np.isclose(plain, expected(means.numpy(), other.numpy()))
    assert np.isclose(plain, geometry.orthodev(scale * means @ rotation, other @ rotation, centered=False))
    own = (means - means.mean(0)).numpy(), (other - means.mean(0)).numpy()
    assert np.isclose(geometry.orthodev(means + 3, other + 3, centered=True), expected(*own))
    around = (means - centre).numpy(), (other - centre).numpy()
    assert np.isclose(geometry.orthodev(means, other, centered=True, global_mean=centre), expected(*around))
    arrays = [x.numpy() for x in (means, other, centre)]
    assert np.isclose(geometry.orthodev(*arrays[:2], centered=True, global_mean=arrays[2]), expected(*around))


def test_orthodev_limits() -> None:
    means = torch.eye(3, 5)
    assert float(geometry.orthodev(means, torch.eye(5)[4], centered=False)) == 0
    assert float(geometry.orthodev(means[:1], -2 * means[0], centered=False)) == 1
    assert geometry.orthodev(means, torch.zeros(5), centered=False).isnan()
    with pytest.raises(ValueError, match="global_mean"):
        geometry.orthodev(means, means[0], centered=False, global_mean=means[0])
    with pytest.raises(TypeError):
        geometry.orthodev(means, means[0])  # type: ignore[call-arg]
