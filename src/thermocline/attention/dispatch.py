"""Adaptive-temperature attention by whichever backend is named, or by the first that can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, overload

from jaxtyping import Bool, Float
from torch import Tensor

from thermocline.attention import reference, sdpa, triton
from thermocline.attention.call import Call, checked
from thermocline.attention.reference import Attended
from thermocline.attention.rules import PUBLISHED, Rule, named
from thermocline.moments import unrounded

Mask = Bool[Tensor, "..."] | Float[Tensor, "..."]


class Backend(NamedTuple):
    """A way to answer a call, and why it cannot, if it cannot."""

    refusal: Callable[[Call], str | None]
    attend: Callable[[Call, Rule], Attended]


BACKENDS = {  # in the order in which "auto" asks them
    "triton": Backend(triton.refusal, triton.attend),
    "sdpa": Backend(sdpa.refusal, sdpa.attend),
    "reference": Backend(lambda call: None, reference.attend),
}


class Choice(NamedTuple):
    """The backend of a call, and why that one."""

    backend: str
    why: str


class Stats(NamedTuple):
    """Of every row its entropy in nats before sharpening, its beta, how many keys it saw; and the backend, with the reason."""

    entropy: Float[Tensor, "b h q"]
    beta: Float[Tensor, "b h q"]
    n: Float[Tensor, "#b #h q"]
    choice: Choice


@overload
def adaptive_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float | None = ..., mask: Mask | None = ...,
    window: int | None = ..., rule: Rule | str = ..., backend: str = ..., return_stats: Literal[False] = ...,
) -> Tensor: ...  # fmt: skip
@overload
def adaptive_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float | None = ..., mask: Mask | None = ...,
    window: int | None = ..., rule: Rule | str = ..., backend: str = ..., return_stats: Literal[True],
) -> tuple[Tensor, Stats]: ...  # fmt: skip
def adaptive_attention(
    q: Float[Tensor, "b h q d"],
    k: Float[Tensor, "b g s d"],
    v: Float[Tensor, "b g s e"],
    *,
    causal: bool,
    scale: float | None = None,
    mask: Mask | None = None,
    window: int | None = None,
    rule: Rule | str = PUBLISHED,
    backend: str = "auto",
    return_stats: bool = False,
) -> Float[Tensor, "b h q e"] | tuple[Float[Tensor, "b h q e"], Stats]:
    """Attention of which each row is sharpened by what its own entropy asks for.

        out_i = sum_j softmax(beta_i e_i)_j v_j,   e_ij = scale q_i . k_j,   beta_i = rule(H_i, n_i)   [velickovic2024softmax]

    k and v may have fewer heads, which groups of heads of q share. `scale=None` is 1 / sqrt(d). The last query stands beside
    the last key: with `causal` it sees all of them, as in decoding with a cache. `window` w leaves the w nearest keys up to
    a query's own position, and where not causal as many ahead. `mask` broadcasts to (b, h, q, s) and is boolean, True for
    seen, or added to the logits before beta, where -1e8 or less hides; a mask of padding is `keep[:, None, None, :]`.

    A row that sees nothing is zeros, one that sees NaN or infinity in q, k or v is NaN, and what a row does not see never
    matters to it, except that on CUDA kernels want hidden keys and values to be finite.

    `rule` is a rule, one's own included, or the name of one (`attention.rules.NAMES`). `backend` is "triton" (kernels for
    NVIDIA GPUs, halves, no masks, exact entropies, O(n) memory, no gradients), "sdpa" (stock attention, CPU and CUDA, O(n)
    memory, no gradients), "reference" (all logits in memory, gradients), or "auto": the first of these that can; which it
    was is in the stats, and `backend_for` tells without running.

    >>> import torch
    >>> q, k = torch.zeros(1, 4, 2, 8), torch.zeros(1, 2, 6, 8)
    >>> out, stats = adaptive_attention(q, k, torch.ones(1, 2, 6, 8), causal=True, return_stats=True)
    >>> out.shape, stats.n, stats.choice.backend
    (torch.Size([1, 4, 2, 8]), tensor([[[5., 6.]]]), 'sdpa')
    """
    call = checked(q, k, v, causal=causal, scale=scale, mask=mask, window=window)
    choice = _chosen(call, backend)
    with unrounded(q):
        out, entropy, beta, n = BACKENDS[choice.backend].attend(call, named(rule))
    return (out, Stats(entropy, beta, call.lengths if n is None else n, choice)) if return_stats else out


def backend_for(
    q: Float[Tensor, "b h q d"],
    k: Float[Tensor, "b g s d"],
    v: Float[Tensor, "b g s e"],
    *,
    mask: Mask | None = None,
    backend: str = "auto",
) -> Choice:
    """Which backend `adaptive_attention` takes for such tensors, and why; nothing is computed.

    >>> import torch
    >>> q = torch.zeros(1, 1, 2, 8)
    >>> backend_for(q, q, q)
    Choice(backend='sdpa', why='not triton: its kernels are for CUDA, and the tensors are on cpu')
    >>> backend_for(q, q, q, mask=torch.ones(2, 2)).why  # doctest: +ELLIPSIS
    'not triton: ...; not sdpa: its mask adds numbers other than 0 and -inf, ...'
    """
    return _chosen(checked(q, k, v, causal=False, scale=None, mask=mask, window=None), backend)


def _chosen(call: Call, backend: str) -> Choice:
    if backend == "auto":
        refusals: list[str] = []
        for name, one in BACKENDS.items():
            if (why := one.refusal(call)) is None:
                return Choice(name, "; ".join(refusals) or "the first that can")
            refusals.append(f"not {name}: {why}")
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(map(repr, ['auto', *BACKENDS]))}, got {backend!r}")
    if why := BACKENDS[backend].refusal(call):
        able = [repr(name) for name, one in BACKENDS.items() if one.refusal(call) is None]
        raise ValueError(f"backend {backend!r} cannot answer: {why}; these can: {', '.join(able)}")
    return Choice(backend, "asked for")
