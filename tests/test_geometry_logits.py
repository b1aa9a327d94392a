"""The paper's identities: the rank a softmax gives back, Prop. 3.1, and the circle code."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thermocline import geometry


def low_rank(seed: int, n: int, c: int, k: int) -> torch.Tensor:
    gen = torch.Generator().manual_seed(seed)
    left, right = (2 * torch.rand(size, k, generator=gen, dtype=torch.float64) - 1 for size in (n, c))
    return left @ right.T


def functional_by_definition(logits: np.ndarray, labels: np.ndarray, keep: float, centered: bool) -> int:
    mean = logits.mean(0) if centered else 0.0
    u, s, v = np.linalg.svd(logits - mean, full_matrices=False)
    full = np.mean(logits.argmax(1) == labels)
    for k in range(len(s) + 1):
        truncated = mean + (u[:, :k] * s[:k]) @ v[:k]
        if np.mean(np.broadcast_to(truncated, logits.shape).argmax(1) == labels) >= keep * full - 1e-12:
            return k
    raise AssertionError("the whole matrix keeps its own accuracy")


@given(st.integers(0, 99), st.sampled_from([(90, 7), (12, 9), (5, 20)]), st.sampled_from([0.3, 0.9, 0.99, 1.0]), st.booleans())
def test_functional_rank_by_definition(seed: int, shape: tuple[int, int], keep: float, centered: bool) -> None:
    gen = torch.Generator().manual_seed(seed)
    labels = torch.randint(shape[1], shape[:1], generator=gen)
    logits = torch.randn(*shape, generator=gen, dtype=torch.float64) * torch.logspace(0, -1, shape[1]) + 0.3
    logits[torch.arange(len(labels)), labels] += 1
    expected = functional_by_definition(logits.numpy(), labels.numpy(), keep, centered)
    order = torch.randperm(len(labels), generator=gen)
    for given_as, y in ((logits, labels), (100 * logits[order], labels[order])):
        assert int(geometry.functional_rank(given_as, y, keep=keep, centered=centered)) == expected


def test_functional_rank_limits(gen: torch.Generator) -> None:
    labels = torch.arange(60) % 12
    circle = (geometry.circle_code(12)[labels] @ geometry.circle_code(12).T).float()
    assert int(geometry.functional_rank(circle, labels)) == 2
    assert int(geometry.functional_rank(circle + 1e-3 * torch.randn(60, 12, generator=gen), labels, keep=1.0)) == 2
    constant = torch.randn(12, generator=gen).expand(60, 12)
    assert int(geometry.functional_rank(constant, labels)) == 0


def test_a_share_of_a_count_is_not_rounded_up() -> None:
    """The share 0.6 is a little more in float32, and there 15 of 25 would not be enough."""
    labels = (torch.arange(25) >= 15).long()
    logits = torch.eye(2)[labels] + torch.tensor([0.5, 0.0])
    assert int(geometry.functional_rank(logits, labels, keep=0.6)) == 0  # a constant guess, right 15 times
    assert int(geometry.functional_rank(logits, labels, keep=0.61)) == 1


@given(st.integers(0, 99), st.sampled_from([(80, 6, 9), (40, 12, 3)]), st.sampled_from([0.5, 0.99, 1.0]), st.booleans())
def test_head_subspace_by_definition(seed: int, shape: tuple[int, int, int], keep: float, biased: bool) -> None:
    n, d, c = shape
    gen = torch.Generator().manual_seed(seed)
    weight, bias = torch.randn(c, d, generator=gen, dtype=torch.float64), 0.3 * torch.randn(c, generator=gen).double()
    features = torch.randn(n, d, generator=gen, dtype=torch.float64) * torch.logspace(0, -2, d) + 0.5
    labels = (features @ weight.T).argmax(1)
    head = weight, bias if biased else None
    found = geometry.head_subspace(features, labels, *head, keep=keep)
    x, w, b = features.numpy(), weight.numpy(), bias.numpy() if biased else 0.0
    _, _, axes = np.linalg.svd(x - x.mean(0), full_matrices=False)

    def with_first(k: int, y: np.ndarray) -> np.ndarray:
        return x.mean(0) + (y - x.mean(0)) @ axes[:k].T @ axes[:k]

    def fewest(y: np.ndarray, labels: np.ndarray) -> int:
        right = [np.mean((h @ w.T + b).argmax(1) == labels) for h in (y, *(with_first(k, y) for k in range(d + 1)))]
        return next(k for k in range(d + 1) if right[1 + k] >= keep * right[0] - 1e-12)

    assert int(found.dim) == fewest(x, labels.numpy())
    np.testing.assert_allclose(found.project(features).numpy(), with_first(int(found.dim), x), atol=1e-9)
    other, wanted = features.flip(1)[:31] + 0.1, labels[:31]
    assert int(found.on(other, wanted, *head, keep=keep).dim) == fewest(other.numpy(), wanted.numpy())


@pytest.mark.parametrize(("index", "name"), [(0, "features"), (2, "the weight of the head"), (3, "the bias of the head")])
def test_head_subspace_refuses_what_is_no_number(gen: torch.Generator, index: int, name: str) -> None:
    """Every class guessed by NaN is the same class: a constant guess would seem to be as good."""
    arguments = [torch.randn(9, 4, generator=gen), torch.arange(9) % 3, torch.randn(3, 4, generator=gen), torch.zeros(3)]
    arguments[index].view(-1)[2] = torch.nan
    with pytest.raises(ValueError, match=f"{name} must not be NaN or infinite"):
        geometry.head_subspace(*arguments, keep=0.9)


FIGURE_6 = {  # n = 100, column softmax, gamma = 1e-3, mean of 10 seeds: protocol 5.4
    1: [1, 2, 2, 4, 6, 8.1, 11, 12.6, 9.2, 2.1],
    2: [1, 3, 3.7, 11.1, 21.9, 37.7, 38.8, 25.4, 12.4, 10.9],
    3: [1, 4, 5.7, 24.5, 54.1, 66.9, 45.0, 27.7, 19.8, 19.2],
    5: [1, 6, 10.5, 63.4, 91.6, 75.1, 50.6, 38.9, 34.0, 33.4],
}
SCALES = [1e-3, 1e-2, 0.1, 1, 3, 10, 30, 100, 1e3, 1e6]


@pytest.mark.parametrize("k", FIGURE_6)
def test_figure_6_within_sampling_error(k: int) -> None:
    """Both means are of 10 draws: four standard errors of their difference, and half a count for lattice effects."""
    matrices = [low_rank(seed, 100, 100, k) for seed in range(10)]
    for scale, published in zip(SCALES, FIGURE_6[k]):
        ranks = [geometry.softmax_rank(m, temperature=1 / scale, of="features", rtol=1e-3) for m in matrices]
        assert all(int(rank.before) == k for rank in ranks)
        after = np.array([int(rank.after) for rank in ranks], dtype=float)
        assert abs(after.mean() - published) <= 4 * after.std(ddof=1) * np.sqrt(2 / 10) + 0.5, scale


def test_figure_6_is_unimodal_and_ends_at_the_number_of_winners() -> None:
    logits = low_rank(4, 80, 30, 3)
    ranks = [int(geometry.softmax_rank(logits, temperature=1 / s, of="features", rtol=1e-3).after) for s in SCALES]
    peak = ranks.index(max(ranks))
    assert ranks[: peak + 1] == sorted(ranks[: peak + 1])
    assert ranks[peak:] == sorted(ranks[peak:], reverse=True)
    assert int(geometry.softmax_rank(logits, temperature=1e-12, of="features", rtol=1e-3).after) == len(
        logits.argmax(1).unique()
    )


@given(st.integers(0, 99), st.floats(0.1, 10))
def test_softmax_rank_sees_logits_over_temperature_up_to_a_shift(seed: int, temperature: float) -> None:
    logits = 3 * low_rank(seed, 25, 9, 2)
    shift = torch.randn(25, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    cold = geometry.softmax_rank(logits / temperature, temperature=1.0, of="covariance", rtol=1e-3)
    assert cold == geometry.softmax_rank(logits, temperature=temperature, of="covariance", rtol=1e-3)
    moved = geometry.softmax_rank(logits + shift, temperature=temperature, of="covariance", rtol=1e-3)
    assert moved.after == cold.after


def test_softmax_rank_warns_for_the_format_of_the_logits() -> None:
    with pytest.warns(UserWarning, match="under the reach"):
        geometry.softmax_rank(low_rank(0, 9, 5, 2).bfloat16(), temperature=1.0, of="features", rtol=1e-3)


def stochastic(kind: int, rows: int, columns: int, gen: torch.Generator) -> torch.Tensor:
    """Random matrices with probability columns, from nearly uniform to nearly one-hot."""
    draws = torch.randn(rows, columns, generator=gen, dtype=torch.float64)
    if kind == 0:
        return torch.softmax(draws * 10 ** (4 * torch.rand(1, generator=gen, dtype=torch.float64) - 2), 0)
    if kind == 1:  # nearly one-hot
        return torch.softmax(200 * draws, 0)
    if kind == 2:  # repeated columns
        return torch.softmax(3 * draws, 0)[:, torch.randint(columns, (columns,), generator=gen)]
    if kind == 3:  # nearly disjoint columns, where the lower disc is not empty
        return torch.softmax(draws + 12 * torch.eye(rows, columns, dtype=torch.float64), 0)
    return torch.nn.functional.one_hot(torch.randint(rows, (columns,), generator=gen), rows).T.double()


def gap(s: torch.Tensor) -> float:
    """sigma_1 - sigma_n of n columns, with sigma_n = 0 where there are fewer rows than columns."""
    sigma = torch.linalg.svdvals(s)
    return float(sigma[0] - (sigma[-1] if len(s) >= s.shape[1] else 0))


@pytest.mark.parametrize("kind", range(5))
def test_no_matrix_in_ten_thousand_exceeds_the_bound(gen: torch.Generator, kind: int) -> None:
    shapes = [(3, 7), (9, 4), (6, 5), (12, 2)]
    informative = 0
    for draw in range(2000):
        s = stochastic(kind, *shapes[draw % 4], gen)
        sharp, plain = (float(geometry.softmax_gap_bound(s, sharp=sharp)) for sharp in (True, False))
        assert -1e-12 <= gap(s) <= sharp + 1e-7
        assert sharp <= plain + 1e-12
        informative += sharp < plain - 1e-3
    assert informative > 0


def test_the_bound_at_its_limits() -> None:
    same = torch.zeros(4, 9, dtype=torch.float64)
    same[0] = 1
    for sharp in (False, True):
        assert np.isclose(geometry.softmax_gap_bound(same, sharp=sharp), gap(same))
    identity = torch.eye(7, 5, dtype=torch.float64)
    assert gap(identity) == float(geometry.softmax_gap_bound(identity, sharp=True)) == 0
    assert np.isclose(geometry.softmax_gap_bound(identity, sharp=False), 1 - 7**-0.5)


def test_the_bound_wants_columns(gen: torch.Generator) -> None:
    rows = torch.softmax(torch.randn(5, 8, generator=gen), 1)
    bound = geometry.softmax_gap_bound(rows.T, sharp=True)
    for same in (rows.T.double(), rows.T.double().numpy()):  # the sums of which are as far from 1 as in float32
        assert torch.allclose(geometry.softmax_gap_bound(same, sharp=True), bound)
    with pytest.raises(ValueError, match="transpose"):
        geometry.softmax_gap_bound(rows, sharp=True)
    with pytest.raises(ValueError, match="an entry is"):
        geometry.softmax_gap_bound(torch.tensor([[2.0, 0.0], [-1.0, 1.0]]), sharp=True)


@pytest.mark.parametrize(("scale", "rank"), [(1, 9), (10, 25), (30, 41), (100, 75), (180, 100), (1465, 100)])
def test_the_circle_code_has_two_dimensions_before_and_many_after(scale: float, rank: int) -> None:
    code = geometry.circle_code(100)
    logits = scale * code @ code.T
    assert torch.equal(logits.argmax(1), torch.arange(100))
    found = geometry.softmax_rank(logits, temperature=1.0, of="features", rtol=1e-3)
    assert int(found.before) == 2
    assert abs(int(found.after) - rank) <= (scale >= 180)
    assert int(geometry.numerical_rank(logits, of="features", rtol=1e-12, centered=False)) == 2


@given(st.integers(3, 60), st.integers(0, 99))
def test_the_circle_code_classifies_any_sample_of_labels(classes: int, seed: int) -> None:
    labels = torch.randint(classes, (31,), generator=torch.Generator().manual_seed(seed))
    code = geometry.circle_code(classes)
    logits = code[labels] @ code.T
    assert torch.equal(logits.argmax(1), labels)
    assert int(geometry.numerical_rank(logits, of="features", rtol=1e-12, centered=False)) <= 2


@pytest.mark.parametrize(("classes", "exact", "bound"), [(10, 15.1, 23), (100, 1465, 3442), (1000, 1.46e5, 4.6e5)])
def test_the_scale_of_the_circle_code_is_the_protocols(classes: int, exact: float, bound: float) -> None:
    scale = geometry.circle_scale(classes, 0.9)
    assert np.isclose(scale, exact, rtol=5e-3)
    assert np.isclose(geometry.circle_scale_bound(classes, 0.9), bound, rtol=2e-2)


@given(st.integers(2, 300), st.floats(0.01, 0.999))
def test_the_scale_gives_the_wanted_probability(classes: int, share: float) -> None:
    probability = 1 / classes + share * (1 - 1 / classes)
    scale = geometry.circle_scale(classes, probability)
    assert 0 < scale <= geometry.circle_scale_bound(classes, probability)
    code = geometry.circle_code(classes)
    assert np.isclose(torch.softmax(scale * code @ code[0], 0)[0], probability, rtol=1e-6)


def test_logits_that_are_not_numbers_are_refused() -> None:
    bad = torch.eye(3)
    bad[1, 2] = torch.nan
    with pytest.raises(ValueError, match="logits must not be NaN or infinite"):
        geometry.functional_rank(bad, torch.arange(3))
    with pytest.raises(ValueError, match="must not be NaN or infinite"):
        geometry.softmax_rank(bad, temperature=1.0, of="features", rtol=1e-3)
    for sharp in (False, True):
        with pytest.raises(ValueError, match="columns must be probability vectors"):
            geometry.softmax_gap_bound(bad, sharp=sharp)
