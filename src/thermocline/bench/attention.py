"""Benchmarks of adaptive-temperature attention against code that holds every logit."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from thermocline.attention import adaptive_attention
from thermocline.bench.arrays import draw
from thermocline.bench.case import Answers, Case, sized, within
from thermocline.softmax.adaptive import PUBLISHED

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
    """The published softmax, line by line, put where attention has its own."""
    q, k, v = heads
    length = q.shape[2]
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    logits = (q @ k.mT / math.sqrt(WIDTH)).masked_fill(future, -math.inf)
    probabilities = torch.softmax(logits, -1)
    entropy = (-probabilities * (probabilities + 1e-9).log()).sum(-1, keepdim=True)
    fitted = torch.zeros_like(entropy)
    for coefficient in PUBLISHED:
        fitted = fitted * entropy + coefficient
    beta = torch.where(entropy > 0.5, fitted.clamp(min=1), 1.0)
    out = torch.softmax(logits * beta, -1) @ v
    return {"output": out.cpu().numpy(), "entropy": entropy.squeeze(-1).cpu().numpy()}


CASES = {
    "adaptive-attention": Case(
        "attention", "adaptive attention, causal, 8 heads x 4096 x 64, float32", "the usual code, which holds every logit",
        _heads, _adaptive, _eager, within({"output": 1e-4, "entropy": 1e-4}), warm_up=0.05,
    ),
}  # fmt: skip
