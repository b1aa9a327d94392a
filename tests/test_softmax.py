"""Temperature maths: limits, laws, and float64 oracles from scipy."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from thermocline import softmax

temperatures = st.sampled_from([1e-3, 0.1, 1.0, 7.0, 200.0, 1e4])


def logits(seed: int, shape: tuple[int, ...] = (7, 11), scale: float = 5.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.integers(0, 99), temperatures)
def test_softmax_matches_scipy(seed: int, temperature: float) -> None:
    e = logits(seed)
    assert torch.allclose(
        softmax.softmax(e, temperature=temperature),
        torch.from_numpy(scipy.special.softmax(e.numpy() / temperature, -1)),
        atol=1e-14,
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32])
@pytest.mark.parametrize("loss", ["tempered_cross_entropy", "tempered_mse", "logit_norm_cross_entropy"])
def test_labels_may_be_integers_of_any_size(loss: str, dtype: torch.dtype) -> None:
    e, y, function = logits(0), torch.arange(7), getattr(softmax, loss)
    assert torch.equal(function(e, y.to(dtype), temperature=2.0), function(e, y, temperature=2.0))


@pytest.mark.parametrize("temperature", [1e-39, 1e-30, torch.tensor(1e-39)])
def test_no_temperature_is_too_cold(temperature: float | torch.Tensor) -> None:
    e = torch.tensor([[1.0, 2.0, -torch.inf], [1e30, 1.0, 2.0], [-3.0, -4.0, -3.0]], requires_grad=True)
    picked = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
    assert torch.equal(softmax.softmax(e, temperature=temperature), picked)
    found = softmax.entropy(e, temperature=temperature)
    assert torch.allclose(found, torch.tensor([0.0, 0.0, math.log(2)]))
    (slope,) = torch.autograd.grad(found.sum(), e)
    assert slope.isfinite().all()


@given(st.integers(0, 99), temperatures, st.floats(-1e3, 1e3))
def test_shifting_logits_changes_nothing(seed: int, temperature: float, shift: float) -> None:
    e, y = logits(seed), torch.arange(7)
    for function in (
        lambda z: softmax.softmax(z, temperature=1.0),
        lambda z: softmax.entropy(z),
        lambda z: softmax.tempered_cross_entropy(z, y, temperature=1.0),
    ):
        assert torch.allclose(function(e / temperature), function(e / temperature + shift), rtol=1e-9, atol=1e-9)


@given(st.integers(0, 99), temperatures, st.floats(0.01, 100))
def test_only_the_ratio_of_logits_to_temperature_counts(seed: int, temperature: float, factor: float) -> None:
    e, y = logits(seed), torch.arange(7)
    one = softmax.tempered_cross_entropy(e * factor, y, temperature=temperature * factor)
    assert torch.allclose(one, softmax.tempered_cross_entropy(e, y, temperature=temperature), rtol=1e-10)


@given(st.integers(0, 99), temperatures)
def test_entropy_matches_scipy(seed: int, temperature: float) -> None:
    e = logits(seed)
    entropy = scipy.stats.entropy(scipy.special.softmax(e.numpy() / temperature, -1), axis=-1)
    assert np.allclose(softmax.entropy(e, temperature=temperature), entropy, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("temperature", [1e-3, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_temperatures_stay_finite_with_gradients(temperature: float, dtype: torch.dtype) -> None:
    e = (logits(0, scale=100.0)).to(dtype).requires_grad_()
    value = (
        softmax.tempered_cross_entropy(e, torch.arange(7), temperature=temperature)
        + softmax.entropy(e, temperature=temperature).sum()
    )
    value.backward()
    assert torch.isfinite(value)
    assert e.grad is not None
    assert torch.isfinite(e.grad).all()


def test_entropy_falls_as_beta_grows_by_the_variance() -> None:
    """dH/dbeta = -beta Var_p(e) [protocol law 5]."""
    e = logits(3, (11,))
    beta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(softmax.entropy(e * beta), beta)
    p = softmax.softmax(e * beta.detach(), temperature=1.0)
    variance = (p * e**2).sum() - (p * e).sum() ** 2
    assert math.isclose(slope, -beta.detach() * variance, rel_tol=1e-10)


def test_entropy_limits() -> None:
    assert softmax.entropy(torch.tensor([[0.0, -math.inf, -math.inf]])) == 0
    assert torch.allclose(softmax.entropy(torch.tensor([[0.0, 0.0, -math.inf]])), torch.tensor(2.0).log())
    near_certain = softmax.entropy(torch.tensor([[40.0, 0.0]]))
    assert math.isclose(near_certain, 41 * math.exp(-40), rel_tol=0.05), "-p log p would give 0 in float32"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("loss", [softmax.tempered_cross_entropy, softmax.tempered_mse, softmax.logit_norm_cross_entropy])
def test_losses_of_short_numbers_are_those_of_long_ones(gen: torch.Generator, loss, dtype: torch.dtype) -> None:
    logits, labels = (6e4 * (2 * torch.rand(7, 4, generator=gen) - 1)).to(dtype), torch.arange(7) % 4  # norms beyond float16
    short, long = (loss(x, labels, temperature=0.04) for x in (logits, logits.float()))
    assert short.dtype == torch.float32
    torch.testing.assert_close(short, long)


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_losses_by_their_formulas(gen: torch.Generator, temperature: float, smoothing: float) -> None:
    logits, labels = 3 * torch.randn(7, 4, generator=gen, dtype=torch.float64), torch.tensor([0, 3, 1, 2, 2, 0, 1])
    target = np.eye(4)[labels.numpy()] * (1 - smoothing) + smoothing / 4
    options = {"temperature": temperature, "label_smoothing": smoothing}
    log_p = scipy.special.log_softmax(logits.numpy() / temperature, axis=1)
    assert float(softmax.tempered_cross_entropy(logits, labels, **options)) == pytest.approx(-(target * log_p).sum(1).mean())
    brier = ((np.exp(log_p) - target) ** 2).sum(1).mean()
    assert float(softmax.tempered_mse(logits, labels, **options)) == pytest.approx(brier, rel=1e-14)
    unit = logits.numpy() / np.linalg.norm(logits.numpy(), axis=1, keepdims=True)
    log_p = scipy.special.log_softmax(unit / temperature, axis=1)
    assert float(softmax.logit_norm_cross_entropy(logits, labels, **options)) == pytest.approx(
        -(target * log_p).sum(1).mean(), rel=1e-6
    )


def test_a_temperature_on_the_device_is_the_same_as_a_number(gen: torch.Generator) -> None:
    logits, labels = torch.randn(9, 5, generator=gen), torch.arange(9) % 5
    for loss in (softmax.tempered_cross_entropy, softmax.tempered_mse, softmax.logit_norm_cross_entropy):
        assert torch.equal(loss(logits, labels, temperature=0.3), loss(logits, labels, temperature=torch.tensor(0.3)))


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e5])
def test_temperatures_that_hold_a_target(gen: torch.Generator, scale: float) -> None:
    logits = scale * torch.randn(40, 6, generator=gen, dtype=torch.float64)
    for target in (0.01, 1.0, 50.0):
        t = softmax.temperature_for_norm(logits, target)
        assert float((logits / t).norm() / 40**0.5) == pytest.approx(target)
    for target in (0.05, 0.9, 1.78):
        t = softmax.temperature_for_entropy(logits, target)
        assert float(softmax.entropy(logits, temperature=t).mean()) == pytest.approx(target, rel=1e-5)
    with pytest.raises(ValueError, match="between 0 and 1.792"):
        softmax.temperature_for_entropy(logits, 1.8)


def test_logits_without_size_have_a_documented_temperature() -> None:
    assert float(softmax.temperature_for_norm(torch.zeros(3, 4), 1.0)) == torch.finfo(torch.float32).tiny
    assert float(softmax.temperature_for_entropy(torch.zeros(3, 4), 1.0)) > 0
    for same in (5.0, -1e30):  # as a head of zeros with a bias gives
        logits = torch.full((3, 4), same, requires_grad=True)
        (found := softmax.temperature_for_entropy(logits, 1.0)).backward()
        assert found.item() == softmax.temperature_for_entropy(torch.zeros(3, 4), 1.0).item()
        assert not logits.grad.any()


@pytest.mark.parametrize(("rule", "target"), [(softmax.temperature_for_norm, 0.7), (softmax.temperature_for_entropy, 1.1)])
def test_a_held_temperature_has_the_gradient_of_its_definition(gen: torch.Generator, rule, target: float) -> None:
    logits = 3 * torch.randn(4, 6, generator=gen, dtype=torch.float64)
    tracked = logits.clone().requires_grad_()
    (slope,) = torch.autograd.grad(rule(tracked, target), tracked)
    step, found = 1e-3, torch.empty_like(logits)  # the bisection is good to a millionth
    for place in np.ndindex(*logits.shape):
        ends = []
        for sign in (1, -1):
            moved = logits.clone()
            moved[place] += sign * step
            ends.append(rule(moved, target))
        found[place] = (ends[0] - ends[1]) / (2 * step)
    torch.testing.assert_close(slope, found, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_adaptive_beta_of_short_numbers_is_that_of_long_ones(dtype: torch.dtype) -> None:
    h = torch.linspace(0, 7, 300, dtype=torch.float64).to(dtype)
    assert torch.allclose(softmax.adaptive_beta(h).double(), softmax.adaptive_beta(h.double()), rtol=1e-5)
    assert softmax.adaptive_beta(torch.full((2,), torch.nan, dtype=dtype)).isnan().all()
