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
from thermocline.moments import Moments


def features(gen: torch.Generator, n: int, d: int = 30, scale: float = 1.0) -> torch.Tensor:
    mix = torch.randn(6, d, generator=torch.Generator().manual_seed(5))
    return torch.randn(n, 6, generator=gen) @ mix + scale * 0.3 * torch.randn(n, d, generator=gen) + 2


@pytest.mark.parametrize("dim", [0.9, 0.5, 4, 30, 1.0])
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
    pca = PCA(n_components=dim if isinstance(dim, int) or dim < 1 else None).fit(scaler.transform(train.double().numpy()))
    scaled = scaler.transform(test.double().numpy())
    expected = np.linalg.norm(pca.transform(scaled), axis=1) / np.linalg.norm(scaled, axis=1)
    assert np.allclose(scores, expected * test_logits.amax(1).numpy() if factor else expected, rtol=1e-6)


def test_neco_prefers_what_it_was_fitted_on(gen: torch.Generator) -> None:
    train, inside, outside = features(gen, 500), features(gen, 200), features(gen, 200, scale=6.0)
    none = torch.zeros(500, 2)
    detector = detect.NECO(dim=0.9).fit(train, none, none[:, 0].long())
    assert detect.auroc(detector.score(inside, none[:200]), detector.score(outside, none[:200])) > 0.9


@pytest.mark.parametrize("dim", [0.9, 3, 29])
def test_neco_of_a_stream_is_that_of_its_features(gen: torch.Generator, dim: float) -> None:
    train, test = features(gen, 500).double(), features(gen, 77).double()
    none, moments, before = torch.zeros(500, 2), Moments(30), test.clone()
    for batch in train.split(64):
        moments.update(batch)
    whole = detect.NECO(dim=dim).fit(train, none, none[:, 0].long()).score(test, none[:77])
    detector = detect.NECO(dim=dim).fit_moments(moments)
    moments.update(100 * train)  # what the stream brings later is not what it was fitted to
    assert torch.allclose(whole, detector.score(test, none[:77]), rtol=1e-10)
    assert torch.equal(test, before)
    assert detector.score(test[:0], none[:0]).shape == (0,)


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


@pytest.mark.parametrize("dim", [0, 0.0, 1.5, -2])
def test_neco_refuses_a_bad_dim(dim: float) -> None:
    with pytest.raises(ValueError, match="number of axes"):
        detect.NECO(dim=dim)


def test_msp_reads_probabilities_at_its_temperature() -> None:
    logits = torch.tensor([[0.0, 100 * np.log(3.0)]])
    assert np.isclose(detect.MSP(temperature=100.0).score(logits, logits), 0.75)


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
    assert detect.auroc(torch.tensor([1.0]), torch.tensor([1 + 1e-9], dtype=torch.float64)) == 0


def test_which_side_is_positive_matters_and_must_be_said() -> None:
    inside, outside = torch.tensor([0.0, 2.0, 2.0, 2.0]), torch.tensor([1.0, 1.0, 1.0, 1.0])
    assert detect.fpr_at_tpr(inside, outside, tpr=1.0, positive="id") == 1.0
    assert detect.fpr_at_tpr(inside, outside, tpr=1.0, positive="ood") == 0.25
    with pytest.raises(TypeError):
        detect.fpr_at_tpr(inside, outside, tpr=0.95)  # type: ignore[call-arg]
