"""Adaptive attention against a loop in numpy, one backend against another, and the laws of both."""

import itertools
import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from thermocline import attention
from thermocline.attention import PUBLISHED, EffectiveItems, Fixed, LogLength, adaptive_attention, entropies, stock
from thermocline.attention.call import checked

SHAPES = {  # b, h, g, q, s, d, e: never square where it can be helped
    "grouped": (2, 4, 2, 5, 9, 8, 8),
    "decoding": (1, 6, 3, 1, 13, 5, 7),
    "chunk": (2, 3, 1, 4, 11, 6, 3),
    "square": (1, 2, 2, 7, 7, 4, 4),
    "more queries": (1, 2, 1, 9, 4, 3, 5),
    "one key": (2, 2, 2, 3, 1, 4, 4),
}
KINDS = ("full", "padding", "rows", "heads", "additive", "hopeless", "bias")
RULES = (PUBLISHED, EffectiveItems(2.0), LogLength(4))


def tensors(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64, size: float = 2.0) -> list[torch.Tensor]:
    b, h, g, q, s, d, e = shape
    gen = torch.Generator().manual_seed(seed)
    return [
        (size * torch.randn(b, heads, length, width, generator=gen, dtype=torch.float64)).to(dtype)
        for heads, length, width in ((h, q, d), (g, s, d), (g, s, e))
    ]


def mask_of(kind: str, shape: tuple[int, ...], seed: int) -> torch.Tensor | None:
    b, h, _, q, s, _, _ = shape
    gen = torch.Generator().manual_seed(seed)
    full = {"padding": (b, 1, 1, s), "heads": (1, h, q, s), "bias": (b, h, q, s), "rows": (q, s)}.get(kind, (b, 1, q, s))
    seen = torch.rand(full, generator=gen) < 0.7
    match kind:
        case "full":
            return None
        case "additive":
            return torch.zeros(full).masked_fill(~seen, -math.inf)
        case "hopeless":
            return torch.zeros(full).masked_fill(~seen, torch.finfo(torch.float32).min)
        case "bias":
            return torch.randn(full, generator=gen).masked_fill(~seen, -math.inf)
    return seen


def oracle(tensors, *, causal, mask, window, rule, scale=None):
    """The definition as a loop over rows, in float64, with the published code's way to write the entropy."""
    q, k, v = (x.double().numpy() for x in tensors)
    (b, h, nq, d), (_, g, ns, _) = q.shape, k.shape
    extra = np.zeros((b, h, nq, ns))
    if mask is not None:
        wide = mask.double().numpy()
        wide = np.where(wide, 0.0, -np.inf) if mask.dtype == torch.bool else np.where(wide < -1e30, -np.inf, wide)
        extra = np.broadcast_to(wide, extra.shape)
    out, entropy, beta = np.zeros((b, h, nq, v.shape[3])), np.zeros((b, h, nq)), np.ones((b, h, nq))
    for x, y, i in itertools.product(range(b), range(h), range(nq)):
        at, head = ns - nq + i, y // (h // g)
        keys = [j for j in range(ns) if extra[x, y, i, j] > -np.inf and (not causal or j <= at)]
        keys = [j for j in keys if window is None or (at - window < j < at + window)]
        if not keys:
            continue
        e = k[x, head, keys] @ q[x, y, i] * (scale or d**-0.5) + extra[x, y, i, keys]
        p = np.exp(e - e.max()) / np.exp(e - e.max()).sum()
        entropy[x, y, i] = max(-(p * np.log(np.maximum(p, 1e-300))).sum(), 0.0)
        beta[x, y, i] = rule(torch.tensor([entropy[x, y, i]]), torch.tensor([float(len(keys))], dtype=torch.float64))[0]
        p = np.exp(beta[x, y, i] * (e - e.max()))
        out[x, y, i] = p @ v[x, head, keys] / p.sum()
    return out, entropy, beta


def differences(got, expected) -> list[float]:
    out, stats = got
    return [float(np.abs(a.double().numpy() - b).max()) for a, b in zip((out, stats.entropy, stats.beta), expected)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (True, 3), (False, 2)])
def test_both_backends_are_the_loop(kind: str, shape: tuple[int, ...], causal: bool, window: int | None) -> None:
    parts, rule = tensors(shape, 1), RULES[len(kind) % 3]
    options = {"causal": causal, "mask": mask_of(kind, shape, 2), "window": window, "rule": rule}
    expected = oracle(parts, **options)
    for backend in ("reference",) if kind == "bias" else ("reference", "sdpa"):
        got = adaptive_attention(*parts, **options, backend=backend, return_stats=True)
        assert max(differences(got, expected)) < 1e-11, backend
        assert got[0].dtype == torch.float64


def test_a_kernel_that_knows_no_groups_is_given_as_many_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, seen = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, []

    def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest, **options) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append({q.shape[1], k.shape[1], v.shape[1]})
        return kernel(q, k, v, *rest, **options)

    monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", plain)
    monkeypatch.setattr(stock, "CPU_GROUPS", False)  # as of torch 2.6
    parts, options = tensors(SHAPES["grouped"], 1), {"causal": False, "mask": None, "window": None, "rule": PUBLISHED}
    got = adaptive_attention(*parts, **options, backend="sdpa", return_stats=True)
    assert seen
    assert all(len(heads) == 1 for heads in seen)
    assert max(differences(got, oracle(parts, **options))) < 1e-11


@given(
    st.tuples(*(st.integers(1, 3) for _ in range(3)), st.integers(1, 40), st.integers(1, 40), st.integers(1, 9)),
    st.sampled_from(KINDS[:-1]),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 12)),
    st.integers(0, 10**6),
)
def test_two_stock_calls_are_the_definition(drawn, kind: str, causal: bool, window: int | None, seed: int) -> None:
    b, g, times, q, s, d = drawn
    shape = (b, g * times, g, q, s, d, d)
    parts = tensors(shape, seed, torch.float32, size=1.5)
    options = {"causal": causal, "mask": mask_of(kind, shape, seed), "window": window, "return_stats": True}
    one, two = (adaptive_attention(*parts, **options, backend=name) for name in ("reference", "sdpa"))
    assert torch.allclose(one[1].entropy, two[1].entropy, atol=1e-5)
    assert torch.allclose(one[0], two[0], atol=2e-5)
    assert torch.equal(one[1].n.expand(b, g * times, q), two[1].n.expand(b, g * times, q))


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("kind", ["full", "padding", "rows", "additive"])
@pytest.mark.parametrize("shape", [(2, 4, 2, 150, 210, 8, 8), (1, 2, 1, 210, 90, 6, 9)], ids=["keys", "queries"])
def test_blocks_of_queries_change_nothing(
    monkeypatch: pytest.MonkeyPatch, kind: str, window: int | None, shape: tuple[int, ...]
) -> None:
    """With more queries than keys there are whole blocks that see nothing."""
    parts, mask = tensors(shape, 3), mask_of(kind, shape, 4)
    options = {"causal": True, "mask": mask, "window": window, "return_stats": True}
    expected = adaptive_attention(*parts, **options, backend="reference")
    for size in (2**22, 2**13, 1):
        monkeypatch.setattr(stock, "MASK", size)
        out, stats = adaptive_attention(*parts, **options, backend="sdpa")
        assert torch.allclose(out, expected[0], atol=1e-12)
        assert torch.allclose(stats.entropy, expected[1].entropy, atol=1e-12)
        assert torch.equal(*torch.broadcast_tensors(stats.n, expected[1].n))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 2e-2), (torch.float16, 2.5e-3)])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_precision_of_each_type(dtype: torch.dtype, tolerance: float, causal: bool, backend: str) -> None:
    """On a CPU halves are computed in float32: only the output is rounded. The polynomial is good to 1e-5 in float32."""
    parts = tensors((1, 4, 2, 300, 520, 64, 64), 5, dtype, size=1.0)
    out, stats = adaptive_attention(*parts, causal=causal, return_stats=True, backend=backend)
    exact, truth = adaptive_attention(*(x.double() for x in parts), causal=causal, return_stats=True, backend="reference")
    assert out.dtype == dtype
    assert stats.entropy.dtype == torch.float32
    assert float((stats.entropy - truth.entropy).abs().max()) < 1e-5
    assert float((out - exact).abs().max()) < tolerance


@pytest.mark.parametrize(("spread", "offset", "tolerance"), [(1, 0, 4e-3), (1, 4, 4e-3), (2, 4, 1.5e-2), (8, 4, 0.15)])
def test_entropy_where_the_kernel_works_in_bfloat16(spread: float, offset: float, tolerance: float) -> None:
    """As on a GPU, by the CPU's kernel for it: P and the sum of keys are rounded, so that the spread of logits counts."""
    q, k, _ = tensors((1, 4, 4, 200, 2048, 64, 64), 16, torch.float32, size=1.0)
    q, k = (spread * q).bfloat16(), (k + offset * k[:, :, :1]).bfloat16()
    call = checked(q, k, k, causal=False, scale=None, mask=None, window=None)
    found = entropies._stock(call)
    truth = adaptive_attention(q.double(), k.double(), k.double(), causal=False, backend="reference", return_stats=True)[1]
    assert float((found - truth.entropy).abs().max()) < tolerance


@pytest.mark.parametrize("window", [None, 3, 20])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("sizes", [(1, 4, 2, 30, 41, 8, 8), (2, 3, 1, 19, 8, 4, 4), (1, 1, 1, 1, 50, 4, 4)])
@pytest.mark.parametrize("masked", [False, True])
def test_entropies_from_many_small_blocks(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], causal: bool, window: int | None, masked: bool
) -> None:
    """Runs of keys of which a row sees none, some and all, in any order."""
    for name, size in {"KEYS": 7, "MANY": 1, "LONG": 1, "BLOCK": 100}.items():
        monkeypatch.setattr(entropies, name, size)
    q, k, v = tensors(sizes, 8, torch.float64, size=2.0)
    mask = torch.rand(sizes[0], 1, sizes[3], sizes[4], generator=torch.Generator().manual_seed(9)) < 0.3 if masked else None
    call = checked(q, k, v, causal=causal, scale=None, mask=mask, window=window)
    found = entropies.entropies(call).masked_fill(call.lengths == 0, 0)
    _, truth = adaptive_attention(q, k, v, causal=causal, window=window, mask=mask, backend="reference", return_stats=True)
    torch.testing.assert_close(found, truth.entropy, rtol=0, atol=1e-12)


@pytest.mark.parametrize("long", [1, 2048])
@pytest.mark.parametrize("mask", [None, (20, 20), (0, 1, 1, 20), (0, 1, 20, 20)])
@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_nothing_to_attend_to(monkeypatch: pytest.MonkeyPatch, backend: str, mask: tuple[int, ...] | None, long: int) -> None:
    monkeypatch.setattr(entropies, "LONG", long)
    none, seen = torch.zeros(0, 2, 20, 8), None if mask is None else torch.ones(mask, dtype=torch.bool)
    assert adaptive_attention(none, none, none, causal=True, mask=seen, backend=backend).shape == (0, 2, 20, 8)
    assert attention.dispersion(none, none, causal=True, mask=seen).spread.shape == (0, 2, 20)


def test_entropy_where_keys_share_a_large_part() -> None:
    """Logits of thousands that differ by ones: what is common must not swallow what differs."""
    q, k, v = tensors((1, 2, 1, 40, 90, 16, 16), 6, torch.float32, size=1.0)
    k = k + 100 * torch.ones(16)
    _, stats = adaptive_attention(q, k, v, causal=False, return_stats=True, backend="sdpa")
    _, truth = adaptive_attention(q.double(), k.double(), v.double(), causal=False, return_stats=True, backend="reference")
    assert float((stats.entropy - truth.entropy).abs().max()) < 2e-3


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(2, 4, 2, 5, 9, 8, 8), (2, 6, 2, 5, 9, 8, 3), (1, 2, 1, 20, 2100, 4, 4)])
@pytest.mark.parametrize("lay", [lambda x: x.mT.contiguous().mT, lambda x: x.movedim(1, 3).contiguous().movedim(3, 1)])
def test_how_tensors_lie_in_memory_is_nothing(lay, sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    given = tensors(sizes, seed=5, dtype=dtype)
    options = {"causal": True, "backend": "sdpa", "return_stats": True}
    there, here = adaptive_attention(*map(lay, given), **options), adaptive_attention(*given, **options)
    assert lay(given[0]).stride(3) != 1
    assert torch.allclose(there[0], here[0])
    assert torch.allclose(there[1].entropy, here[1].entropy)


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_huge_logits_pick_the_largest(backend: str) -> None:
    q, k, v = tensors((1, 2, 2, 5, 8, 4, 4), 7, torch.float32, size=1000.0)
    out, stats = adaptive_attention(q, k, v, causal=False, backend=backend, return_stats=True)
    best = (q @ k.mT).argmax(-1)
    assert torch.allclose(out, v.gather(2, best[..., None].expand_as(out)), rtol=1e-5)
    assert torch.equal(stats.beta, torch.ones_like(stats.beta))


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_at_beta_one_it_is_the_attention_of_torch(backend: str) -> None:
    q, k, v = tensors((2, 4, 2, 7, 7, 8, 8), 9, torch.float32)
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    for rule in (Fixed(), attention.Polynomial((0.0,))):
        assert torch.allclose(adaptive_attention(q, k, v, causal=True, rule=rule, backend=backend), plain, atol=1e-6)
    assert not torch.allclose(adaptive_attention(q, k, v, causal=True, rule=Fixed(3.0), backend=backend), plain, atol=1e-2)


def test_the_order_of_keys_is_nothing_without_causality() -> None:
    q, k, v = tensors((1, 4, 2, 5, 9, 8, 8), 10)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    one = adaptive_attention(q, k, v, causal=False)
    assert torch.allclose(one, adaptive_attention(q, k[:, :, order], v[:, :, order], causal=False), atol=1e-12)


def test_a_vector_added_to_all_keys_is_nothing() -> None:
    """It shifts every logit of a row alike."""
    q, k, v = tensors((1, 4, 2, 5, 9, 8, 8), 11)
    for backend in ("reference", "sdpa"):
        one, two = (adaptive_attention(q, x, v, causal=True, backend=backend) for x in (k, k + 3))
        assert torch.allclose(one, two, atol=1e-11)


@given(st.integers(1, 12), st.integers(0, 99))
def test_decoding_step_by_step_is_the_whole(chunk: int, seed: int) -> None:
    q, k, v = tensors((1, 4, 2, 12, 12, 8, 8), seed)
    whole = adaptive_attention(q, k, v, causal=True)
    for start in range(0, 12, chunk):
        stop = min(start + chunk, 12)
        step = adaptive_attention(q[:, :, start:stop], k[:, :, :stop], v[:, :, :stop], causal=True)
        assert torch.allclose(step, whole[:, :, start:stop], atol=1e-12)


def test_no_tensor_grows_with_the_square_of_the_length() -> None:
    largest: list[int] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            found = result if isinstance(result, (tuple, list)) else [result]
            largest.append(max((x.numel() for x in found if isinstance(x, torch.Tensor)), default=0))
            return result

    room = 2 * entropies.BLOCK  # of a CPU's sums, whatever the length
    for n in (1024, 3072):
        q, k, v = tensors((1, 4, 2, n, n, 16, 16), 12, torch.float32)
        for options in ({"causal": True}, {"causal": True, "window": 64}, {"causal": True, "mask": torch.ones(n).bool()}):
            largest.clear()
            with Watch():
                adaptive_attention(q, k, v, backend="sdpa", **options)
            assert max(largest) <= max(q.numel(), room), (n, options)
    with Watch():
        adaptive_attention(q, k, v, causal=True, backend="reference")
    assert max(largest) >= 4 * 3072 * 3072 > 10 * room


@pytest.mark.parametrize("low", [-1e9, torch.finfo(torch.float32).min])
def test_a_number_as_low_as_that_hides_as_minus_infinity_does(low: float) -> None:
    """Whether the mask is nothing else, or a bias too: what is hidden is not counted among the keys, nor in the spread."""
    q, k, v = tensors((1, 2, 2, 4, 6, 4, 4), 18, torch.float32)
    seen = torch.ones(4, 6, dtype=torch.bool).tril(2)
    for added in (torch.zeros(4, 6), torch.linspace(-1, 1, 24).reshape(4, 6)):
        masks = (added.masked_fill(~seen, number) for number in (low, -math.inf))
        (out, stats), (wanted, known) = (
            adaptive_attention(q, k, v, causal=False, mask=mask, rule="log-length(2)", return_stats=True) for mask in masks
        )
        torch.testing.assert_close(out, wanted)
        torch.testing.assert_close(stats[:3], known[:3])
        assert stats.n.flatten().tolist() == [3, 4, 5, 6]
        spread = attention.dispersion(q, k, causal=False, mask=added.masked_fill(~seen, low)).spread
        assert spread.max() < 100


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_logits_are_not_rounded_by_autocast(backend: str) -> None:
    q, k, v = tensors((1, 2, 2, 5, 7, 4, 4), 19, torch.float32)

    def attended() -> tuple[torch.Tensor, attention.Stats]:
        return adaptive_attention(q, k, v, causal=True, backend=backend, return_stats=True)

    (out, stats), spread = attended(), attention.dispersion(q, k, causal=True).spread
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(attended()[0], out)
        assert torch.equal(attended()[1].entropy, stats.entropy)
        assert torch.equal(attention.dispersion(q, k, causal=True).spread, spread)


def test_a_bias_that_learns_is_not_taken_for_a_mask() -> None:
    q, k, v = tensors((1, 2, 2, 3, 5, 4, 4), 17)
    bias = torch.zeros(3, 5, dtype=torch.float64, requires_grad=True)
    adaptive_attention(q, k, v, causal=False, mask=bias).square().sum().backward()
    assert bias.grad is not None
    assert bias.grad.any()


@pytest.mark.parametrize("kind", ["full", "rows", "bias"])
def test_the_reference_has_gradients(kind: str) -> None:
    shape = (1, 2, 1, 3, 5, 2, 2)
    parts, mask = [x.requires_grad_() for x in tensors(shape, 13, size=0.7)], mask_of(kind, shape, 14)
    rule = EffectiveItems(1.2)
    assert torch.autograd.gradcheck(lambda *x: adaptive_attention(*x, causal=True, mask=mask, rule=rule), parts)


def by_sample(attend: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda *parts: torch.func.vmap(lambda *one: attend(*(x[None] for x in one))[0])(*parts)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # which torch uses itself, forwards
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("keys", [5, entropies.LONG])
def test_no_transform_loses_a_gradient(mapped: bool, keys: int) -> None:
    """What vmap maps over says of itself that it wants none, and so does what carries a derivative forwards."""
    parts = tuple(tensors((2, 2, 1, entropies.MANY, keys, 2, 3), 17))
    along = tuple(tensors((2, 2, 1, entropies.MANY, keys, 2, 3), 18))

    def summed(backend: str, mapped: bool) -> Callable[..., torch.Tensor]:
        def attend(*one: torch.Tensor) -> torch.Tensor:
            return adaptive_attention(*one, causal=True, backend=backend)

        return lambda *x: (by_sample(attend) if mapped else attend)(*x).square().sum()

    auto, truth = summed("auto", mapped), summed("reference", False)
    expected = torch.func.grad(truth, (0, 1, 2))(*parts)
    tracked = [x.clone().requires_grad_() for x in parts]
    auto(*tracked).backward()
    slope = sum((x * y).sum() for x, y in zip(expected, along))
    torch.testing.assert_close(tuple(x.grad for x in tracked), expected)
    torch.testing.assert_close(torch.func.grad(auto, (0, 1, 2))(*parts), expected)
    torch.testing.assert_close(torch.func.jvp(auto, parts, along)[1], slope)


def test_a_bias_of_each_sample_may_be_mapped_over() -> None:
    q, k, v = tensors((2, 2, 2, 3, 5, 4, 4), 17)
    bias = torch.zeros(2, 2, 3, 5, dtype=torch.float64)

    def summed(bias: torch.Tensor) -> torch.Tensor:
        return adaptive_attention(q, k, v, causal=True, mask=bias).square().sum()

    def mapped(bias: torch.Tensor) -> torch.Tensor:
        return (
            by_sample(lambda q, k, v, bias: adaptive_attention(q, k, v, causal=True, mask=bias))(q, k, v, bias).square().sum()
        )

    torch.testing.assert_close(torch.func.grad(mapped)(bias), torch.func.grad(summed)(bias))


COMPILED = """
import torch
from thermocline.attention import adaptive_attention

q, k, v = torch.randn(3, 2, 2, 5, 4, dtype=torch.float64)
auto, truth = (
    lambda q, name=name: adaptive_attention(q, k, v, causal=True, backend=name).square().sum() for name in ("auto", "reference")
)
found = torch.compile(torch.func.grad(auto), backend="eager", fullgraph=True)(q)
print(torch.allclose(found, torch.func.grad(truth)(q)))
"""


def test_nor_does_a_compiled_one() -> None:
    """In a process of its own: types that tests check cannot be traced."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_auto_says_what_it_took_and_why() -> None:
    q, k, v = tensors((1, 2, 2, 3, 3, 4, 4), 15)
    assert attention.backend_for(q, k, v) == ("sdpa", "not triton: its kernels are for CUDA, and the tensors are on cpu")
    assert attention.backend_for(q, k, v, backend="reference") == ("reference", "asked for")
    learned = q.clone().requires_grad_()
    choice = attention.backend_for(learned, k, v)
    assert choice.backend == "reference"
    assert "gradients are wanted" in choice.why
    with torch.no_grad():
        assert attention.backend_for(learned, k, v).backend == "sdpa"
    assert adaptive_attention(learned, k, v, causal=True, return_stats=True)[1].choice == choice
    with pytest.raises(ValueError, match="'sdpa' cannot answer: gradients are wanted.*these can: 'reference'"):
        adaptive_attention(learned, k, v, causal=True, backend="sdpa")
    with pytest.raises(ValueError, match="'sdpa' cannot answer: its mask adds numbers"):
        adaptive_attention(q, k, v, causal=True, mask=torch.ones(3, 3), backend="sdpa")
    with pytest.raises(ValueError, match="backend must be one of 'auto', 'triton', 'sdpa', 'reference', got 'flash'"):
        adaptive_attention(q, k, v, causal=True, backend="flash")
    meta = [x.to("meta") for x in (q, k, v)]
    assert "tensors are on meta" in attention.backend_for(*meta).why


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": (2, 4, 5)}, "must be .batch, heads, length, width."),
        ({"v": (2, 2, 8, 8)}, "k and v must have the same batch, heads and length"),
        ({"q": (2, 4, 5, 6)}, "q and k must have the same batch and width"),
        ({"q": (2, 3, 5, 8)}, "a multiple of those of k and v"),
        ({"k": (2, 2, 0, 8), "v": (2, 2, 0, 8)}, "at least one query, one key"),
        ({"q": (2, 4, 0, 8)}, "at least one query, one key"),
        ({"window": 0}, "at least 1, got 0"),
        ({"scale": 0.0}, "scale multiplies the logits"),
        ({"mask": (2, 9)}, "got .2, 9.; a mask of padding, .batch, keys., is given as mask.:, None, None, :."),
        ({"mask": (1, 2, 4, 5, 9)}, "must broadcast"),
        ({"dtype": torch.float16}, "floats of one type"),
        ({"device": "meta"}, "must be on one device, got cpu and meta"),
        ({"integers": True}, "boolean .True is seen. or floats"),
    ],
)
def test_what_does_not_fit_is_said(change: dict, message: str) -> None:
    shapes = {"q": (2, 4, 5, 8), "k": (2, 2, 9, 8), "v": (2, 2, 9, 8)}
    q, k, v = (torch.zeros(change.get(name, shape)) for name, shape in shapes.items())
    mask = torch.ones(change["mask"], dtype=torch.bool) if "mask" in change else None
    mask = torch.ones(5, 9, dtype=torch.int64) if "integers" in change else mask
    with pytest.raises(ValueError, match=message):
        checked(
            q, k.to(change.get("device", k.device), change.get("dtype", k.dtype)), v,
            causal=True, scale=change.get("scale"), mask=mask, window=change.get("window"),
        )  # fmt: skip


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("queries", [1, 7, 11])
def test_cuda_kernels_take_what_they_are_given(queries: int, causal: bool, window: int | None) -> None:
    """Without a GPU: names, arguments and shapes, on tensors that hold nothing. What they compute is for a GPU to show."""
    q, k = (torch.empty(2, h, n, 24, dtype=torch.bfloat16, device="meta") for h, n in ((4, queries), (2, 11)))
    for shape in (None, (2, 1, 1, 11), (2, 1, queries, 11)):
        mask = None if shape is None else torch.empty(shape, dtype=torch.bool, device="meta")
        call = checked(q, k, k, causal=causal, scale=None, mask=mask, window=window)
        found = [stock._pieced(call, stock._efficient)]
        found += [stock._flash(call), stock._cudnn(call)] if mask is None else []
        for out, lse in found:
            assert out.shape == q.shape
            assert lse.shape == q.shape[:3]
