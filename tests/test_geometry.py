"""Ranks and spectra against numpy in float64, from samples and from moments, on lopsided shapes."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thermocline import geometry, probes
from thermocline.moments import ClassMoments, Moments


def cloud(seed: int, n: int, d: int) -> torch.Tensor:
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=gen, dtype=torch.float64) * torch.logspace(0, -4, d) + 3


shapes = st.sampled_from([(50, 8), (8, 50), (30, 29), (2, 5)])


@given(st.integers(0, 99), shapes, st.booleans())
def test_singular_values_match_numpy(seed: int, shape: tuple[int, int], centered: bool) -> None:
    x = cloud(seed, *shape)
    dense = x.numpy() - x.numpy().mean(0) if centered else x.numpy()
    expected = np.linalg.svd(dense, compute_uv=False)
    assert np.allclose(geometry.singular_values(x, centered=centered), expected, rtol=1e-10, atol=1e-12)
    streamed = geometry.singular_values(Moments.of(x), centered=centered)
    assert np.allclose(streamed, expected, atol=1e-7 * expected[0])


@given(st.integers(0, 99), shapes, st.sampled_from([0.3, 1e-1, 1e-2, 1e-3]), st.sampled_from(["features", "covariance"]))
def test_numerical_rank_counts(seed: int, shape: tuple[int, int], rtol: float, of: str) -> None:
    x = cloud(seed, *shape)
    sigma = np.linalg.svd(x.numpy() - x.numpy().mean(0), compute_uv=False)
    expected = int((sigma > rtol * sigma[0]).sum() if of == "features" else (sigma**2 > rtol * sigma[0] ** 2).sum())
    for given_as in (x, Moments.of(x), geometry.singular_values(x)):
        assert int(geometry.numerical_rank(given_as, of=of, rtol=rtol)) == expected


@given(st.integers(0, 99))
def test_ranks_do_not_see_rotation_scale_or_order(seed: int) -> None:
    gen = torch.Generator().manual_seed(seed)
    x = cloud(seed, 40, 7)
    rotation = torch.linalg.qr(torch.randn(7, 7, generator=gen, dtype=torch.float64)).Q
    moved = 13.0 * (x @ rotation)[torch.randperm(40, generator=gen)] + 5
    for measure in (
        lambda y: geometry.numerical_rank(y, of="features", rtol=1e-2).double(),
        geometry.stable_rank,
        geometry.entropy_rank,
    ):
        assert torch.allclose(measure(x), measure(moved), rtol=1e-9)


def test_the_two_conventions_differ_as_the_protocol_says() -> None:
    """One geometric spectrum counts 134 at 1e-3 of features and 67 of the covariance."""
    sigma = torch.tensor(10.0) ** (-3 * torch.arange(200, dtype=torch.float64) / 134)
    assert int(geometry.numerical_rank(sigma, of="features", rtol=1e-3)) == 134
    assert int(geometry.numerical_rank(sigma, of="covariance", rtol=1e-3)) == 67
    assert int(geometry.numerical_rank(sigma, of="features", rtol=1e-3**0.5)) == 67


def test_limits() -> None:
    constant = torch.ones(9, 4)
    assert int(geometry.numerical_rank(constant, of="features", rtol=1e-3)) == 0
    assert float(geometry.stable_rank(constant)) == 0
    assert float(geometry.entropy_rank(constant)) == 0
    one_line = torch.outer(torch.arange(9.0), torch.ones(4))
    assert int(geometry.numerical_rank(one_line, of="covariance", rtol=1e-3)) == 1
    assert np.isclose(geometry.entropy_rank(one_line), 1, atol=1e-5)


def test_rounding_of_the_mean_is_not_a_direction() -> None:
    """0.1 has no exact mean in float64; what centring leaves behind must not count as a rank of 1."""
    for value in (0.1, 1e6 / 3, -7e-9):
        constant = torch.full((23, 4), value, dtype=torch.float64)
        streamed = ClassMoments(4, 3)
        for batch in constant.split(5):
            streamed.update(batch, torch.arange(len(batch)) % 3)
        for given_as in (constant, constant[:5].T, constant.repeat(1, 30), Moments.of(constant), streamed.all):
            assert int(geometry.numerical_rank(given_as, of="features", rtol=1e-3)) == 0
            assert float(geometry.entropy_rank(given_as)) == 0
    barely = torch.full((23, 4), 0.1, dtype=torch.float64)
    barely[0, 2] += 1e-12
    assert int(geometry.numerical_rank(barely, of="features", rtol=1e-3)) == 1


def graded(count: int) -> torch.Tensor:
    """1, then five a decade, none closer than 25 % to a power of ten."""
    return 10 ** -(torch.arange(count, dtype=torch.float64) / 5 - 0.1).clamp(min=0)


def with_spectrum(sigma: torch.Tensor, n: int, d: int, gen: torch.Generator) -> torch.Tensor:
    """A centred (n, d) matrix with these singular values."""
    left = torch.randn(n, len(sigma), generator=gen, dtype=torch.float64)
    right = torch.randn(d, len(sigma), generator=gen, dtype=torch.float64)
    return torch.linalg.qr(left - left.mean(0)).Q @ torch.diag(sigma) @ torch.linalg.qr(right).Q.T


@pytest.mark.parametrize(("n", "d"), [(600, 40), (300, 45), (42, 400), (60, 45)])
@pytest.mark.parametrize("of", ["features", "covariance"])
def test_the_gram_counts_as_the_svd_does_down_to_its_reach(gen: torch.Generator, n: int, d: int, of: str) -> None:
    sigma = graded(40)
    rtols = [10.0**-k for k in range(1, 7)]
    if of == "covariance":
        rtols = [rtol**2 for rtol in rtols]
    x = with_spectrum(sigma, n, d, gen) + 0.01 * torch.randn(d, generator=gen, dtype=torch.float64)
    for given_as in (geometry.singular_values(x), x, Moments.of(x)):
        assert [int(geometry.numerical_rank(given_as, of=of, rtol=rtol)) for rtol in rtols] == [6, 11, 16, 21, 26, 31]


def test_a_tolerance_finer_than_the_gram_takes_the_svd(gen: torch.Generator) -> None:
    x = with_spectrum(graded(60), 400, 70, gen)
    assert [int(geometry.numerical_rank(x, of="features", rtol=rtol)) for rtol in (1e-2, 1e-9)] == [11, 46]


@pytest.mark.parametrize(
    ("dtype", "fine", "coarse"), [(torch.bfloat16, 1e-3, 1e-2), (torch.float16, 1e-4, 1e-3), (torch.float32, 1e-8, 1e-6)]
)
def test_a_tolerance_under_the_reach_of_the_format_warns(
    gen: torch.Generator, dtype: torch.dtype, fine: float, coarse: float
) -> None:
    x = torch.outer(torch.randn(64, generator=gen), torch.randn(9, generator=gen)).to(dtype)
    with pytest.warns(UserWarning, match="under the reach"):
        assert int(geometry.numerical_rank(x, of="features", rtol=fine / 100, centered=False)) > 1
    with pytest.warns(UserWarning, match="under the reach"):
        geometry.numerical_rank(x, of="covariance", rtol=fine**2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert int(geometry.numerical_rank(x, of="features", rtol=coarse, centered=False)) == 1
        geometry.numerical_rank(x, of="covariance", rtol=coarse**2)
        geometry.numerical_rank(geometry.singular_values(x), of="features", rtol=fine)
        geometry.numerical_rank(Moments.of(x), of="features", rtol=1e-6)
    with pytest.warns(UserWarning, match="under the reach"):
        geometry.numerical_rank(Moments.of(x), of="features", rtol=1e-7)


def test_the_convention_is_required() -> None:
    with pytest.raises(TypeError):
        geometry.numerical_rank(torch.eye(3))  # type: ignore[call-arg]
    with pytest.raises(Exception, match="of"):
        geometry.numerical_rank(torch.eye(3), of="logits", rtol=1e-3)  # type: ignore[arg-type]


def test_a_spectrum_is_sorted_first() -> None:
    sigma = torch.tensor([1e-5, 1.0, 0.5])
    assert geometry.singular_values(sigma).tolist() == sorted(sigma.tolist(), reverse=True)
    assert int(geometry.numerical_rank(sigma, of="features", rtol=1e-3)) == 2
    assert np.isclose(geometry.stable_rank(sigma), 1.25)
    assert geometry.entropy_rank(sigma) == geometry.entropy_rank(sigma.sort().values)
    assert torch.equal(sigma, torch.tensor([1e-5, 1.0, 0.5]))


def test_whole_numbers_numpy_and_class_moments_are_clouds() -> None:
    x = torch.tensor([[3, 0], [-3, 0], [0, 1], [0, -1], [3, 0]])
    expected = np.linalg.svd(x.numpy() - x.double().numpy().mean(0), compute_uv=False)
    swapped = x.double().numpy().astype(">f8")
    for same in (x, x.numpy(), x.double().numpy(), swapped, ClassMoments.of(x.double(), torch.arange(5) % 2, classes=2)):
        assert np.allclose(geometry.singular_values(same), expected)
        assert int(geometry.numerical_rank(same, of="features", rtol=1e-3)) == 2
    assert int(geometry.numerical_rank(np.array([1, 0, 7]), of="features", rtol=1e-3)) == 2


MEASURES = {
    "singular_values": geometry.singular_values,
    "rank by SVD": lambda x: geometry.numerical_rank(x, of="features", rtol=1e-9),
    "rank by Gram": lambda x: geometry.numerical_rank(x, of="covariance", rtol=1e-3, centered=False),
    "stable_rank": geometry.stable_rank,
    "entropy_rank": lambda x: geometry.entropy_rank(x, centered=False),
}


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.filterwarnings("ignore:a tolerance of:UserWarning")
def test_nan_and_infinity_have_no_rank(gen: torch.Generator, name: str, value: float) -> None:
    for shape in ((9, 8), (60, 5), (5, 60)):
        x = torch.randn(*shape, generator=gen)
        x[2, 3] = value
        classes = ClassMoments.of(x, torch.arange(len(x)) % 3, classes=3)
        for cloud in (x, Moments.of(x), classes, x.flatten().abs() if value != -float("inf") else x.flatten()):
            with pytest.raises(ValueError, match="must not be NaN or infinite"):
                MEASURES[name](cloud)


def test_vectors_and_moments_that_are_no_spectrum_are_refused() -> None:
    with pytest.raises(ValueError, match="singular values, which are at least 0, got -2"):
        geometry.stable_rank(torch.tensor([1.0, -2.0]))
    for empty in (torch.zeros(0), Moments(3), Moments(0), ClassMoments(3, 2), np.zeros((0, 3)), np.zeros((3, 0))):
        with pytest.raises(ValueError, match="at least one sample and one feature"):
            geometry.entropy_rank(empty)


@pytest.mark.parametrize("rtol", [0.0, -1e-3, 1.0, 50.0, float("nan")])
def test_a_tolerance_is_a_fraction(rtol: float) -> None:
    with pytest.raises(ValueError, match="rtol is a fraction of the largest singular value"):
        geometry.numerical_rank(torch.eye(3), of="features", rtol=rtol)
    with pytest.raises(ValueError, match="rtol is a fraction of the largest eigenvalue"):
        geometry.neural_collapse(torch.eye(3), torch.arange(3), torch.eye(3), rtol=rtol)


def test_arrays_are_read_as_tensors_are(gen: torch.Generator) -> None:
    x, w, y = torch.randn(60, 5, generator=gen), torch.randn(3, 5, generator=gen), torch.arange(60) % 3
    logits, p = x @ w.T, torch.softmax(x, 1).T
    asked = (
        (lambda x, y, w: Moments.of(x).scatter, x, y, w),
        (lambda x, y, w: ClassMoments.of(x, y, classes=3).within, x, y, w),
        (lambda x, y, w: torch.stack(geometry.neural_collapse(x, y, w, w[:, 0])), x, y, w),
        (lambda x, y, w: geometry.functional_rank(x, y), logits, y, w),
        (lambda x, y, w: geometry.head_subspace(x, y, w, w[:, 0], keep=0.9).dim, x, y, w),
        (lambda x, y, w: geometry.alignment(w, x, top=2).matrix, x, y, w),
        (lambda x, y, w: geometry.gradient_rank(w, of="features", rtol=1e-3), x, y, w),
        (lambda x, y, w: geometry.softmax_gap_bound(x, sharp=True), p, y, w),
        (lambda x, y, w: probes.Probe(torch.eye(2, 5), torch.zeros(2)).predict(x), x, y, w),
    )
    for function, *inputs in asked:
        arrays = [one.numpy() for one in inputs]
        arrays[1] = arrays[1].astype(np.uint8)
        assert torch.equal(function(*arrays), function(*inputs))
