"""Adaptive-temperature attention on NVIDIA GPUs by kernels of our own: exact entropies, and nothing of size n x n.

Of many queries, one matrix product gives the entropies in float32, and stock attention does the heavy half with beta q for q.
Of few queries, as in decoding, a row's logits are a small part of the bytes of K: they are kept, and K and V are read once.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from thermocline.attention import sdpa, stock
from thermocline.attention.call import Call, dense
from thermocline.attention.entropies import BITS
from thermocline.attention.reference import Attended
from thermocline.attention.rules import PLAIN, Form, Rule

FEW = 64  # rows of queries that share one head of the keys; up to here they are decoded
WIDEST = 256
EIGHT = 8  # halves in 16 bytes
PAIRS = 65_535  # as many as CUDA lets a grid have in its second direction


def refusal(call: Call) -> str | None:
    """Why these kernels cannot answer, if they cannot."""
    if call.q.device.type != "cuda":
        return f"its kernels are for CUDA, and the tensors are on {call.q.device.type}"
    if not _installed():
        return "triton 3.4 or newer is not installed: pip install -U triton"
    if call.q.dtype not in stock.HALVES:
        return f"its kernels take float16 and bfloat16, got {call.q.dtype}"
    if call.mask is not None:
        return "its kernels know causality and windows, and no other mask"
    if call.q.shape[0] * call.q.shape[1] > PAIRS:
        return f"its kernels take {PAIRS:,} heads over all samples, got {call.q.shape[0] * call.q.shape[1]:,}"
    if max(call.k.shape[3], call.v.shape[3]) > WIDEST:
        return f"its kernels take heads up to {WIDEST} wide, got {max(call.k.shape[3], call.v.shape[3])}"
    return sdpa.refusal(call)


@torch.no_grad()
def attend(call: Call, rule: Rule) -> Attended:
    """Attention of which each row has a temperature of its own, from entropies of float32 logits.

        out_i = sum_j softmax(beta_i e_i)_j v_j,   beta_i = rule(H(softmax(e_i)), n_i)    [velickovic2024softmax]

    The entropy is right to about 1e-5 whatever the logits. Of many queries beta_i q_i is rounded to the type of q, which
    moves a logit by up to 2^-9 of its terms in bfloat16, and beta is held to what float16 can write; of few, beta multiplies
    float32 logits.
    """
    call = replace(call, **{name: dense(getattr(call, name)) for name in "qkv"})
    form: Form | None = getattr(rule, "form", None)
    few = call.queries * call.q.shape[1] // call.k.shape[1] <= FEW
    with torch.cuda.device(call.q.device):  # where Triton launches; a model may lie on several
        return decode(call, form) if few and form is not None else _prefill(call, rule, form)


def _prefill(call: Call, rule: Rule, form: Form | None) -> Attended:
    sharp, entropy, beta = statistics(call, form or PLAIN.form)
    if form is None:
        beta = sdpa.writable(rule(entropy, call.lengths.expand_as(entropy)), call.q)
        torch.mul(call.q, beta[..., None], out=sharp)
    out, _ = stock.attend(sdpa.even(replace(call, q=sharp)))
    if call.offset < 0:
        out = out.masked_fill((call.lengths == 0)[..., None], 0)
    return Attended(out[..., : call.v.shape[3]], entropy, beta)


def statistics(call: Call, form: Form, *, block: tuple[int, int, int, int] = (64, 128, 4, 3)) -> tuple[Tensor, Tensor, Tensor]:
    """Of every row beta q, its entropy in nats and beta; `block` is queries and keys of a block, warps and stages."""
    (b, h, queries, d), (_, g, keys, _) = call.q.shape, call.k.shape
    sharp = torch.empty(b, h, queries, d, device=call.q.device, dtype=call.q.dtype)
    entropy = torch.empty(b, h, queries, device=call.q.device)
    beta = torch.empty_like(entropy)
    rows, columns, warps, stages = block
    _kernels().statistics[(-(-queries // rows), b * h)](
        call.q, _described(call.k, columns), sharp, entropy, beta, call.scale * BITS, h, h // g, queries, keys,
        *call.q.stride()[:3], D=d, BD=_power(d), BM=rows, BN=columns, STAGES=stages, **_sight(call), **_numbers(form),
        num_warps=warps, enable_fp_fusion=True,
    )  # fmt: skip
    return sharp, entropy, beta


def decode(call: Call, form: Form, *, splits: int | None = None, block: tuple[int, int, int] = (64, 4, 3)) -> Attended:
    """Few queries: every split of the keys is a program, as is every head of them; `block` is keys, warps and stages."""
    (b, h, queries, d), (_, g, keys, e) = call.q.shape, call.v.shape
    rows = h // g * queries
    columns, warps, stages = block
    chunk = _chunk(call, columns, splits)
    splits = -(-keys // chunk)
    sizes = {"BM": max(_power(rows), 16), "BN": columns, "STAGES": stages, **_sight(call)}
    options = {"num_warps": warps, "enable_fp_fusion": True}
    made: dict[str, Any] = {"device": call.q.device, "dtype": torch.float32}
    logits = torch.empty(b * h * queries * keys, **made)
    parts = torch.empty(b * g * splits * 3 * sizes["BM"], **made)
    mixed = torch.empty(b * g * splits * sizes["BM"], _power(e), **made)
    total, entropy = torch.empty(mixed.shape[0], **made), torch.empty(b, h, queries, **made)
    beta, out = torch.empty_like(entropy), call.q.new_empty(b, h, queries, e)
    kernels = _kernels()
    kernels.scores[(splits, b * g)](
        call.q, call.k, logits, parts, call.scale * BITS, h // g, queries, keys, chunk, g,
        *call.q.stride()[:3], *call.k.stride()[:3], D=d, BD=_power(d), **sizes, **options,
    )  # fmt: skip
    kernels.mixtures[(splits, b * g)](
        logits, call.v, parts, mixed, total, entropy, beta, h // g, queries, keys, chunk, g, *call.v.stride()[:3],
        E=e, BE=_power(e), BZ=_power(splits), **sizes, **options, **_numbers(form),
    )  # fmt: skip
    kernels.gathered[(b * h * queries,)](
        mixed, total, out, rows, splits, E=e, BE=_power(e), BM=sizes["BM"], BZ=_power(splits), **options
    )  # fmt: skip
    return Attended(out, entropy, beta)


@functools.cache
def _installed() -> bool:
    return bool(importlib.util.find_spec("triton") and importlib.util.find_spec("triton.tools.tensor_descriptor"))


def _kernels() -> Any:
    """Imported when first wanted: Triton may be missing."""
    return importlib.import_module("thermocline.attention.kernels")


def _chunk(call: Call, columns: int, splits: int | None) -> int:
    """How many keys a program has: enough programs for every processor of the card to have several."""
    if splits is None:
        processors = torch.cuda.get_device_properties(call.q.device).multi_processor_count
        splits = max(1, min(-(-4 * processors // (call.k.shape[0] * call.k.shape[1])), -(-call.keys // (4 * columns)), 128))
    return -(-call.keys // (splits * columns)) * columns


def _described(k: Tensor, columns: int) -> Any:
    """Keys as a copy engine reads them, a block of so many at a time: it wants rows that begin at multiples of 16 bytes."""
    described = importlib.import_module("triton.tools.tensor_descriptor").TensorDescriptor
    if k.shape[3] % EIGHT:
        k = functional.pad(k, (0, -k.shape[3] % EIGHT))
    strides = [stride if size > 1 else EIGHT for size, stride in zip(k.shape[:3], k.stride())]
    if k.data_ptr() % 16 or any(stride % EIGHT or not stride for stride in strides):
        k = k.clone(memory_format=torch.contiguous_format)
        strides = list(k.stride()[:3])
    return described(k, list(k.shape), [*strides, 1], [1, 1, columns, _power(k.shape[3])])


def _sight(call: Call) -> dict[str, Any]:
    return {"CAUSAL": call.causal, "WINDOW": call.window or 0}


def _numbers(form: Form) -> dict[str, Any]:
    bounds = (form.gate, form.least, form.most)
    return {"TABLE": sum(form.table, ()), "COLUMNS": len(form.table[0]), "BOUNDS": bounds, "EXP": form.exp}


def _power(size: int) -> int:
    """The least power of two that holds it, 16 or more: what a matrix product of a kernel takes."""
    return max(1 << (size - 1).bit_length(), 16)
