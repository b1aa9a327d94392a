"""One call of the attention that torch ships, with the log-sum-exp of every row: no backend of it materialises the logits.

`torch.nn.functional.scaled_dot_product_attention` keeps the log-sum-exp to itself, so its kernels are called by their names.
What a kernel cannot say by itself (a window, more keys than queries, a mask by row) is said in blocks of queries, each with
the keys in its reach and a mask of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention
from torch.nn.attention import SDPBackend

from thermocline.attention.call import Call, blocks, reach, visible, whole

MASK = 2**22  # numbers in the mask of one block: 16 MB in float32, however long the keys
ROWS = 512  # longer blocks waste time on keys that causality hides; shorter ones call too often
HALVES = (torch.float16, torch.bfloat16)


def _cpu_groups() -> bool:
    """Whether torch would give its CPU kernel fewer heads of keys than of queries; one that knows no groups (torch 2.6) reads
    memory beyond the keys.
    """
    q, k = (torch.zeros(1, heads, 1, 1, dtype=torch.float32, device="cpu") for heads in (2, 1))
    return torch.ops.aten._fused_sdp_choice(q, k, k, enable_gqa=True) == SDPBackend.FLASH_ATTENTION.value


CPU_GROUPS = _cpu_groups()  # asked once, and not within what is compiled


def attend(call: Call) -> tuple[Tensor, Tensor]:
    """Attention and the log-sum-exp of every row; zeros for a row that no key is in reach of."""
    if call.q.device.type == "cpu":
        return _pieced(call, _cpu)
    if call.mask is not None or call.q.dtype not in HALVES:
        return _pieced(call, _efficient)
    return _cudnn(call) if _cudnn_can(call) else _flash(call)


class Piece(NamedTuple):
    """A run of queries with its keys. `square` leaves causality to the kernel; `seen` is None where all else is seen."""

    rows: slice
    keys: slice
    square: bool
    seen: Tensor | None


Kernel = Callable[[Tensor, Tensor, Tensor, bool, Tensor | None, float], tuple[Tensor, Tensor]]


def pieces(call: Call) -> Iterator[Piece]:
    """The whole call, where kernels know all that it asks for; else its queries in blocks, with masks of bounded size."""
    by_row = call.mask is not None and call.mask.shape[2] > 1
    if call.window is None and not by_row and (not call.causal or call.offset == 0):
        seen = None if call.mask is None else call.mask.expand(-1, -1, -1, call.keys)
        yield Piece(slice(0, call.queries), slice(0, call.keys), call.causal, seen)
        return
    groups = 1 if call.mask is None else max(call.mask[:, :, 0, 0].numel(), 1)
    most = ROWS if call.window is None else min(max(call.window, 64), ROWS)
    for rows in blocks(call, MASK // groups, most):
        keys = reach(call, rows)
        yield Piece(rows, keys, False, None if whole(call, rows, keys) else visible(call, rows, keys))


def _pieced(call: Call, kernel: Kernel) -> tuple[Tensor, Tensor]:
    parts = []
    for rows, keys, square, seen in pieces(call):
        q, k, v = call.q[:, :, rows], call.k[:, :, keys], call.v[:, :, keys]
        if k.shape[2]:
            parts.append(kernel(q, k, v, square, _additive(seen, q), call.scale))
        else:
            parts.append((torch.zeros_like(q), torch.zeros_like(q[..., 0])))
    if len(parts) == 1:
        return parts[0]
    return torch.cat([out for out, _ in parts], 2), torch.cat([lse for _, lse in parts], 2)


def _additive(seen: Tensor | None, q: Tensor) -> Tensor | None:
    if seen is None:
        return None
    # CUDA kernels want every row of a mask to begin at a multiple of 16 bytes.
    width = -(-seen.shape[3] // 8) * 8
    return q.new_zeros(*seen.shape[:3], width)[..., : seen.shape[3]].masked_fill_(~seen, -math.inf)


def _cpu(q: Tensor, k: Tensor, v: Tensor, square: bool, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    if q.shape[1] != k.shape[1] and not CPU_GROUPS:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return kernel(q, k, v, 0.0, square, attn_mask=mask, scale=scale)


def _efficient(q: Tensor, k: Tensor, v: Tensor, square: bool, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    # This kernel knows nothing of groups of heads, and must be shown the mask at its full shape.
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    mask = None if mask is None else mask.expand(*q.shape[:3], k.shape[2])
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    out, lse, *_ = kernel(q, k, v, mask, True, 0.0, square, scale=scale)
    return out, lse[..., : q.shape[2]]  # it is padded to whole blocks


def _cudnn_can(call: Call) -> bool:
    if call.window is not None or (call.causal and call.offset):
        return False
    grouped = call.q.shape[1] != call.k.shape[1]
    return can_use_cudnn_attention(SDPAParams(call.q, call.k, call.v, None, 0.0, call.causal, grouped), False)


def _cudnn(call: Call) -> tuple[Tensor, Tensor]:
    kernel = torch.ops.aten._scaled_dot_product_cudnn_attention
    out, lse, *_ = kernel(call.q, call.k, call.v, None, True, 0.0, call.causal, False, scale=call.scale)
    return out, lse.reshape(out.shape[:3])


def _flash(call: Call) -> tuple[Tensor, Tensor]:
    # By its lower name, flash attention knows windows, groups of heads, and queries that end where the keys end.
    behind = -1 if call.window is None else call.window - 1
    ahead = 0 if call.causal else behind
    q, k, v = (x.transpose(1, 2) for x in (call.q, call.k, call.v))
    kernel = torch.ops.aten._flash_attention_forward
    options = {"scale": call.scale, "window_size_left": behind, "window_size_right": ahead}
    out, lse, *_ = kernel(q, k, v, None, None, call.queries, call.keys, 0.0, call.causal, False, **options)
    return out.transpose(1, 2), lse
