"""Ranks and spectra against numpy in float64, from samples and from moments, on lopsided shapes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thermocline import geometry
from thermocline.moments import Moments


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


def test_the_convention_is_required() -> None:
    with pytest.raises(TypeError):
        geometry.numerical_rank(torch.eye(3))  # type: ignore[call-arg]
    with pytest.raises(Exception, match="of"):
        geometry.numerical_rank(torch.eye(3), of="logits", rtol=1e-3)  # type: ignore[arg-type]
