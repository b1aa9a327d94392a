"""What attention is asked for, checked once: the tensors, and which keys each query may see.

Letters: b batch, h heads of q, g heads of k and v, q queries, s keys, d width of q and k, e width of v. Query i stands at
position s - q + i: the last query beside the last key, as in decoding with a cache. So it is in square attention too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_batchedtensor, is_functorch_wrapped_tensor
from torch.autograd import forward_ad
from torch.nn import functional

ALL = slice(None)
HIDES = -1e8  # a number that added to a logit must have meant -inf: much code writes -1e9 or the lowest float


@dataclass(frozen=True)
class Call:
    """One attention call that can be answered. `mask` says which keys count, `bias` is added to logits; both have 4 axes."""

    q: Float[Tensor, "b h q d"]
    k: Float[Tensor, "b g s d"]
    v: Float[Tensor, "b g s e"]
    causal: bool
    scale: float
    mask: Bool[Tensor, "#b #h #q #s"] | None
    bias: Float[Tensor, "#b #h #q #s"] | None
    window: int | None

    @property
    def queries(self) -> int:
        return self.q.shape[2]

    @property
    def keys(self) -> int:
        return self.k.shape[2]

    @property
    def offset(self) -> int:
        """The position of the first query; negative where there are more queries than keys."""
        return self.keys - self.queries

    @property
    def lengths(self) -> Float[Tensor, "#b #h q"]:
        """How many keys each query sees; a bias hides those where it is -inf.

        >>> one = torch.zeros(1, 1, 3, 1)
        >>> checked(one, one, one, causal=True, scale=None, mask=None, window=2).lengths
        tensor([[[1., 2., 2.]]])
        """
        dtype = torch.promote_types(self.q.dtype, torch.float32)
        i = torch.arange(self.queries, device=self.q.device) + self.offset
        ahead = i + 1 if self.causal else i + (self.window or self.keys + self.queries)
        behind = torch.zeros_like(i) if self.window is None else i - self.window + 1
        start, stop = behind.clamp(min=0), ahead.clamp(0, self.keys)
        seen = self.mask if self.bias is None else self.bias > -math.inf
        if seen is None:
            return (stop - start)[None, None].to(dtype)
        if seen.shape[2] == 1:
            counted = functional.pad(seen[:, :, 0].expand(-1, -1, self.keys).cumsum(-1), (1, 0))
            return (counted[..., stop] - counted[..., start]).to(dtype)
        size = 2**22 // max(seen[:, :, 0, 0].numel(), 1)
        counts = (visible(self, rows) & part(seen, rows, ALL) for rows in blocks(self, size))
        return torch.cat([some.sum(-1) for some in counts], -1).to(dtype)

    def seen_of(self, keys: Bool[Tensor, "b g s"]) -> Bool[Tensor, "b h q"]:
        """Whether each query sees one of some keys.

        >>> one = torch.zeros(1, 1, 3, 1)
        >>> call = checked(one, one, one, causal=True, scale=None, mask=None, window=2)
        >>> call.seen_of(torch.tensor([[[True, False, False]]]))
        tensor([[[ True,  True, False]]])
        """
        some = keys.repeat_interleave(self.q.shape[1] // self.k.shape[1], 1)[:, :, None]
        seen = self.mask if self.bias is None else self.bias > -math.inf
        return replace(self, mask=some if seen is None else some & seen, bias=None).lengths > 0

    @property
    def finite(self) -> bool:
        """Whether all that attention reads is finite; in doubt, where sums overflow, not. To know is to wait for a GPU."""
        if torch.compiler.is_compiling():  # there are no values yet
            return False
        parts = (x.detach().sum(dtype=torch.promote_types(x.dtype, torch.float32)) for x in (self.q, self.k, self.v))
        return _known(torch.stack(list(parts)).isfinite().all())


def checked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    scale: float | None,
    mask: Tensor | None,
    window: int | None,
) -> Call:
    """The call, if its parts fit together; `scale=None` is 1 / sqrt(d).

    An additive mask of -1e8 or less, or of half the lowest number of its type, hides as -inf does. One of nothing but that
    and 0 becomes a boolean one; to know, its values are looked at, which waits for a GPU. Give boolean masks where that counts.

    >>> one = torch.zeros(1, 1, 2, 4)
    >>> checked(one, one, one, causal=True, scale=None, mask=None, window=None).scale
    0.5
    """
    _require_shapes(q, k, v)
    if len(places := {x.device for x in (q, k, v, mask) if x is not None}) > 1:
        raise ValueError(f"q, k, v and mask must be on one device, got {' and '.join(sorted(map(str, places)))}")
    if window is not None and window < 1:
        raise ValueError(f"window is how many keys a query sees, itself included, at least 1, got {window}")
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    if not 0 < scale < math.inf:
        raise ValueError(f"scale multiplies the logits and must be above 0 and finite, got {scale}")
    bias = None
    if mask is not None:
        mask = _four_axes(mask, (*q.shape[:3], k.shape[2]))
        if mask.dtype != torch.bool:
            hidden = mask <= max(torch.finfo(mask.dtype).min / 2, HIDES)
            # One that learns is a bias even where it still is 0.
            boolean = not wants_gradients(mask) and _known((hidden | (mask == 0)).all())
            mask, bias = (~hidden, None) if boolean else (None, mask.masked_fill(hidden, -math.inf))
    return Call(q, k, v, causal, scale, mask, bias, window)


def visible(call: Call, rows: slice = ALL, keys: slice = ALL) -> Bool[Tensor, "#b #h r s"]:
    """Which of some keys each of some queries may see.

        causal: j <= i;   window w: j > i - w, and j < i + w where not causal;   mask: as given

    with i the position of the query. What a bias of -inf hides is not counted here: it is in the logits.

    >>> one = torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 4, 1)
    >>> visible(checked(one[0], one[1], one[1], causal=True, scale=None, mask=None, window=2)).int()
    tensor([[[[0, 1, 1, 0],
              [0, 0, 1, 1]]]], dtype=torch.int32)
    """
    i = torch.arange(call.queries, device=call.q.device)[rows, None] + call.offset
    j = torch.arange(call.keys, device=call.q.device)[keys]
    seen = torch.ones(i.shape[0], j.shape[0], dtype=torch.bool, device=call.q.device)
    if call.causal:
        seen &= j <= i
    if call.window is not None:
        seen &= j > i - call.window
        if not call.causal:
            seen &= j < i + call.window
    return seen[None, None] if call.mask is None else seen & part(call.mask, rows, keys)


def part(mask: Tensor, rows: slice, keys: slice) -> Tensor:
    """Some rows and keys of a mask; an axis of length 1 stands for all."""
    return mask[:, :, rows if mask.shape[2] > 1 else ALL, keys if mask.shape[3] > 1 else ALL]


def reach(call: Call, rows: slice) -> slice:
    """The keys that causality and the window let a run of queries see between them; perhaps none.

    >>> one = torch.zeros(1, 1, 4, 1)
    >>> reach(checked(one, one, one, causal=True, scale=None, mask=None, window=2), slice(2, 3))
    slice(1, 3, None)
    """
    first, last = rows.start + call.offset, rows.stop - 1 + call.offset
    ahead = call.keys if call.window is None else last + call.window
    stop = min(last + 1 if call.causal else ahead, call.keys)
    start = 0 if call.window is None else max(first - call.window + 1, 0)
    return slice(start, max(stop, start))


def whole(call: Call, rows: slice, keys: slice) -> bool:
    """Whether each of some queries sees each of some keys: both ends of reach only ever move forward."""
    first, last = (reach(call, slice(row, row + 1)) for row in (rows.start, rows.stop - 1))
    return call.mask is None and last.start <= keys.start and keys.stop <= first.stop


def blocks(call: Call, elements: int, most: int = 2**30) -> Iterator[slice]:
    """Runs of queries of which each makes at most about so many numbers with all the keys, or is one query.

    >>> one = torch.zeros(1, 1, 5, 1)
    >>> list(blocks(checked(one, one, one, causal=True, scale=None, mask=None, window=None), 10))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = min(max(elements // max(call.keys, 1), 1), most)
    for start in range(0, call.queries, size):
        yield slice(start, min(start + size, call.queries))


def dense(x: Tensor) -> Tensor:
    """With the numbers of a row side by side: kernels called by their names read them so, and not all look whether they lie so.

    >>> dense(torch.zeros(1, 1, 4, 3).mT).stride(3)
    1
    """
    return x if x.stride(3) == 1 else x.contiguous()


def wants_gradients(x: Tensor) -> bool:
    """Whether gradients of a tensor are wanted, in either direction; one that vmap maps over does not say so itself."""
    if torch.compiler.is_compiling():  # to the compiler a tensor says nothing of transforms
        return x.requires_grad or torch._C._are_functorch_transforms_active()
    while is_batchedtensor(x):
        x = get_unwrapped(x)
    if x.requires_grad or forward_ad.unpack_dual(x).tangent is not None:
        return True
    return is_functorch_wrapped_tensor(x) and wants_gradients(get_unwrapped(x))


def _known(answer: Tensor) -> bool:
    """Whether it is known to be yes: under vmap it is one answer for each."""
    try:
        return bool(answer)
    except RuntimeError:
        return False


def _four_axes(mask: Tensor, full: tuple[int, ...]) -> Tensor:
    wide = mask[(None,) * (4 - mask.ndim)] if mask.ndim < 4 else mask
    if wide.ndim != 4 or any(have not in (1, want) for have, want in zip(wide.shape, full)):
        raise ValueError(
            f"mask must broadcast to (batch, heads, queries, keys) = {full}, got {tuple(mask.shape)}; "
            "a mask of padding, (batch, keys), is given as mask[:, None, None, :]"
        )
    if wide.dtype != torch.bool and not wide.is_floating_point():
        raise ValueError(f"mask must be boolean (True is seen) or floats to add to the logits, got {mask.dtype}")
    return wide


def _require_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    def shapes() -> str:  # only where they are told: the compiler writes no lengths that it leaves open
        return " ".join(f"{name} {tuple(x.shape)}" for name, x in (("q", q), ("k", k), ("v", v)))

    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"q, k and v must be (batch, heads, length, width), got {shapes()}")
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(f"k and v must have the same batch, heads and length, got {shapes()}")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"q and k must have the same batch and width, got {shapes()}")
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(f"the heads of q must be a multiple of those of k and v, got {shapes()}")
    if not (q.shape[2] and k.shape[2] and q.shape[3]):
        raise ValueError(f"attention needs at least one query, one key and a width, got {shapes()}")
    if len({q.dtype, k.dtype, v.dtype}) > 1 or not q.is_floating_point():
        raise ValueError(f"q, k and v must be floats of one type, got {q.dtype}, {k.dtype}, {v.dtype}")
