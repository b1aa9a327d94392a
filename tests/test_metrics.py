"""Metrics of scores against scikit-learn, and what their definitions promise."""

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc, average_precision_score, roc_auc_score, roc_curve

from thermocline import detect

few = st.lists(st.integers(0, 5), min_size=1, max_size=30)
Metric = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
METRICS: list[Metric] = [
    detect.auroc,
    functools.partial(detect.aupr, positive="id"),
    functools.partial(detect.aupr, positive="ood"),
    functools.partial(detect.fpr_at_tpr, tpr=0.9, positive="id"),
    functools.partial(detect.fpr_at_tpr, tpr=0.9, positive="ood"),
]


def drawn(seed: int, n: int = 300, m: int = 170, shift: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=gen).double() + shift, torch.randn(m, generator=gen).double()


def truth(inside: torch.Tensor, outside: torch.Tensor) -> np.ndarray:
    return np.repeat([1, 0], [len(inside), len(outside)])


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


@given(few, few)
def test_average_precision_matches_scikit_learn_with_ties(inside: list[int], outside: list[int]) -> None:
    a, b = torch.tensor(inside).float(), torch.tensor(outside).float()
    labels, scores = truth(a, b), np.array(inside + outside)
    assert np.isclose(detect.aupr(a, b, positive="id"), average_precision_score(labels, scores), rtol=1e-12)
    assert np.isclose(detect.aupr(a, b, positive="ood"), average_precision_score(1 - labels, -scores), rtol=1e-12)


@given(st.integers(0, 99), st.integers(1, 200), st.integers(1, 200))
def test_average_precision_matches_scikit_learn_on_lopsided_sets(seed: int, n: int, m: int) -> None:
    a, b = drawn(seed, n, m)
    expected = average_precision_score(truth(a, b), torch.cat([a, b]))
    assert np.isclose(detect.aupr(a, b, positive="id"), expected, rtol=1e-12)


@given(few, few)
def test_the_full_curve_has_the_corners_of_scikit_learn(inside: list[int], outside: list[int]) -> None:
    a, b = torch.tensor(inside).float(), torch.tensor(outside).float()
    labels, scores = truth(a, b), np.array(inside + outside)
    # Its own thinning leaves some vertices on straight lines, so the two are compared as curves: every corner of ours
    # is one of its vertices, and the areas agree.
    for positive, y, s in (("id", labels, scores), ("ood", 1 - labels, -scores)):
        fpr, tpr, thresholds = roc_curve(y, s, drop_intermediate=False)
        curve = detect.roc(a, b, points=100, positive=positive)
        vertices = {(round(x, 9), round(y, 9)): t for x, y, t in zip(fpr, tpr, thresholds)}
        for x, y, t in zip(*(column.tolist() for column in curve)):
            assert vertices[round(x, 9), round(y, 9)] == (t if positive == "id" else -t)
        assert np.isclose(torch.trapezoid(curve.tpr, curve.fpr), auc(fpr, tpr), rtol=1e-12)


@pytest.mark.parametrize("points", [2, 3, 10, 11, 100, 1000])
@pytest.mark.parametrize("scores", ["apart", "near", "tied", "coarse", "interleaved", "separate"])
def test_a_thinned_curve_keeps_its_ends_and_its_area(points: int, scores: str) -> None:
    a, b = drawn(3, 4000, 2500, shift={"near": 0.1}.get(scores, 2.0))
    if scores == "tied":  # a detector that is sure of half of the samples
        a, b = a.clamp(max=1.5), b.clamp(max=1.5)
    if scores == "coarse":
        a, b = (a * 20).round(), (b * 20).round()
    if scores == "interleaved":  # every second one, which any chord cuts off
        a, b = torch.arange(4000.0) * 2 + 1, torch.arange(4000.0) * 2
    if scores == "separate":
        a = a + 100
    curve = detect.roc(a, b, points=points, positive="id")
    assert len(curve.fpr) == len(curve.tpr) == len(curve.thresholds) <= points
    assert (curve.fpr[0], curve.tpr[0], curve.fpr[-1], curve.tpr[-1]) == (0, 0, 1, 1)
    assert (curve.fpr.diff() >= 0).all()
    assert (curve.tpr.diff() >= 0).all()
    area = torch.trapezoid(curve.tpr, curve.fpr)
    assert abs(area - detect.auroc(a, b)) <= 1 / (points - 1)
    for x, y, t in zip(*curve):
        assert x == (b >= t).double().mean()
        assert y == (a >= t).double().mean()


def test_a_smooth_curve_loses_far_less_than_the_bound() -> None:
    a, b = drawn(0, 100_000, 100_000)
    curve = detect.roc(a, b, points=200, positive="id")
    assert abs(torch.trapezoid(curve.tpr, curve.fpr) - detect.auroc(a, b)) < 5e-5


def test_the_curve_of_the_other_side_is_the_mirror_image() -> None:
    a, b = drawn(1)
    one, other = (detect.roc(a, b, points=10**6, positive=positive) for positive in ("id", "ood"))
    # The same corners but for ties: "at least t" and "at most t" both count the sample at t.
    assert torch.allclose(1 - one.tpr.flip(0), other.fpr)
    assert torch.allclose(1 - one.fpr.flip(0), other.tpr)


@given(st.integers(0, 99))
def test_only_the_order_of_scores_counts(seed: int) -> None:
    a, b = drawn(seed)
    for metric in METRICS:
        for change in (torch.exp, torch.atan, lambda s: s**3, lambda s: 1e-6 * s + 1):
            assert metric(change(a), change(b)) == metric(a, b)
        order = torch.randperm(len(a), generator=torch.Generator().manual_seed(seed))
        assert torch.isclose(metric(a[order], b.flip(0)), metric(a, b), rtol=1e-14)


@given(few, few)
def test_swapping_sides(inside: list[int], outside: list[int]) -> None:
    a, b = torch.tensor(inside).float(), torch.tensor(outside).float()
    assert torch.isclose(detect.auroc(a, b), 1 - detect.auroc(b, a))
    assert torch.isclose(detect.auroc(a, b), detect.auroc(-b, -a))
    assert torch.isclose(detect.aupr(a, b, positive="ood"), detect.aupr(-b, -a, positive="id"))


def test_equal_scores_say_nothing() -> None:
    a, b = torch.zeros(30), torch.zeros(10)
    assert detect.auroc(a, b) == 0.5
    assert detect.aupr(a, b, positive="id") == 0.75
    assert detect.aupr(a, b, positive="ood") == 0.25
    curve = detect.roc(a, b, points=10, positive="id")
    assert curve.fpr.tolist() == curve.tpr.tolist() == [0, 1]


def test_infinite_scores_have_their_place() -> None:
    a, b = torch.tensor([torch.inf, 1.0, torch.inf]), torch.tensor([-torch.inf, 1.0, torch.inf])
    finite = torch.tensor([9.0, 1.0, 9.0]), torch.tensor([-9.0, 1.0, 9.0])
    assert all(metric(a, b) == metric(*finite) for metric in METRICS)
    for positive in ("id", "ood"):
        ours, expected = (detect.roc(*pair, points=9, positive=positive) for pair in ((a, b), finite))
        assert torch.equal(ours.fpr, expected.fpr)
        assert torch.equal(ours.tpr, expected.tpr)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.uint8])
def test_any_real_type_of_score(dtype: torch.dtype) -> None:
    a, b = torch.tensor([3, 2, 5, 1]).to(dtype), torch.tensor([1, 2, 0]).to(dtype)
    y, s = truth(a, b), [3, 2, 5, 1, 1, 2, 0]
    assert np.isclose(detect.auroc(a, b), roc_auc_score(y, s))
    assert np.isclose(detect.aupr(a, b, positive="id"), average_precision_score(y, s))
    assert np.isclose(detect.aupr(a, b, positive="ood"), average_precision_score(1 - y, -np.array(s)))
    assert np.isclose(detect.fpr_at_tpr(a, b, tpr=1.0, positive="ood"), 0.5)
    curve = detect.roc(a, b, points=9, positive="ood")
    assert np.isclose(torch.trapezoid(curve.tpr, curve.fpr), roc_auc_score(y, s))


def test_what_is_refused() -> None:
    good, bad, none = torch.tensor([0.0, 0.5]), torch.tensor([torch.nan, 1.0]), torch.zeros(0)
    for metric in (*METRICS, functools.partial(detect.roc, points=9, positive="id")):
        for scores, message in ((bad, "must not be NaN"), (none, "at least one score")):
            with pytest.raises(ValueError, match=f"id_scores .*{message}"):
                metric(scores, good)
            with pytest.raises(ValueError, match=f"ood_scores .*{message}"):
                metric(good, scores)
    with pytest.raises(ValueError, match="at least 2 points, its ends, got points=1"):
        detect.roc(good, good, points=1, positive="id")
    with pytest.raises(TypeError):
        detect.aupr(good, good)  # type: ignore[call-arg]
