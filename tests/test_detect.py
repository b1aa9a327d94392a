"""Detectors and their metrics against scikit-learn; ties, conventions and limits by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.preprocessing import StandardScaler

from thermocline import detect
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
        with pytest.raises(ValueError, match=f"dim={dim!r} takes all 16 axes, which leaves no residual: ask for fewer"):
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


few = st.lists(st.integers(0, 5), min_size=1, max_size=30)


@given(few, few)
def test_auroc_matches_scikit_learn_with_ties(inside: list[int], outside: list[int]) -> None:
    expected = roc_auc_score([1] * len(inside) + [0] * len(outside), inside + outside)
    value = detect.auroc(torch.tensor(inside, dtype=torch.float32), torch.tensor(outside, dtype=torch.float32))
    assert np.isclose(value, expected, rtol=1e-12)


@given(st.integers(0, 99), st.sampled_from([0.95, 0.8]))
def test_fpr_matches_the_roc_curve(seed: int, tpr: float) -> None:
    gen = torch.Generator().manual_seed(seed)
    inside, outside = torch.randn(200, generator=gen) + 1, torch.randn(131, generator=gen)
    fpr, reached, _ = roc_curve([1] * 200 + [0] * 131, torch.cat([inside, outside]), drop_intermediate=False)
    expected = fpr[np.argmax(reached >= tpr - 1e-12)]
    assert np.isclose(detect.fpr_at_tpr(inside, outside, tpr=tpr, positive="id"), expected)


def test_scores_are_compared_in_the_wider_type() -> None:
    one, more = torch.tensor([1.0]), torch.tensor([1 + 1e-9], dtype=torch.float64)
    assert detect.auroc(one, more) == 0
    assert detect.fpr_at_tpr(more, one, tpr=1.0, positive="id") == 0
    assert detect.fpr_at_tpr(one, more, tpr=1.0, positive="id") == 1


@pytest.mark.parametrize("tpr", [0.0, -0.1, 1.01, 95.0, float("nan")])
def test_a_share_of_positives_is_a_share(tpr: float) -> None:
    with pytest.raises(ValueError, match="tpr is the share of positives to keep"):
        detect.fpr_at_tpr(torch.ones(3), torch.zeros(3), tpr=tpr, positive="id")


def test_which_side_is_positive_matters_and_must_be_said() -> None:
    inside, outside = torch.tensor([0.0, 2.0, 2.0, 2.0]), torch.tensor([1.0, 1.0, 1.0, 1.0])
    assert detect.fpr_at_tpr(inside, outside, tpr=1.0, positive="id") == 1.0
    assert detect.fpr_at_tpr(inside, outside, tpr=1.0, positive="ood") == 0.25
    with pytest.raises(TypeError):
        detect.fpr_at_tpr(inside, outside, tpr=0.95)  # type: ignore[call-arg]
