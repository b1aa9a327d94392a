"""Adaptive-temperature attention by entropies and one more call of stock attention: O(n) memory."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from thermocline.attention import stock
from thermocline.attention.call import Call, dense, wants_gradients
from thermocline.attention.entropies import entropies
from thermocline.attention.reference import Attended, apart
from thermocline.attention.rules import Rule


def refusal(call: Call) -> str | None:
    """Why stock calls cannot answer, if they cannot."""
    device, dtype = call.q.device.type, call.q.dtype
    if call.bias is not None:
        return "its mask adds numbers other than 0 and -inf, which would have to be sharpened as logits are"
    if torch.is_grad_enabled() and any(wants_gradients(x) for x in (call.q, call.k, call.v)):
        return "gradients are wanted, and entropies have none here: call it under torch.no_grad()"
    if device not in ("cpu", "cuda"):
        return f"it knows kernels for cpu and cuda, and the tensors are on {device}"
    if device == "cuda" and dtype == torch.float64:
        return "no CUDA kernel of stock attention takes float64"
    return None


@torch.no_grad()
def attend(call: Call, rule: Rule) -> Attended:
    """Attention of which each row has a temperature of its own: its entropy H_i first, then attention with beta_i q_i for q_i.

        out_i = sum_j softmax(beta_i e_i)_j v_j,   beta_i = rule(H_i, n_i)    [velickovic2024softmax]

    On a CPU halves are computed in float32, which takes no longer. On CUDA weights and sums are rounded to them. In bfloat16
    the entropy is then right to about 1e-2 where the logits of a row have a standard deviation of 2 or less; at 4, a fifth
    of rows are wrong by more, up to 0.035, and at 8 most, up to 0.11: it is a difference of numbers as large as the logits.
    In float16 errors are an eighth of these, and beta is held to what it can write. And beta_i q_i is rounded, which moves a
    logit by up to 2^-9 of its terms.

    >>> from thermocline.attention.call import checked
    >>> from thermocline.attention.rules import PUBLISHED
    >>> q, v = torch.zeros(1, 1, 1, 2), torch.tensor([[[[1.0], [3.0]]]])
    >>> attend(checked(q, torch.zeros(1, 1, 2, 2), v, causal=False, scale=None, mask=None, window=None), PUBLISHED).entropy
    tensor([[[0.6931]]])
    """
    # On CUDA to look would be to wait.
    if call.q.device.type != "cpu" or call.finite:
        return _attend(call, rule)
    return apart(call, lambda sound: _attend(sound, rule))


def _attend(call: Call, rule: Rule) -> Attended:
    wide, n = even(call), call.lengths
    entropy = entropies(wide).masked_fill(n == 0, 0)
    beta = writable(rule(entropy, n.expand_as(entropy)), wide.q)
    out, _ = stock.attend(replace(wide, q=(wide.q * beta[..., None]).to(wide.q.dtype)))
    if call.mask is not None or call.offset < 0:
        out = out.masked_fill((n == 0)[..., None], 0)
    return Attended(out[..., : call.v.shape[3]].to(call.q.dtype), entropy, beta, n)


def writable(beta: Tensor, q: Tensor) -> Tensor:
    """Beta, no larger than beta q can be written in float16: so sharp, attention is on the largest logit anyway.

    >>> writable(torch.tensor([2.0, 4e4]), torch.tensor([[1.0, 3.0], [1.0, -4.0]]).half()).tolist()
    [2.0, 16376.0]
    """
    if q.dtype != torch.float16:
        return beta
    return beta.minimum(torch.finfo(torch.float16).max / q.abs().amax(-1).float().clamp(min=1))


def even(call: Call) -> Call:
    """The call with dense rows and v as wide as k, as all stock kernels want: zeros added change neither logits nor sums."""
    width, cuda = max(call.k.shape[3], call.v.shape[3]), call.q.device.type == "cuda"
    width = -(-width // 8) * 8 if cuda else width
    dtype = call.q.dtype if cuda else torch.promote_types(call.q.dtype, torch.float32)
    q, k, v = (x.to(dtype) for x in (call.q, call.k, call.v))
    return replace(call, **{name: dense(x if x.shape[3] == width else _padded(x, width)) for name, x in zip("qkv", (q, k, v))})


def _padded(x: Tensor, width: int) -> Tensor:
    return functional.pad(x, (0, width - x.shape[3]))
