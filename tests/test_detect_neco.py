"""NECO against scikit-learn, what its products in float32 leave as it was, and the oracle that chooses its dimension."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from thermocline import detect
from thermocline.detect.axes import standard_moments
from thermocline.moments import ClassMoments, Moments


def features(gen: torch.Generator, n: int, d: int = 30, scale: float = 1.0) -> torch.Tensor:
    mix = torch.randn(6, d, generator=torch.Generator().manual_seed(5))
    return torch.randn(n, 6, generator=gen) @ mix + scale * 0.3 * torch.randn(n, d, generator=gen) + 2


@pytest.mark.parametrize("dim", [0.9, 0.5, 4, 29])
@pytest.mark.parametrize("factor", [False, True])
def test_neco_is_scaler_then_pca(gen: torch.Generator, dim: float, factor: bool) -> None:
    train, test = features(gen, 500), features(gen, 77)
    train[:, 3] = 1.5  # a constant feature
    test[:, 3] = 1.5
    logits, test_logits, y = (
        torch.randn(500, 4, generator=gen),
        torch.randn(77, 4, generator=gen),
        torch.zeros(500, dtype=torch.int64),
    )
    scores = detect.NECO(dim=dim, logit_factor=factor).fit(train, logits, y).score(test, test_logits)

    scaler = StandardScaler().fit(train.double().numpy())
    pca = PCA(n_components=dim).fit(scaler.transform(train.double().numpy()))
    scaled = scaler.transform(test.double().numpy())
    expected = np.linalg.norm(pca.transform(scaled), axis=1) / np.linalg.norm(scaled, axis=1)
    assert np.allclose(scores, expected * test_logits.amax(1).numpy() if factor else expected, rtol=1e-6)


@pytest.mark.parametrize("dim", [0.9, 3])
def test_neco_leaves_the_scale_of_a_feature_that_varies_by_rounding(dim: float) -> None:
    """The mean of 0.1 is not 0.1: a standard deviation of 3e-17 is not one to divide by, whatever the way to it."""
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(5000, 6)), rng.normal(size=(50, 6))
    train[:, 0], train[:, 1] = 0.1, 1e-9 * train[:, 1]
    test[:, 0], test[:, 1] = 0.1 + 1e-9, 1e-9 * test[:, 1]
    scaler = StandardScaler().fit(train)
    pca = PCA(n_components=dim).fit(scaler.transform(train))
    expected = np.linalg.norm(pca.transform(scaler.transform(test)), axis=1) / np.linalg.norm(scaler.transform(test), axis=1)
    x, streamed, labelled = torch.from_numpy(train), Moments(6), ClassMoments(6, 3)
    for batch in x.split(64):
        streamed.update(batch)
        labelled.update(batch, torch.arange(len(batch)) % 3)
    assert streamed.covariance(ddof=0)[0, 0] > 0
    for moments in (Moments.of(x), streamed, labelled.all):
        detector = detect.NECO(dim=dim).fit_moments(moments)
        assert np.allclose(detector.std, scaler.scale_, rtol=1e-9)
        assert np.allclose(detector.score(torch.from_numpy(test), torch.empty(50, 0)), expected, rtol=1e-6)


def test_neco_prefers_what_it_was_fitted_on(gen: torch.Generator) -> None:
    train, inside, outside = features(gen, 500), features(gen, 200), features(gen, 200, scale=6.0)
    none = torch.zeros(500, 2)
    detector = detect.NECO(dim=0.9).fit(train, none, none[:, 0].long())
    assert detect.auroc(detector.score(inside, none[:200]), detector.score(outside, none[:200])) > 0.9


@pytest.mark.parametrize("dim", [2, 28])
def test_neco_by_its_definition_where_either_side_has_fewer_axes(gen: torch.Generator, dim: int) -> None:
    """With a sample at the mean, which has no direction: 0; and one outside of the main subspace: 0."""
    detector = detect.NECO(dim=dim).fit_moments(Moments.of(features(gen, 500)))
    z = torch.cat([torch.randn(40, 30, generator=gen).double(), torch.zeros(1, 30).double(), detector.others.T])
    expected = (z @ detector.axes).norm(dim=1) / z.norm(dim=1).clamp(min=1e-9)
    scores = detector.score(z * detector.std + detector.mean, torch.zeros(len(z), 1))
    assert detector.axes.shape == (30, dim)
    assert torch.allclose(scores[:40], expected[:40], rtol=1e-12)
    assert scores[40] == 0
    assert scores[41:].max() < 1e-6


@pytest.mark.parametrize("dim", [16, 99, 1.0, 0.99])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neco_refuses_to_take_every_axis(gen: torch.Generator, dim: float, dtype: torch.dtype) -> None:
    """All scores would be 1. By halves and by streams alike, and nothing is learned."""
    x, detector = torch.randn(400, 16, generator=gen, dtype=dtype), detect.NECO(dim=dim)
    for fit in (lambda: detector.fit(x), lambda: detector.fit_moments(Moments.of(x))):
        with pytest.raises(ValueError, match=f"dim={dim!r} takes all 16 axes, and every score would be 1: ask for fewer"):
            fit()
    with pytest.raises(ValueError, match="NECO has not been fitted"):
        detector.score(x)


@pytest.mark.parametrize("dim", [20, 32, 1.0])
def test_a_residual_of_rounding_is_no_residual(gen: torch.Generator, dim: float) -> None:
    """Most units are dead, and no training sample has anything beyond the first 20 axes."""
    x, weight = torch.zeros(500, 64), torch.randn(10, 64, generator=gen)
    x[:, :20] = (torch.randn(500, 20, generator=gen) + 0.5).relu()
    for kind in (detect.ViM, detect.Residual):
        with pytest.raises(ValueError, match="of features that vary along 20, which leaves no residual: ask for fewer"):
            kind(weight, dim=dim).fit(x, x @ weight.T)
    assert 0 < detect.ViM(weight, dim=19).fit(x, x @ weight.T).alpha < 1e3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neco_takes_no_axis_that_the_order_of_samples_decides(gen: torch.Generator, dtype: torch.dtype) -> None:
    x, other = torch.randn(30, 64, generator=gen, dtype=dtype), torch.randn(50, 64, generator=gen, dtype=dtype)
    order = torch.randperm(30, generator=gen)
    for dim in (29, 1.0):  # 29 axes are all there are
        assert torch.allclose(*(detect.NECO(dim=dim).fit(some).score(other) for some in (x, x[order])), rtol=1e-6)
    for dim in (30, 40):
        with pytest.raises(ValueError, match=f"dim={dim} takes {dim} axes of features that vary along 29: ask for fewer"):
            detect.NECO(dim=dim).fit(x)


def cloud(gen: torch.Generator, n: int, d: int = 64) -> Tensor:
    mix = torch.randn(d, d, generator=torch.Generator().manual_seed(1)) * torch.logspace(0, -1.5, d)[:, None]
    return torch.randn(n, d, generator=gen) @ mix


def both(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    return detect.NECO().fit(train).score(test), detect.NECO().fit_moments(Moments.of(train)).score(test)


def test_a_mean_far_from_zero_costs_nothing(gen: torch.Generator) -> None:
    """Mean 100, deviation 0.1, where a plain product in float32 is off by a third."""
    train, test = (100 + 0.1 * cloud(gen, n) / 4 for n in (9000, 500))
    plain = (train.T @ train / len(train) - torch.outer(train.mean(0), train.mean(0))).diagonal()
    exact = train.double().var(0, correction=0)
    assert (plain / exact - 1).abs().max() > 0.1  # the trap is there
    assert torch.allclose(standard_moments(train).covariance(ddof=0).diagonal(), exact, rtol=1e-6)
    assert torch.allclose(*both(train, test), rtol=1e-6)


def test_constant_features_stay_constant(gen: torch.Generator) -> None:
    train, test = cloud(gen, 9000), cloud(gen, 100)
    train[:, 3], train[:, 5], train[:, 7] = 0.1, 1e-20, 12345.678
    test[:, 3] = 0.2
    detector = detect.NECO().fit(train, torch.empty(9000, 0), torch.zeros(9000).long())
    assert torch.equal(detector.std[[3, 5, 7]], torch.ones(3).double())
    assert torch.equal(detector.mean[[3, 5, 7]], train[0, [3, 5, 7]].double())
    assert torch.allclose(*both(train, test), rtol=1e-6)


def test_a_large_constant_feature_has_no_axis(gen: torch.Generator) -> None:
    """Rounding leaves it a standard deviation of thousands, and it is not divided by that."""
    x = torch.randn(500, 4, generator=gen).double()
    more = torch.cat([x, torch.full((500, 1), 1e20 / 3, dtype=torch.float64)], 1)
    found, alone = detect.NECO(dim=2).fit(more), detect.NECO(dim=2).fit(x)
    assert found.axes[4].abs().max() < 1e-15
    torch.testing.assert_close(found.axes[:4] @ found.axes[:4].T, alone.axes @ alone.axes.T)


def test_autocast_rounds_nothing(gen: torch.Generator) -> None:
    train, test = cloud(gen, 9000), cloud(gen, 210)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.allclose(*both(train, test), rtol=1e-6)


@pytest.mark.parametrize("flip", [False, True])
def test_the_oracle_is_the_best_of_all_dimensions(gen: torch.Generator, flip: bool) -> None:
    train, inside, outside = cloud(gen, 900, 16), cloud(gen, 210, 16), torch.randn(130, 16, generator=gen)
    if flip:
        inside, outside = outside, inside
    moments, none = Moments.of(train), torch.empty(210, 0)
    found = []
    for dim in range(1, 16):  # all 16 are refused: every score would be 1
        scores = (detect.NECO(dim).fit_moments(moments).score(x, none[: len(x)]) for x in (inside, outside))
        found.append(float(detect.auroc(*scores)))
    dim, value = detect.neco_oracle(moments, inside, outside)
    assert value == pytest.approx(max(found), abs=1e-9)
    assert found[dim - 1] == pytest.approx(max(found), abs=1e-9)
    by_dim = detect.neco_by_dim(moments, inside, outside, dims=(0, 3, 15, 16))
    assert {dim: float(value) for dim, value in by_dim.items()} == pytest.approx({3: found[2], 15: found[14]}, abs=1e-9)


@pytest.mark.parametrize("samples", [20, 900])
def test_the_oracle_takes_no_axes_that_exist_by_rounding(gen: torch.Generator, samples: int) -> None:
    """Few samples, or features that lie in few directions: `fit` refuses more axes than these, and so does the oracle."""
    train = torch.randn(samples, 64, generator=gen)
    if samples > 64:
        train = train[:, :8] @ torch.randn(8, 64, generator=gen)
    most = 19 if samples == 20 else 8
    outside = torch.randn(200, 64, generator=gen)
    for seed in range(5):  # other data that differ from these in nothing are told apart by luck, at any number of axes
        inside = torch.randn(200, 64, generator=torch.Generator().manual_seed(seed))
        dim, value = detect.neco_oracle(train.double(), inside, outside)
        scores = (detect.NECO(dim).fit(train.double()).score(x) for x in (inside, outside))
        assert dim <= most
        assert float(detect.auroc(*scores)) == pytest.approx(float(value), abs=1e-9)


def test_the_oracle_of_features_that_never_vary() -> None:
    with pytest.raises(ValueError, match="these vary along 0"):
        detect.neco_oracle(torch.full((20, 3), 0.1), torch.ones(4, 3), torch.zeros(4, 3))
