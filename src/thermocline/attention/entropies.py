"""The entropy of every row of attention, and nothing of size n x n: what a temperature that follows it must know first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from thermocline.attention import stock
from thermocline.attention.call import Call, blocks, reach, visible, whole

BITS = math.log2(math.e)
KEYS, BLOCK = 512, 2**20  # keys of a block of logits, and logits: large enough for matrix products, small enough for a cache
MANY, LONG = 16, 2048  # queries and keys from which on sums over blocks are faster than attention
HIDDEN = -1e30  # a logit that is not seen: finite, so that its product with a weight of 0 is one


def entropies(call: Call) -> Float[Tensor, "b h q"]:
    """Entropies in nats of softmax(e_i) over the keys that query i sees; for a row that sees none, of no meaning.

    Where many see many, on a CPU, from running sums over blocks of logits: one product of the two that attention has. With
    x = e log2(e),

        H = ln 2 (log2 mass - tilt / mass),   mass = sum_j 2^(x_j - top),   tilt = sum_j 2^(x_j - top) (x_j - top)

    Others by stock attention with V = K, which has the log-sum-exp and, in the mean key, the mean logit; in halves V = K - c,
    c the mean key, so that what is rounded is small where attention has dispersed:

        H = lse - scale q . (sum_j p_j k_j)

    >>> from thermocline.attention.call import checked
    >>> q, k = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4)
    >>> entropies(checked(q, k, k, causal=True, scale=None, mask=None, window=None))
    tensor([[[0.0000, 0.6931]]])
    """
    if call.q.device.type != "cpu" or call.queries < MANY or call.keys < LONG:
        return _stock(call).clamp(min=0)
    return torch.cat([_summed(some) for some in _samples(call)]).clamp(min=0)


def _stock(call: Call) -> Tensor:
    dtype = torch.promote_types(call.k.dtype, torch.float32)
    if call.k.dtype == dtype:
        mixed, lse = stock.attend(replace(call, v=call.k))
    else:
        centre = call.k.mean(2, keepdim=True, dtype=dtype)
        moved, lse = stock.attend(replace(call, v=(call.k - centre).to(call.k.dtype)))
        mixed = moved + centre.repeat_interleave(call.q.shape[1] // call.k.shape[1], 1)
    return lse - call.scale * torch.linalg.vecdot(call.q.to(dtype), mixed)


def _samples(call: Call) -> Iterator[Call]:
    """The call for as many samples at a time as a block has room for."""
    logits = call.q.shape[1] * min(call.queries, MANY) * min(call.keys, KEYS)
    for start in range(0, max(call.q.shape[0], 1), size := max(BLOCK // logits, 1)):
        here = slice(start, start + size)
        mask = call.mask if call.mask is None or len(call.mask) == 1 else call.mask[here]
        yield replace(call, q=call.q[here], k=call.k[here], v=call.v[here], mask=mask)


def _summed(call: Call) -> Tensor:
    (b, h, _, _), g = call.q.shape, call.k.shape[1]
    # Laid out once: of keys as models project them, every block would be copied.
    q, k = call.q * (call.scale * BITS), call.k.contiguous().mT
    room, found = q.new_empty(2, 0), []
    for rows in blocks(call, max(BLOCK // (KEYS * max(b * h, 1)), MANY) * call.keys):
        asked = q[:, :, rows].reshape(b, g, h // g * (rows.stop - rows.start), q.shape[3])  # heads that share keys are stacked
        sums = _Sums.none(b, h, rows.stop - rows.start, q)
        for keys in _runs(reach(call, rows)):
            size = (b, h, rows.stop - rows.start, keys.stop - keys.start)
            if room.shape[1] < math.prod(size):
                room = q.new_empty(2, math.prod(size))
            x, p = (part[: math.prod(size)].view(size) for part in room)
            torch.matmul(asked, k[..., keys], out=x.view(b, g, asked.shape[2], size[3]))
            if not whole(call, rows, keys):
                x.masked_fill_(~visible(call, rows, keys), HIDDEN)
            sums = sums.after(x, p)
        found.append(sums.entropy)
    return torch.cat(found, 2)


class _Sums(NamedTuple):
    """Of rows of logits in bits, so far."""

    top: Tensor
    mass: Tensor
    tilt: Tensor

    @classmethod
    def none(cls, b: int, h: int, rows: int, like: Tensor) -> _Sums:
        empty = like.new_zeros(b, h, rows, 1)
        return cls(empty + HIDDEN, empty, empty)

    def after(self, x: Tensor, p: Tensor) -> _Sums:
        """With a block more of logits; x and p are overwritten."""
        top = torch.maximum(self.top, x.amax(-1, keepdim=True))
        torch.exp2(x.sub_(top), out=p)
        gap = self.top - top
        fade = gap.exp2()
        mass, tilt = fade * self.mass, fade * (self.tilt + self.mass * gap)
        return _Sums(top, mass + p.sum(-1, keepdim=True), tilt + p.mul_(x).sum(-1, keepdim=True))

    @property
    def entropy(self) -> Tensor:
        mass = self.mass.clamp(min=1)  # the largest logit alone gives 1; a row of none gives 0
        return ((mass.log2() - self.tilt / mass) / BITS).squeeze(-1)


def _runs(keys: slice) -> Iterator[slice]:
    for start in range(keys.start, keys.stop, KEYS):
        yield slice(start, min(start + KEYS, keys.stop))
