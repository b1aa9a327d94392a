"""How far attention has dispersed, row by row, beside the bounds that its logits allow."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from thermocline import softmax
from thermocline.attention.call import Call, blocks, checked
from thermocline.attention.reference import logits
from thermocline.softmax.temperature import Temperature, tempered

_NUMBERS = {"cpu": 2**22, "cuda": 2**27}  # logits held at a time: 16 MB in float32, and half a gigabyte


class Dispersion(NamedTuple):
    """Of every row: entropy in nats, largest weight, spread of logits, keys seen, and the bounds of any weight."""

    entropy: Float[Tensor, "b h q"]
    largest: Float[Tensor, "b h q"]
    spread: Float[Tensor, "b h q"]
    n: Float[Tensor, "b h q"]
    lower: Float[Tensor, "b h q"]
    upper: Float[Tensor, "b h q"]


@torch.no_grad()
def dispersion(
    q: Float[Tensor, "b h q d"],
    k: Float[Tensor, "b g s d"],
    *,
    causal: bool,
    scale: float | None = None,
    mask: Bool[Tensor, "..."] | Float[Tensor, "..."] | None = None,
    window: int | None = None,
    temperature: Temperature = 1.0,
) -> Dispersion:
    """The entropy and largest weight of every row of attention, and how sharp its spread of logits lets it be.

        exp(-delta / T) / n <= alpha_j <= exp(delta / T) / n,   delta = max e - min e   [velickovic2024softmax, Lem. 2.1]

    over the keys a row sees; a row that sees none has zeros throughout. Some rows at a time: memory does not grow with the
    square of the length. Conventions of masks and of causality are those of `adaptive_attention`.

    >>> found = dispersion(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 8, 4), causal=False)
    >>> [float(x[0, 0, 0]) for x in (found.largest, found.spread, found.lower, found.upper)]
    [0.125, 0.0, 0.125, 0.125]
    """
    call = checked(q, k, k, causal=causal, scale=scale, mask=mask, window=window)
    n = call.lengths.expand(q.shape[:3])
    size = _NUMBERS.get(q.device.type, 2**22) // max(q.shape[0] * q.shape[1], 1)
    parts = [_rows(call, rows, temperature) for rows in blocks(call, size)]
    entropy, largest, spread = (torch.cat(part, -1) for part in zip(*parts))
    share = torch.where(n > 0, 1 / n, 0)
    return Dispersion(entropy, largest, spread, n, share * (-spread / temperature).exp(), share * (spread / temperature).exp())


def _rows(call: Call, rows: slice, temperature: Temperature) -> tuple[Tensor, Tensor, Tensor]:
    e = logits(call, rows)
    hidden = e == -math.inf
    top, bottom = e.amax(-1), e.masked_fill(hidden, math.inf).amin(-1)
    cold, nothing = tempered(e, temperature), hidden.all(-1)
    largest = (cold.amax(-1) - torch.logsumexp(cold, -1)).exp()
    return softmax.masked_entropy(cold), largest.masked_fill(nothing, 0), (top - bottom).masked_fill(nothing, 0)
