"""How cold a row should be: the published polynomial, rules that keep acting, and fitting one."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thermocline import attention, softmax
from thermocline.attention import PLAIN, PUBLISHED, EffectiveItems, Fixed, LogLength, Polynomial, Surface
from thermocline.attention.rules import named, powers
from thermocline.spec import InputError

RULES = [PLAIN, PUBLISHED, Fixed(2.0), LogLength(16), EffectiveItems(3.0), Surface((1.0, 0.1, 0.1), 1, 4.0)]


def logits(seed: int, shape: tuple[int, ...] = (9, 40), scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def published(e: np.ndarray) -> np.ndarray:
    """The published procedure, in numpy."""

    def normal(z: np.ndarray) -> np.ndarray:
        w = np.exp(z - z.max(-1, keepdims=True))
        return w / w.sum(-1, keepdims=True)

    p = normal(e)
    h = -(p * np.log(p + 1e-9)).sum(-1, keepdims=True)
    beta = np.where(h > 0.5, np.maximum(np.polyval([-0.037, 0.481, -2.3, 4.917, -1.791], h), 1.0), 1.0)
    return normal(e * beta)


@given(st.integers(0, 99), st.sampled_from([0.1, 1.0, 3.0, 10.0]), st.sampled_from([1, 2, 40, 900]))
def test_adaptive_softmax_is_the_published_one(seed: int, scale: float, n: int) -> None:
    e = logits(seed, (5, n), scale)
    assert np.allclose(softmax.adaptive_softmax(e), published(e.numpy()), atol=1e-5)
    assert torch.allclose(softmax.adaptive_softmax(e.mT, 0), softmax.adaptive_softmax(e).mT, atol=1e-13)


def test_where_the_published_polynomial_acts() -> None:
    h = torch.linspace(0, 12, 120_001, dtype=torch.float64)
    beta = softmax.adaptive_beta(h)
    active = h[beta > 1]
    assert float(active[0]) == pytest.approx(0.849, abs=1e-3)
    assert float(active[-1]) == pytest.approx(5.945, abs=1e-3)
    assert float(h[beta.argmax()]) == pytest.approx(4.41, abs=0.01)
    assert float(beta.max()) == pytest.approx(2.42, abs=0.005)
    assert (beta[h <= 0.5] == 1).all()
    assert (softmax.adaptive_beta(h, (5.0,))[h <= 0.5] == 1).all()


@given(st.integers(0, 99), st.floats(-1e3, 1e3))
def test_shifts_masks_and_order_of_logits(seed: int, shift: float) -> None:
    e = logits(seed)
    p = softmax.adaptive_softmax(e)
    assert torch.allclose(softmax.adaptive_softmax(e + shift), p, atol=1e-9)
    padded = torch.cat([torch.full((9, 3), -math.inf, dtype=torch.float64), e], 1)
    assert torch.allclose(softmax.adaptive_softmax(padded)[:, 3:], p, atol=1e-14)
    assert torch.allclose(softmax.adaptive_softmax(e.flip(1)), p.flip(1), atol=1e-14)
    assert (softmax.masked_entropy(torch.log(p)) <= softmax.entropy(e) + 1e-12).all()


def test_gradients_pass_masks() -> None:
    e = logits(3, (4, 6), 0.5)
    hidden = torch.zeros(4, 6, dtype=torch.bool)
    hidden[0, 2:4] = True
    hidden[3] = True

    def masked(x: torch.Tensor) -> torch.Tensor:
        return softmax.adaptive_softmax(x.masked_fill(hidden, -math.inf))

    assert torch.autograd.gradcheck(masked, [e.requires_grad_()])
    assert not masked(e)[3].any()


def test_halves_are_widened_and_huge_logits_are_finite() -> None:
    e = logits(4, (3, 50), 1e4)
    assert softmax.adaptive_softmax(e.bfloat16()).dtype == torch.float32
    assert torch.allclose(softmax.adaptive_softmax(e).sum(1), torch.ones(3, dtype=torch.float64))


@given(st.integers(0, 99), st.floats(0.1, 5.0), st.floats(1.0, 4.0))
def test_entropy_falls_as_beta_grows(seed: int, beta: float, factor: float) -> None:
    e = logits(seed)
    cold, colder = (softmax.sharpened(e, torch.full((9,), b, dtype=torch.float64)) for b in (beta, beta * factor))
    assert (softmax.masked_entropy(cold.log()) >= softmax.masked_entropy(colder.log()) - 1e-9).all()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_keeps_the_bargain(rule: attention.Rule) -> None:
    assert isinstance(rule, attention.Rule)
    assert rule.name
    entropy = torch.linspace(0, 12, 240).reshape(4, 60)
    n = entropy.exp().ceil().clamp(min=1) * 3
    beta = rule(entropy, n)
    assert beta.shape == entropy.shape
    assert (beta >= 1).all()
    assert torch.isfinite(beta).all()
    assert rule == type(rule)(**{field: getattr(rule, field) for field in rule.__dataclass_fields__})
    with pytest.raises(AttributeError):
        rule.name = "other"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("rule", RULES[:-1], ids=lambda rule: rule.name)
def test_a_rule_goes_by_the_name_it_gives_itself(rule: attention.Rule) -> None:
    q = logits(5, (1, 2, 9, 4), 1.0)
    by_name, itself = (attention.adaptive_attention(q, q, q, causal=True, rule=one) for one in (rule.name, rule))
    assert torch.equal(by_name, itself)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("publishd", "unknown rule 'publishd'; did you mean 'published'?"),
        ("log-length", r"unknown rule 'log-length'; did you mean 'log-length\(TRAINED\)'?"),
        ("effective-items(1, 2, 3)", r"did you mean 'effective-items\(TARGET, EDGE\)'?"),
        ("xyz", "valid: plain, published, fixed"),
        (3, "a rule is a name, e.g. 'published', or is called"),
    ],
)
def test_a_rule_that_is_not_known_is_said(name: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        named(name)


@pytest.mark.parametrize("edge", [0.5, 1.0, 2.0])
def test_effective_items_holds_its_target_at_any_length(edge: float) -> None:
    """Logits with n C t^edge items within t of their bound, and a slope at which the softmax sees only those."""
    rule = EffectiveItems(50.0, edge)
    after = []
    for n in (2**14, 2**17, 2**20):
        rank = (torch.arange(n, dtype=torch.float64) + 0.5) / n
        e = -30 * rank ** (1 / edge)
        beta = rule(softmax.entropy(e[None]), torch.tensor([float(n)], dtype=torch.float64))
        after.append(float(softmax.entropy(beta[:, None] * e).exp()))
    assert after == pytest.approx([50.0] * 3, rel=0.02)
    assert float(PUBLISHED(torch.tensor([9.0]), torch.tensor([2.0**20]))) == 1, "where the published rule has given up"


@given(st.integers(0, 99), st.integers(3, 30))
def test_the_best_beta_is_the_best_of_many(seed: int, n: int) -> None:
    e, best = logits(seed, (6, n)), torch.randint(n, (6,), generator=torch.Generator().manual_seed(seed))
    e[0, best[0] - 1] = -math.inf
    found = attention.best_beta(e, best, bounds=(0.1, 50.0))
    grid = torch.logspace(-1, math.log10(50), 4001, dtype=torch.float64)
    weights = torch.log_softmax(e[:, None] * grid[:, None], -1)[torch.arange(6), :, best]
    ours = torch.log_softmax(e * found[:, None], -1)[torch.arange(6), best]
    assert (ours >= weights.amax(1) - 1e-9).all()
    top = e.argmax(1) == best
    assert torch.allclose(found[top], torch.tensor(50.0, dtype=torch.float64))


def test_a_far_winner_wants_the_upper_bound_and_a_tie_the_lower() -> None:
    e = torch.tensor([[500.0, 0.0, 1.0], [2.0, 2.0, 2.0], [2.0, 2.0, 0.0]])
    found = attention.best_beta(e, torch.tensor([0, 1, 1]), bounds=(0.5, 100.0))
    assert found.tolist() == pytest.approx([100.0, 0.5, 100.0])


def test_a_fit_finds_the_curve_its_rows_lie_on() -> None:
    """Rows of one shape at many sizes, labelled so that the best beta is known: n - 1 equal logits below one above them."""
    rows = []
    for n in (4, 8, 16, 32):
        gaps = torch.linspace(0.5, 3.0, 25, dtype=torch.float64)
        e = torch.zeros(25, n, dtype=torch.float64)
        e[:, 0], e[:, 1] = gaps, gaps / 2
        rows.append((e, torch.ones(25, dtype=torch.int64)))
    for length, kind in ((False, Polynomial), (True, Surface)):
        fitted = attention.fit_beta(rows, degree=3, bounds=(0.05, 20.0), length=length)
        assert isinstance(fitted.rule, kind)
        assert len(fitted.rule.coefficients) == (len(powers(3)) if length else 4)
        residual = fitted.rule(fitted.entropy, fitted.n) - fitted.beta.clamp(1, 20)
        assert float(residual.square().mean()) < float(fitted.beta.clamp(1, 20).var())
    plain = attention.fit_beta(rows, degree=3, bounds=(0.05, 20.0), length=False)
    design = np.polyfit(plain.entropy.numpy(), plain.beta.numpy(), 3)
    assert np.allclose(plain.rule.coefficients, design, rtol=1e-6)


def test_fits_that_cannot_be_made() -> None:
    e, best = logits(0), torch.zeros(9, dtype=torch.int64)
    with pytest.raises(ValueError, match="needs rows of 3 lengths, got 1"):
        attention.fit_beta([(e, best)], degree=2, bounds=(1.0, 9.0), length=True)
    with pytest.raises(ValueError, match="bounds are the least and the largest"):
        attention.best_beta(e, best, bounds=(2.0, 1.0))
    with pytest.raises(ValueError, match="must have a finite logit"):
        attention.best_beta(e.index_fill(1, torch.tensor([0]), -math.inf), best, bounds=(1.0, 2.0))
    with pytest.raises(ValueError, match="degree must be at least 1"):
        attention.fit_beta([(e, best)], degree=0, bounds=(1.0, 9.0), length=False)


@pytest.mark.parametrize("mask", [None, "rows"])
@pytest.mark.parametrize(("causal", "window"), [(True, None), (False, 4), (False, None)])
@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_dispersion_by_its_formulas(monkeypatch: pytest.MonkeyPatch, mask, causal, window, temperature: float) -> None:
    gen = torch.Generator().manual_seed(5)
    q, k = (torch.randn(2, h, n, 8, generator=gen, dtype=torch.float64) for h, n in ((4, 7), (2, 12)))
    seen = torch.rand(2, 1, 7, 12, generator=gen) < 0.6 if mask else None
    options = {"causal": causal, "mask": seen, "window": window, "temperature": temperature}
    found = attention.dispersion(q, k, **options)
    monkeypatch.setattr("thermocline.attention.dispersing._NUMBERS", {"cpu": 1})
    assert all(torch.allclose(a, b, atol=1e-13) for a, b in zip(found, attention.dispersion(q, k, **options)))
    i, j = torch.arange(7)[:, None] + 5, torch.arange(12)
    may = (j <= i) if causal else torch.ones(7, 12, dtype=torch.bool)
    may = may & ((i - j).abs() < window) if window else may
    may = (may if seen is None else may & seen).expand(2, 4, 7, 12)
    e = (q @ k.repeat_interleave(2, 1).mT / math.sqrt(8)).masked_fill(~may, -math.inf)
    p = torch.softmax(e / temperature, -1).nan_to_num(0)
    assert torch.allclose(found.entropy, -torch.xlogy(p, p).sum(-1))
    assert torch.allclose(found.largest, p.amax(-1))
    assert torch.equal(found.n, may.sum(-1).double())
    for x, y, z in np.ndindex(2, 4, 7):
        row = e[x, y, z][may[x, y, z]]
        if len(row):
            assert float(found.spread[x, y, z]) == pytest.approx(float(row.max() - row.min()))
    some = found.n > 0
    smallest = p.masked_fill(~may, math.inf).amin(-1)
    assert (found.largest <= found.upper * (1 + 1e-12)).all()
    assert (smallest >= found.lower * (1 - 1e-12))[some].all()
    assert not found.upper[~some].any()


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        *((f"log-length({trained})", "takes the length of training, 2 or more") for trained in ("0", "1", "-5", "inf", "nan")),
        *((f"effective-items({numbers})", "a target and an edge above 0") for numbers in ("0", "-1", "nan", "4, 0", "4, inf")),
        *((f"fixed({beta})", "a beta of 0 or more") for beta in ("-1", "nan", "inf")),
    ],
)
def test_numbers_that_a_rule_cannot_have_are_refused(rule: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        named(rule)


def test_a_length_is_taken_as_it_is_given() -> None:
    assert named("log-length(16.5)") == LogLength(16.5) != LogLength(16)
