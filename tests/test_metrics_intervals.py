"""Intervals: DeLong against its definition and the bootstrap, coverage of the truth, and the edges."""

import functools

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from thermocline import detect

few = st.lists(st.integers(0, 5), min_size=2, max_size=20)


def drawn(seed: int, n: int, m: int, shift: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=gen) + shift, torch.randn(m, generator=gen)


@given(few, few)
def test_delong_by_its_definition(inside: list[int], outside: list[int]) -> None:
    """Every pair compared, as the paper has it, with ties."""
    a, b = np.array(inside)[:, None], np.array(outside)[None]
    kernel = (a > b) + (a == b) / 2
    area = kernel.mean()
    variance = kernel.mean(1).var(ddof=1) / len(inside) + kernel.mean(0).var(ddof=1) / len(outside)
    value, low, high = detect.auroc_interval(torch.tensor(inside), torch.tensor(outside), level=0.9)
    assert np.isclose(value, area, rtol=1e-12)
    if 0 < area < 1:
        reach = scipy.stats.norm.ppf(0.95) * np.sqrt(variance) / (area * (1 - area))
        expected = scipy.special.expit(scipy.special.logit(area) + np.array([-reach, reach]))
        assert np.allclose([low, high], expected, rtol=1e-9)


@pytest.mark.parametrize("shift", [0.5, 2.5])
def test_delong_agrees_with_the_bootstrap(shift: float) -> None:
    a, b = drawn(0, 900, 400, shift)
    exact = detect.auroc_interval(a, b, level=0.9)
    sampled = detect.bootstrap(detect.auroc, a, b, resamples=2000, level=0.9, seed=0)
    assert np.isclose(sampled.value, exact.value, rtol=1e-14)
    width = exact.high - exact.low
    assert abs(sampled.low - exact.low) < 0.1 * width
    assert abs(sampled.high - exact.high) < 0.1 * width


@pytest.mark.parametrize(("shift", "n", "m"), [(0.5, 60, 40), (2.5, 60, 40), (3.3, 100, 100)])
def test_an_interval_covers_the_truth_as_often_as_it_says(shift: float, n: int, m: int) -> None:
    """Two normals, AUROC 0.64, 0.96 and 0.99: an interval symmetric in the AUROC covers the last in 87 % of draws."""
    area, covered = scipy.stats.norm.cdf(shift / np.sqrt(2)), 0
    for seed in range(1000):
        _, low, high = detect.auroc_interval(*drawn(seed, n, m, shift), level=0.95)
        covered += bool(low <= area <= high)
    assert 0.92 <= covered / 1000 <= 0.98


def test_sets_that_do_not_overlap_still_have_an_interval() -> None:
    a, b = torch.arange(20.0) + 100, torch.arange(50.0)
    value, low, high = detect.auroc_interval(a, b, level=0.95)
    expected = scipy.stats.binomtest(20, 20).proportion_ci(0.95, method="exact")
    assert (value, high) == (1, 1)
    assert np.isclose(low, expected.low)
    value, low, high = detect.auroc_interval(b, a, level=0.95)
    assert (value, low) == (0, 0)
    assert np.isclose(high, 1 - expected.low)


def test_equal_scores_have_an_interval_without_width() -> None:
    for interval in (
        detect.auroc_interval(torch.zeros(5), torch.zeros(9), level=0.95),
        detect.bootstrap(detect.auroc, torch.zeros(5), torch.zeros(9), resamples=50, level=0.95, seed=0),
    ):
        assert tuple(interval) == (0.5, 0.5, 0.5)


@given(few, few, st.floats(0.05, 0.99))
def test_intervals_hold_their_value_and_stay_within_0_and_1(inside: list[int], outside: list[int], level: float) -> None:
    value, low, high = detect.auroc_interval(torch.tensor(inside), torch.tensor(outside), level=level)
    assert 0 <= low <= value + 1e-12
    assert value - 1e-12 <= high <= 1


def test_swapping_sides_mirrors_the_interval() -> None:
    a, b = drawn(1, 50, 80)
    one, other = detect.auroc_interval(a, b, level=0.9), detect.auroc_interval(b, a, level=0.9)
    assert torch.allclose(torch.stack(list(one)), 1 - torch.stack([other.value, other.high, other.low]))


def test_a_bootstrap_draws_by_its_seed_alone_and_each_side_from_itself() -> None:
    a, b = drawn(2, 80, 33)
    metric = functools.partial(detect.fpr_at_tpr, tpr=0.95, positive="ood")
    draw = functools.partial(detect.bootstrap, metric, resamples=200, level=0.9)
    one = draw(a, b, seed=4)
    assert one == draw(a, b, seed=4) == draw(a.flip(0), b.flip(0), seed=4)
    assert one != draw(a, b, seed=5)
    seen = []

    def spy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append((x, y))
        return x.mean() - y.mean()

    detect.bootstrap(spy, a, b, resamples=100, level=0.9, seed=0)
    assert all(len(x) == 80 and len(y) == 33 and torch.isin(x, a).all() and torch.isin(y, b).all() for x, y in seen)
    shares = torch.stack([torch.isin(a, x).double().mean() for x, _ in seen[:-1]])
    assert abs(shares.mean() - (1 - np.exp(-1))) < 0.02, "with replacement, 63 % of the samples are in a draw"


def test_a_bootstrap_of_a_mean_is_the_known_one() -> None:
    a, b = drawn(3, 400, 1)
    got = detect.bootstrap(lambda x, y: x.mean(), a, b, resamples=2000, level=0.95, seed=0)
    reach = 1.96 * a.double().std(correction=0) / 20
    assert torch.allclose(torch.stack([got.low, got.high]), a.double().mean() + torch.stack([-reach, reach]), atol=0.1 * reach)


def test_what_is_refused() -> None:
    a, b = torch.arange(3.0), torch.arange(4.0)
    for level in (0.0, 1.0, 95.0, float("nan")):
        with pytest.raises(ValueError, match="level is the chance to cover the truth"):
            detect.auroc_interval(a, b, level=level)
    with pytest.raises(ValueError, match="two scores a side, got 1 ID and 4 OOD"):
        detect.auroc_interval(a[:1], b, level=0.95)
    with pytest.raises(ValueError, match="fewer than one of 39 resamples"):
        detect.bootstrap(detect.auroc, a, b, resamples=39, level=0.95, seed=0)
    for function in (functools.partial(detect.bootstrap, detect.auroc, resamples=99, seed=0), detect.auroc_interval):
        with pytest.raises(ValueError, match="ood_scores must not be NaN"):
            function(a, torch.tensor([torch.nan, 1.0]), level=0.9)
        with pytest.raises(ValueError, match="id_scores must be a vector of at least one score"):
            function(a[:0], b, level=0.9)
