"""Adaptive-temperature attention as it is defined: every logit in memory, in float32 or wider, with gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from thermocline import softmax
from thermocline.attention.call import ALL, Call, part, visible
from thermocline.attention.rules import Rule
from thermocline.moments import unrounded


class Attended(NamedTuple):
    """The output in the type of the queries; of every row its entropy before sharpening, its beta and, if known, n."""

    out: Float[Tensor, "b h q e"]
    entropy: Float[Tensor, "b h q"]
    beta: Float[Tensor, "b h q"]
    n: Float[Tensor, "#b #h q"] | None = None


def attend(call: Call, rule: Rule) -> Attended:
    """Attention of which each row has a temperature of its own.

        out_i = sum_j softmax(beta_i e_i)_j v_j,   beta_i = rule(H(softmax(e_i)), n_i)    [velickovic2024softmax]

    A row that sees no key gives zeros, entropy 0; one that sees what is NaN or infinite gives NaN (`apart`).

    >>> from thermocline.attention.call import checked
    >>> from thermocline.attention.rules import PUBLISHED
    >>> q, v = torch.zeros(1, 1, 1, 2), torch.tensor([[[[1.0], [3.0]]]])
    >>> attend(checked(q, torch.zeros(1, 1, 2, 2), v, causal=False, scale=None, mask=None, window=None), PUBLISHED).entropy
    tensor([[[0.6931]]])
    """
    return apart(call, lambda sound: _attend(sound, rule))


def _attend(call: Call, rule: Rule) -> Attended:
    e = logits(call)
    entropy, n = softmax.masked_entropy(e), call.lengths
    beta = rule(entropy, n.expand_as(entropy))
    weights = softmax.sharpened(e, beta).unflatten(1, (call.k.shape[1], -1))
    out = (weights @ call.v.to(weights.dtype)[:, :, None]).flatten(1, 2)
    return Attended(out.to(call.q.dtype), entropy, beta, n)


def apart(call: Call, attend: Callable[[Call], Attended]) -> Attended:
    """What `attend` makes of a call: NaN for rows that see a NaN or an infinity, which it is shown as zeros.

    Left to themselves kernels differ: some make zeros of a NaN, and in all of them a weight of 0 times a NaN is one.
    """
    q, k, v = (~x.isfinite().all(-1) for x in (call.q, call.k, call.v))
    sound = {name: getattr(call, name).masked_fill(bad[..., None], 0) for name, bad in zip("qkv", (q, k, v))}
    out, entropy, beta, n = attend(replace(call, **sound))
    n = call.lengths if n is None else n
    unread, unsaid = (q & (n > 0)) | call.seen_of(k), call.seen_of(v)
    out = out.masked_fill((unread | unsaid)[..., None], math.nan)
    return Attended(out, entropy.masked_fill(unread, math.nan), beta.masked_fill(unread, math.nan), n)


def logits(call: Call, rows: slice = ALL) -> Float[Tensor, "b h r s"]:
    """The logits of some queries with every key, -inf where a key is not seen; in float32 or wider.

        e_ij = scale q_i . k_j + bias_ij

    Head h of the queries goes with head h // (heads of q / heads of k) of the keys.

    >>> from thermocline.attention.call import checked
    >>> one = torch.ones(1, 1, 2, 4)
    >>> logits(checked(one, one, one, causal=True, scale=None, mask=None, window=None))
    tensor([[[[2., -inf],
              [2., 2.]]]])
    """
    dtype = torch.promote_types(call.q.dtype, torch.float32)
    grouped = call.q[:, :, rows].to(dtype).unflatten(1, (call.k.shape[1], -1))
    with unrounded(call.q):
        e = (grouped @ call.k.to(dtype).transpose(2, 3)[:, :, None]).flatten(1, 2) * call.scale
    if call.bias is not None:
        bias = part(call.bias, rows, ALL)
        e = (e + bias).masked_fill(bias == -math.inf, -math.inf)  # NaN - inf would be NaN
    return e.masked_fill(~visible(call, rows), -math.inf)
