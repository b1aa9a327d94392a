"""NaN and infinities in attention: a row that sees one is NaN, and what a row does not see never matters to it."""

import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from thermocline.attention import adaptive_attention, dispersion
from thermocline.attention.call import checked, visible

SIZES = {"prompt": (5, 5), "decoding": (1, 6), "sums over blocks": (16, 2048)}  # the last by another road to the entropies
SIGHTS = ("all", "causal", "window", "padding", "rows", "bias")


def call_of(queries: int, keys: int, sight: str) -> tuple[list[Tensor], dict]:
    """Two heads of queries that share one of keys, and what is asked for."""
    gen = torch.Generator().manual_seed(queries)
    parts = [torch.randn(2, heads, n, 8, generator=gen) for heads, n in ((2, queries), (1, keys), (1, keys))]
    seen = torch.rand(2, 1, 1 if sight == "padding" else queries, keys, generator=gen) < 0.7
    options = {"causal": sight in ("causal", "window"), "window": 2 if sight == "window" else None}
    if sight == "bias":
        options["mask"] = torch.randn(seen.shape, generator=gen).masked_fill(~seen, -math.inf)
    elif sight in ("padding", "rows"):
        options["mask"] = seen
    return parts, options


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("part", [0, 1, 2], ids=["q", "k", "v"])
def test_only_rows_that_see_it_are_nan(part: int, bad: float, sight: str, size: str) -> None:
    parts, options = call_of(*SIZES[size], sight)
    call = checked(*parts, scale=None, **{"mask": None, **options})
    seen = visible(call) & (torch.tensor(True) if call.bias is None else call.bias > -math.inf)
    seen = seen.expand(2, 2, *SIZES[size])
    for place in (0, parts[part].shape[2] - 1):
        spoilt = [x.clone() for x in parts]
        spoilt[part][1, 0, place, 3] = bad
        reads = torch.zeros(2, 2, SIZES[size][0], dtype=torch.bool)
        if part == 0:
            reads[1, 0, place] = seen[1, 0, place].any()
        else:
            reads[1] = seen[1, :, :, place]
        for backend in ("reference",) if sight == "bias" else ("reference", "sdpa"):
            whole, known = adaptive_attention(*parts, **options, backend=backend, return_stats=True)
            out, stats = adaptive_attention(*spoilt, **options, backend=backend, return_stats=True)
            torch.testing.assert_close(out, whole.masked_fill(reads[..., None], math.nan), equal_nan=True)
            blurred = reads if part < 2 else torch.zeros_like(reads)  # an entropy reads no values
            torch.testing.assert_close(stats.entropy, known.entropy.masked_fill(blurred, math.nan), equal_nan=True)
            torch.testing.assert_close(stats.beta, known.beta.masked_fill(blurred, math.nan), equal_nan=True)
            assert torch.equal(stats.n, known.n)


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_a_row_that_sees_nothing_is_zeros_whatever_it_asks(backend: str) -> None:
    q, k, v = (torch.randn(1, 1, 3, 4, generator=torch.Generator().manual_seed(i)) for i in range(3))
    q[0, 0, 1] = k[0, 0, 2] = v[0, 0, 2] = math.nan
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[1] = mask[:, 2] = False
    out = adaptive_attention(q, k, v, causal=False, mask=mask, backend=backend)
    assert out.isfinite().all()
    assert not out[0, 0, 1].any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_key_that_a_bias_hides_disperses_nothing(bad: float) -> None:
    q, k = (torch.randn(1, 1, 4, 3, generator=torch.Generator().manual_seed(i)) for i in range(2))
    bias = torch.randn(4, 4, generator=torch.Generator().manual_seed(2)).index_fill(1, torch.tensor([2]), -math.inf)
    expected = dispersion(q, k, causal=False, mask=bias)
    found = dispersion(q, k.index_fill(2, torch.tensor([2]), bad), causal=False, mask=bias)
    for one, two in zip(found, expected):
        torch.testing.assert_close(one, two)


def test_numbers_whose_sum_is_too_large_are_finite_all_the_same() -> None:
    q, k, v = (torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(i)) for i in range(3))
    v[..., 0] = 3e37
    whole = adaptive_attention(q, k, v.clone().fill_(1.0), causal=True, backend="sdpa", return_stats=True)[1]
    out, stats = adaptive_attention(q, k, v, causal=True, backend="sdpa", return_stats=True)
    torch.testing.assert_close(out[..., 0], torch.full_like(out[..., 0], 3e37))
    torch.testing.assert_close(stats.entropy, whole.entropy)


def test_gradients_of_other_rows_are_those_without_it() -> None:
    """Padding of NaN, as an empty cache may have, spoils no gradient."""
    q, k, v = (torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(i)) for i in range(3))
    mask = torch.tensor([True, True, True, False])
    found = []
    for filling in (0.0, math.nan):
        parts = [q, *(x.index_fill(2, torch.tensor([3]), filling) for x in (k, v))]
        parts = [x.requires_grad_() for x in parts]
        adaptive_attention(*parts, causal=False, mask=mask, backend="reference").square().sum().backward()
        found.append([x.grad for x in parts])
        q = q.detach().clone()
    for one, two in zip(*found):
        torch.testing.assert_close(one, two)


COMPILED = """
import torch
from thermocline.attention import adaptive_attention

q, v = torch.randn(2, 1, 2, 5, 8)
v[0, 0, 3] = torch.nan
whole = torch.compile(lambda q, v: adaptive_attention(q, q, v, causal=True, backend="sdpa"), backend="eager", fullgraph=True)
for more in (q[:, :, :0], q[:, :, :2]):
    print(whole(torch.cat([q, more], 2), torch.cat([v, more], 2)).isnan().any(-1)[0].int().tolist())
"""


def test_the_rule_holds_in_a_compiled_graph_at_any_length() -> None:
    """In a process of its own: types that tests check cannot be traced. From the second length on they are left open."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert done.stdout == "[[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]\n[[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0]]\n", done.stderr


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_the_rule_holds_under_vmap(backend: str) -> None:
    (q, k, v), options = call_of(5, 5, "causal")
    v[1, 0, 3] = math.nan
    expected = adaptive_attention(q, k, v, backend=backend, **options)
    mapped = torch.func.vmap(lambda one: adaptive_attention(one, k, v, backend=backend, **options))(q[None])[0]
    assert expected.isnan().any(-1)[1].int().tolist() == [[0, 0, 0, 1, 1]] * 2
    torch.testing.assert_close(mapped, expected, equal_nan=True)
