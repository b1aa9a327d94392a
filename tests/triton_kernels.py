"""Triton kernels against the definition in float64: on a GPU compiled, elsewhere by Triton's own interpreter.

They cannot be compiled through the shape checks that are on in tests, so test_attention_triton.py runs this file without them,
and with TRITON_INTERPRET=1 where there is no GPU.
"""

import functools
import math

import pytest
import torch

from thermocline import attention
from thermocline.attention import PUBLISHED, EffectiveItems, Fixed, LogLength, Surface, adaptive_attention
from thermocline.attention import triton as backend
from thermocline.attention.call import checked

CUDA = torch.cuda.is_available()
pytestmark = pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")  # numpy's, of -inf inside the interpreter
on_gpu = pytest.mark.skipif(not CUDA, reason="needs a GPU")
DEVICE = "cuda" if CUDA else "cpu"
RULES = {rule.name: rule for rule in (PUBLISHED, EffectiveItems(2.0, 1.5), LogLength(4), Fixed(0.5))}
RULES["surface"] = Surface((1.0, 0.5, 0.25, 0.1, 0.2, 0.05), 2, 3.0)
MANY = {  # b, h, g, queries, keys, d: never square where it can be helped
    "square": (1, 2, 2, 70, 70, 16), "chunk": (2, 4, 2, 33, 90, 24), "more queries": (1, 2, 1, 50, 40, 16),
}  # fmt: skip
FEW = {  # the same, and e
    "decoding": (2, 2, 2, 1, 70, 16, 24), "grouped": (1, 6, 2, 1, 81, 24, 16), "draft": (1, 4, 1, 3, 50, 16, 16),
    "more queries": (1, 3, 1, 5, 4, 16, 16),
}  # fmt: skip


def draw(*shape: int, seed: int, size: float = 2.0, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    gen = torch.Generator().manual_seed(seed)
    return (size * torch.randn(*shape, generator=gen)).to(dtype).to(DEVICE)


def defined(q, k, v, *, causal, window, rule):
    return adaptive_attention(
        q.double(), k.double(), v.double(), causal=causal, window=window, rule=rule, backend="reference", return_stats=True
    )


def gap(one: torch.Tensor, two: torch.Tensor) -> float:
    return float((one.double() - two.double()).abs().max())


@pytest.mark.parametrize("window", [None, 5, 40])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shape", MANY)
def test_statistics_are_the_definition(shape: str, causal: bool, window: int | None) -> None:
    b, h, g, queries, keys, d = MANY[shape]
    q, k = draw(b, h, queries, d, seed=1), draw(b, g, keys, d, seed=2)
    _, expected = defined(q, k, k, causal=causal, window=window, rule=PUBLISHED)
    call = checked(q, k, k, causal=causal, scale=None, mask=None, window=window)
    sharp, entropy, beta = backend.statistics(call, PUBLISHED.form, block=(16, 16, 4, 1))
    assert gap(entropy, expected.entropy) < 1e-5
    assert gap(beta, expected.beta) < 1e-5
    assert gap(sharp, expected.beta[..., None] * q) < 2e-2  # rounded to a half


LAYOUTS = {  # keys (2, 2, 40, d) as models keep them, and as no copy engine reads them
    "heads inside": lambda: draw(2, 40, 2, 16, seed=6).transpose(1, 2),
    "part of a cache": lambda: draw(2, 2, 64, 16, seed=6)[:, :, 3:43],
    "one for all": lambda: draw(1, 1, 40, 16, seed=6).expand(2, 2, -1, -1),
    "rows of 20": lambda: draw(2, 2, 40, 20, seed=6),
    "rows 17 apart": lambda: draw(2, 2, 40, 17, seed=6)[..., :16],
    "begins off": lambda: draw(2, 2, 41, 16, seed=6).flatten()[3 : 3 + 2 * 2 * 40 * 16].view(2, 2, 40, 16),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_keys_may_lie_in_memory_as_they_like(layout: str) -> None:
    k = LAYOUTS[layout]()
    q = draw(2, 2, 40, k.shape[3], seed=7)
    _, expected = defined(q, k, k, causal=True, window=None, rule=PUBLISHED)
    call = checked(q, k, k, causal=True, scale=None, mask=None, window=None)
    assert gap(backend.statistics(call, PUBLISHED.form, block=(16, 16, 4, 1))[1], expected.entropy) < 1e-5


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shape", FEW)
def test_decoding_is_the_definition(shape: str, causal: bool, window: int | None) -> None:
    b, h, g, queries, keys, d, e = FEW[shape]
    q, k, v = draw(b, h, queries, d, seed=1), draw(b, g, keys, d, seed=2), draw(b, g, keys, e, seed=3)
    rule = list(RULES.values())[(queries + causal + 2 * bool(window)) % len(RULES)]
    expected, stats = defined(q, k, v, causal=causal, window=window, rule=rule)
    call = checked(q, k, v, causal=causal, scale=None, mask=None, window=window)
    got = backend.decode(call, rule.form, splits=3, block=(16, 4, 1))
    assert gap(got.entropy, stats.entropy) < 1e-5
    assert gap(got.beta, stats.beta) < 1e-5
    assert gap(got.out, expected) < 5e-3


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_its_form(rule: str) -> None:
    """At entropies and lengths of all sizes: kernels see the form, everything else the rule."""
    q, k = draw(1, 1, 64, 16, seed=4, size=1.0), draw(1, 1, 64, 16, seed=5, size=1.0)
    call = checked(q, k, k, causal=True, scale=None, mask=None, window=None)
    _, entropy, beta = backend.statistics(call, RULES[rule].form, block=(16, 16, 4, 1))
    n = torch.arange(1.0, 65, device=DEVICE).expand_as(entropy)
    assert torch.allclose(beta, RULES[rule](entropy, n), atol=1e-5)


def test_large_logits_cost_no_accuracy() -> None:
    """Entropies of logits in the hundreds, all alike but for one: differences of large numbers would show."""
    q = torch.full((1, 1, 16, 16), 8.0, dtype=torch.float16, device=DEVICE)
    k = torch.full((1, 1, 48, 16), 8.0, dtype=torch.float16, device=DEVICE)
    k[0, 0, 7] = 8.0078125
    _, expected = defined(q, k, k, causal=False, window=None, rule=PUBLISHED)
    call = checked(q, k, k, causal=False, scale=None, mask=None, window=None)
    assert gap(backend.statistics(call, PUBLISHED.form, block=(16, 16, 4, 1))[1], expected.entropy) < 1e-4
    assert gap(backend.decode(call, PUBLISHED.form, splits=2, block=(16, 4, 1)).entropy, expected.entropy) < 1e-4


def test_beta_is_held_to_what_float16_can_write() -> None:
    q, k = draw(1, 1, 16, 16, seed=1, size=8.0), draw(1, 1, 48, 16, seed=2, size=0.01)
    call = checked(q, k, k, causal=False, scale=None, mask=None, window=None)
    sharp, _, beta = backend.statistics(call, Fixed(1e5).form, block=(16, 16, 4, 1))
    assert sharp.isfinite().all()
    assert torch.allclose(beta, 65504 / q.abs().amax(-1).float())


@functools.cache
def shapes() -> list[tuple[int, ...]]:
    """Lopsided sizes around those of blocks, drawn once."""
    gen = torch.Generator().manual_seed(6)
    some = torch.stack([torch.randint(1, most, (24,), generator=gen) for most in (3, 4, 4, 300, 400)], 1)
    return [tuple(row) for row in some.tolist()]


@on_gpu
@pytest.mark.parametrize("which", range(24))
def test_on_a_gpu_it_is_the_definition(which: int) -> None:
    b, g, group, queries, keys = shapes()[which]
    dtype, width = (torch.float16, torch.bfloat16)[which // 2 % 2], (64, 128, 40, 96)[which // 3 % 4]
    q = draw(b, g * group, queries, width, seed=which, size=1.0, dtype=dtype)
    k, v = (draw(b, g, keys, width, seed=seed, size=1.0, dtype=dtype) for seed in (100 + which, 200 + which))
    causal, window = bool(which % 2), (None, 33, None)[which % 3]
    expected, stats = defined(q, k, v, causal=causal, window=window, rule=PUBLISHED)
    out, got = adaptive_attention(q, k, v, causal=causal, window=window, return_stats=True)
    assert got.choice == ("triton", "the first that can")
    assert gap(got.entropy, stats.entropy) < 1e-4
    assert gap(got.beta, stats.beta) < 1e-3
    assert gap(out, expected) < (8e-2 if dtype == torch.bfloat16 else 1e-2)
    assert torch.equal(got.n.float().expand(b, g * group, -1), stats.n.float().expand(b, g * group, -1))


@on_gpu
def test_rules_without_a_form_go_through_torch() -> None:
    q, k = draw(1, 4, 200, 64, seed=1, size=1.0), draw(1, 2, 300, 64, seed=2, size=1.0)

    class Odd:
        name = "odd"

        def __call__(self, entropy, n):
            return 1 + entropy.sin().abs() / n.clamp(min=1).log1p()

    for one in (q, q[:, :, :1]):
        expected, stats = defined(one, k, k, causal=True, window=None, rule=Odd())
        out, got = adaptive_attention(one, k, k, causal=True, rule=Odd(), return_stats=True)
        assert got.choice.backend == "triton"
        assert gap(got.beta, stats.beta) < 1e-4
        assert gap(out, expected) < 1e-2


@on_gpu
def test_memory_is_linear() -> None:
    q = draw(1, 2, 16384, 64, seed=1, size=1.0)
    adaptive_attention(q, q, q, causal=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    adaptive_attention(q, q, q, causal=True)
    assert torch.cuda.max_memory_allocated() - before < 8 * q.numel() * q.element_size()


@on_gpu
def test_rows_of_a_transposed_cache_and_gradients() -> None:
    q = draw(2, 300, 4, 64, seed=1, size=1.0).transpose(1, 2)
    expected, _ = defined(q, q, q, causal=True, window=None, rule=PUBLISHED)
    assert gap(adaptive_attention(q, q, q, causal=True), expected) < 1e-2
    odd = draw(1, 2, 64, 70, seed=1, size=1.0).mT  # not dense along its width
    expected, _ = defined(odd, odd, odd, causal=True, window=None, rule=PUBLISHED)
    assert gap(adaptive_attention(odd, odd, odd, causal=True), expected) < 1e-2
    with pytest.raises(ValueError, match="gradients are wanted"):
        adaptive_attention(q.clone().requires_grad_(), q, q, causal=True, backend="triton")
    assert attention.backend_for(q.clone().requires_grad_(), q, q).backend == "reference"
    assert not math.isnan(float(adaptive_attention(q, q, q, causal=True).sum()))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("part", ["q", "k"])
def test_a_row_that_sees_nan_or_infinity_is_nan(part: str, bad: float) -> None:
    """Of hidden keys statistics know nothing; the output is for torch's kernels to make, of decoding for ours."""
    shown = {"q": draw(1, 2, 3, 16, seed=1), "k": draw(1, 2, 40, 16, seed=2)}
    v = draw(1, 2, 40, 16, seed=3)
    shown[part][0, 1, 1 if part == "q" else 38] = bad  # the last key but one, which queries 1 and 2 see
    _, expected = defined(shown["q"], shown["k"], v, causal=True, window=None, rule=PUBLISHED)
    call = checked(shown["q"], shown["k"], v, causal=True, scale=None, mask=None, window=None)
    got = backend.decode(call, PUBLISHED.form, splits=2, block=(16, 4, 1))
    _, entropy, beta = backend.statistics(call, PUBLISHED.form, block=(16, 16, 4, 1))
    assert expected.entropy.isnan().sum() == (1 if part == "q" else 2)
    for number in (got.entropy, got.beta, entropy, beta):
        assert torch.equal(number.isnan(), expected.entropy.isnan())
    assert torch.equal(got.out.isnan().all(-1), expected.entropy.isnan())
