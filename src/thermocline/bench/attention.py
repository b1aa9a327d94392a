"""Benchmarks of adaptive-temperature attention: against code that holds every logit, and against plain attention."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from thermocline.attention import PLAIN, PUBLISHED, Rule, adaptive_attention
from thermocline.bench.arrays import draw
from thermocline.bench.case import Answers, Case, sized, within

HEADS, WIDTH = 8, 64


class Heads(NamedTuple):
    """Queries, keys and values."""

    q: Tensor
    k: Tensor
    v: Tensor


def _heads(scale: float) -> Heads:
    length = sized(4096, scale, least=16)
    return Heads(*(torch.randn(1, HEADS, length, WIDTH, generator=draw(400 + i)) for i in range(3)))


def _adaptive(heads: Heads) -> Answers:
    out, stats = adaptive_attention(*heads, causal=True, backend="sdpa", return_stats=True)
    return {"output": out.cpu().numpy(), "entropy": stats.entropy.cpu().numpy()}


def _eager(heads: Heads) -> Answers:
    out, entropy = _lines(*heads)
    return {"output": out.cpu().numpy(), "entropy": entropy.cpu().numpy()}


def _lines(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The published softmax, line by line, put where attention has its own: the output, and the entropy of each row."""
    length = q.shape[2]
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    logits = (q @ k.mT / math.sqrt(q.shape[3])).masked_fill(future, -math.inf).float()  # in halves the polynomial is noise
    probabilities = torch.softmax(logits, -1)
    entropy = (-probabilities * (probabilities + 1e-9).log()).sum(-1, keepdim=True)
    fitted = torch.zeros_like(entropy)
    for coefficient in PUBLISHED.coefficients:
        fitted = fitted * entropy + coefficient
    beta = torch.where(entropy > 0.5, fitted.clamp(min=1), 1.0)
    return torch.softmax(logits * beta, -1).to(v.dtype) @ v, entropy.squeeze(-1)


Attend = Callable[[Heads, bool], Tensor]  # causal or not
ROWS = {"early rows": slice(0, 256), "last rows": slice(-64, None)}


class Calls(NamedTuple):
    """Tensors, how often attention of them is asked for, and what has been prepared for asking some hundred times of those."""

    heads: Heads
    times: int
    some: Callable[[], object] | None = None


def _halves(scale: float, *, length: int, count: int, queries: int | None = None) -> Calls:
    """16 heads of 128 in bfloat16."""
    length = sized(length, scale, least=256)
    sizes = (queries or length, length, length)
    drawn = (torch.randn(1, 16, n, 128, generator=draw(500 + i), dtype=torch.bfloat16) for i, n in enumerate(sizes))
    return Calls(Heads(*drawn), sized(count, scale, least=2))


def _begun(calls: Calls, way: Attend, *, causal: bool) -> Calls:
    """After one call, which compiles and plans. Of one query, a hundred calls are a CUDA graph: so decoding is served."""
    heads, count = calls.heads, min(calls.times, 100)

    def some() -> None:
        for _ in range(count):
            way(heads, causal)

    way(heads, causal)
    if causal or not heads.q.is_cuda:
        return calls._replace(some=some)
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        some()
    return calls._replace(some=recorded.replay)


def _asked(calls: Calls, way: Attend, answer: Attend, *, causal: bool) -> Callable[[], Answers]:
    some = (calls if calls.some else _begun(calls, way, causal=causal)).some
    assert some is not None
    for _ in range(calls.times // min(calls.times, 100)):
        some()
    # Rows of few keys, where the published rule acts, and the last ones.
    return lambda: {name: answer(calls.heads, causal)[:, :, rows].float().cpu().numpy() for name, rows in ROWS.items()}


def _sharpened(heads: Heads, causal: bool) -> Tensor:
    return adaptive_attention(*heads, causal=causal)


def _stock(heads: Heads, causal: bool) -> Tensor:
    """As fast as torch's own attention goes: by cuDNN where there are many queries, by what torch takes itself for one."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if causal and heads.q.is_cuda else contextlib.nullcontext():
        return scaled_dot_product_attention(*heads, is_causal=causal)


def _on_a_gpu(what: str, length: int, count: int, *, causal: bool, way: Attend, compared: Rule, against: str) -> Case:
    """Ours is timed at the published rule; compared is what it gives at the rule by which theirs attends."""

    def same(heads: Heads, causal: bool) -> Tensor:
        return adaptive_attention(*heads, causal=causal, rule=compared)

    return Case(
        "attention", f"{count:,} calls of adaptive attention, {what}, 16 heads x 128, bfloat16", against,
        functools.partial(_halves, length=length, count=count, queries=None if causal else 1),
        functools.partial(_asked, way=_sharpened, answer=same, causal=causal),
        functools.partial(_asked, way=way, answer=way, causal=causal),
        within(dict.fromkeys(ROWS, 2e-2 if way is _stock else 0.1)),  # the published lines round every logit to a half
        devices=("cuda",), warm_up=0.05,
        ready=functools.partial(_begun, way=_sharpened, causal=causal),
        theirs_ready=functools.partial(_begun, way=way, causal=causal),
    )  # fmt: skip


def _published(heads: Heads, causal: bool) -> Tensor:
    return _lines(*heads)[0]


CASES = {
    "adaptive-attention": Case(
        "attention", "adaptive attention, causal, 8 heads x 4096 x 64, float32", "the usual code, which holds every logit",
        _heads, _adaptive, _eager, within({"output": 1e-4, "entropy": 1e-4}), warm_up=0.05,
    ),
    "attention-8192": _on_a_gpu(
        "causal, n = 8,192", 8192, 1000, causal=True, way=_stock, compared=PLAIN,
        against="plain attention by cuDNN, which has no temperature",
    ),
    "attention-32768": _on_a_gpu(
        "causal, n = 32,768", 32_768, 100, causal=True, way=_stock, compared=PLAIN,
        against="plain attention by cuDNN, which has no temperature",
    ),
    "attention-decode": _on_a_gpu(
        "one query to 32,768 keys, as a CUDA graph", 32_768, 10_000, causal=False, way=_stock, compared=PLAIN,
        against="plain attention as a CUDA graph",
    ),
    "attention-eager": _on_a_gpu(
        "causal, n = 8,192", 8192, 100, causal=True, way=_published, compared=PUBLISHED,
        against="the published lines, which hold every logit",
    ),
}  # fmt: skip
