"""How a stream is cut cannot change the answer; float64 against numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thermocline.moments import ClassMoments, Moments


def sample(seed: int, n: int = 41, d: int = 6) -> torch.Tensor:
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    return x @ torch.diag(torch.logspace(-2, 2, d)) + 100


@given(st.integers(0, 99), st.lists(st.integers(0, 41), max_size=5), st.booleans())
def test_any_cut_and_any_merge_order_agree(seed: int, cuts: list[int], backwards: bool) -> None:
    x, y = sample(seed), torch.arange(41) % 4
    pieces = list(zip(torch.tensor_split(x, sorted(cuts)), torch.tensor_split(y, sorted(cuts))))
    whole = ClassMoments.of(x, y, classes=5)
    joined = ClassMoments(6, 5)
    for a, b in reversed(pieces) if backwards else pieces:
        part = ClassMoments(6, 5)
        part.update(a, b)
        joined.merge(part)
    assert joined.all.count == 41
    assert torch.allclose(joined.all.mean, whole.all.mean, rtol=1e-12)
    assert torch.allclose(joined.all.scatter, whole.all.scatter, rtol=1e-9, atol=1e-9)
    assert torch.equal(joined.counts, whole.counts)
    assert torch.allclose(joined.means, whole.means, rtol=1e-12)


def test_against_numpy_far_from_the_origin(gen: torch.Generator) -> None:
    """Mean 100, std 0.1: float32 second moments are 34 % off here."""
    x = 100 + 0.1 * torch.randn(5000, 3, generator=gen)
    m = Moments(3)
    for batch in x.split(7):
        m.update(batch)
    assert np.allclose(m.covariance(ddof=1), np.cov(x.double().numpy(), rowvar=False), rtol=1e-10)
    assert np.allclose(m.second_moment(), x.double().T @ x.double(), rtol=1e-12)


def test_class_means_and_absent_classes() -> None:
    x = torch.tensor([[1.0], [3.0], [10.0]])
    m = ClassMoments.of(x, torch.tensor([0, 0, 2]), classes=4)
    assert m.counts.tolist() == [2, 0, 1, 0]
    assert m.means.flatten().tolist() == [2, 0, 10, 0]


def test_a_covariance_needs_samples() -> None:
    with pytest.raises(ValueError, match="more than 1"):
        Moments.of(torch.zeros(1, 3)).covariance(ddof=1)
