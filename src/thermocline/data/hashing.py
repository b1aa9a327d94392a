"""Random numbers as a function of where they are used: without state, neither order nor batching can change them."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def _signed(word: int) -> int:
    return word - (1 << 64)


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST, _SECOND = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def scramble(*coordinates: int | Tensor) -> Int[Tensor, "..."]:
    """64 mixed bits for every point of the broadcast integer coordinates, by the finaliser of splitmix64.

    h_0 = 0,  h_j = mix(h_(j-1) xor coordinate_j + golden ratio);  mix is one-to-one, so points that differ in one
    coordinate never share their bits.
    """
    state = torch.zeros((), dtype=torch.int64)
    for coordinate in coordinates:
        place = torch.as_tensor(coordinate, dtype=torch.int64)
        # A 0-d state may meet a tensor on another device; once it has dimensions it lives there.
        state = _mix((state ^ place).add_(_GOLDEN))
    return state


def _mix(z: Tensor) -> Tensor:
    # int64 shifts drag the sign along; the masks make them the unsigned shifts the hash is defined by.
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))).mul_(_FIRST)
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))).mul_(_SECOND)
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def uniform(bits: Int[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Uniform on [0, 1) in float64, from the top 53 bits.

    >>> uniform(torch.tensor([0, 1 << 62, -1 << 63]))
    tensor([0.0000, 0.2500, 0.5000], dtype=torch.float64)
    """
    return ((bits >> 11) & ((1 << 53) - 1)).to(torch.float64) * 2.0**-53


def bell(bits: Int[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Mean 0, variance 1, nearly normal, never beyond 3.47: the sum of the four 16-bit lanes, in float32.

    The sum is an exact integer, so unlike a Box-Muller normal it is the same on every device.

    >>> bell(torch.tensor([0, -1]))
    tensor([-3.4640,  3.4640])
    """
    lane = (1 << 16) - 1
    total = (bits & lane) + ((bits >> 16) & lane) + ((bits >> 32) & lane) + ((bits >> 48) & lane)
    return (total - 2 * lane).to(torch.float32) * (3**0.5 / (1 << 16))


def place_in_class(labels: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
    """The place of each sample in a fixed shuffle of its class: 0, 1, 2, ... in every class.

    >>> place_in_class(torch.tensor([0, 1, 0, 0, 1])).sort().values
    tensor([0, 0, 1, 1, 2])
    """
    shuffle = scramble(len(labels), torch.arange(len(labels))).argsort()
    by_class = shuffle[labels[shuffle].argsort(stable=True)]
    counts = labels.bincount()
    starts = counts.cumsum(0) - counts
    places = torch.empty_like(labels)
    places[by_class] = torch.arange(len(labels)) - starts[labels[by_class]]
    return places


def balanced(labels: Int[Tensor, "n"], count: int) -> Int[Tensor, "m"]:
    """Indices, ascending, of `count` samples, as many of each class as can be had. A larger count only adds to them.

    >>> labels = torch.tensor([0] * 90 + [1] * 9 + [2])
    >>> labels[balanced(labels, 7)].bincount()
    tensor([3, 3, 1])
    """
    shuffle = scramble(len(labels), torch.arange(len(labels))).argsort()
    # The shuffle settles which classes give one more where count does not divide evenly.
    turns = shuffle[place_in_class(labels)[shuffle].argsort(stable=True)]
    return turns[:count].sort().values


def held_out(labels: Int[Tensor, "n"]) -> Bool[Tensor, "n"]:
    """Which samples to test on: a fifth of every class, at least one where a class has two.

    >>> labels = torch.tensor([0] * 10 + [1] * 2 + [2])
    >>> labels[held_out(labels)]
    tensor([0, 0, 1])
    """
    counts = labels.bincount()
    tested = ((counts + 2) // 5).clamp(min=1).where(counts > 1, 0)
    return place_in_class(labels) < tested[labels]
