"""Outlines of a bank of vectors: few coordinates in few bits, which rule out most of it as neighbours, and never one that is.

With c the mean of the bank, x = z - c, u its first principal coordinates and r the norm of the others,

    key_i = <x, x_i> - ||x_i||^2 / 2 <= <u, u_i> + r r_i - ||x_i||^2 / 2,      ||z - z_i||^2 = ||x||^2 - 2 key_i

by Cauchy and Schwarz: one product in few dimensions bounds what a vector may have in common with everyone in the bank.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LEAST = 2**12  # vectors in a bank under which the plain product takes no longer
FOLD = 32  # bounds of which only the largest is looked at, at first
LANES = 64  # groups of bounds come in multiples of it, which is what a CPU likes
GATHER = 200  # coordinates of a bfloat16 product that take as long as to compare one with a vector picked from the bank
SAFE = 1e-5  # more than float32 gets any sum here wrong by
WIDE = 2**10  # coordinates above which to find principal axes takes longer than they save
SHARES = (1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2)  # of all coordinates, that may be enough


class Outline(NamedTuple):
    """A bank, and its outline: the vectors in random `order`, so that groups of bounds do not go with classes.

    A row of `table` is u, r and ||x||^2 / 2, that in two parts since it must not be rounded to few bits. `error` is the
    norm of the largest rounding of a (u, r), and `size` the largest ||x||.
    """

    bank: Tensor
    order: Tensor
    centre: Tensor
    axes: Tensor | None
    table: Tensor
    error: float
    size: float

    @staticmethod
    def pays(bank: Tensor, k: int) -> bool:
        """Whether an outline could be faster than the plain product: on a GPU, which is fast at that, it is not."""
        return bank.device.type == "cpu" and len(bank) >= max(LEAST, 4 * FOLD * k)

    @classmethod
    def of(cls, bank: Tensor, k: int) -> Outline:
        """Outline a bank in as many coordinates, and bits, as promise the least work."""
        order = torch.randperm(len(bank), generator=torch.Generator().manual_seed(0))
        centre, kind = bank.mean(0), torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32
        axes = _axes(bank[order[:LEAST]] - centre, k / len(bank), kind)
        width = bank.shape[1] if axes is None else axes.shape[1] + 1
        block = FOLD * LANES
        table = torch.zeros(-(-len(bank) // block) * block, width + 2, dtype=kind)
        table[len(bank) :, -1] = 1e4  # what fills up the last groups is far from everyone
        error = size = 0.0
        for row, where in zip(table.split(2**12), order.split(2**12)):
            exact, square = _coordinates(bank[where], centre, axes)
            rounded = row[: len(where)]
            rounded[:, :-2], rounded[:, -2] = exact, square / 2
            rounded[:, -1] = square / 2 - rounded[:, -2]
            error = max(error, float(_norms(exact - rounded[:, :-2]).max()))
            size = max(size, float(square.max().sqrt()))
        return cls(bank, order, centre, axes, table, error, size)


def kth_by_outline(units: Tensor, outline: Outline, k: int) -> Tensor:
    """The distance to the k-th nearest of a bank; NaN where so few are ruled out that the plain product is better."""
    rows = min(max(2**27 // len(outline.table), 16), 512)
    buffer = torch.empty(min(rows, len(units)), len(outline.table), dtype=outline.table.dtype)
    parts = units.split(rows) if len(units) else ()
    return torch.cat([units.new_empty(0), *(_kth(part, outline, k, buffer[: len(part)]) for part in parts)])


def _kth(units: Tensor, outline: Outline, k: int, bounds: Tensor) -> Tensor:
    exact, square = _coordinates(units, outline.centre, outline.axes)
    table = torch.full((len(units), outline.table.shape[1]), -1.0, dtype=bounds.dtype)
    table[:, :-2] = exact
    # <a, b> - <a', b'> = <a - a', b> + <a', b - b'>, where a' and b' are rounded, and ||a|| is ||x||.
    slack = 1.01 * (_norms(exact - table[:, :-2]) * outline.size + square.sqrt() * outline.error) + SAFE
    groups = torch.mm(table, outline.table.T, out=bounds).view(len(units), FOLD, -1).amax(1)
    # The k-th of those with the best bounds is at least as far as the k-th nearest ...
    cut, near = groups.topk(k).values[:, -1], units.new_full((len(units),), torch.nan)
    _visit(units, outline, k, bounds, groups, cut, near)
    # ... and those whose bounds do not reach as far are not among these. To round both sides keeps their order.
    reach = ((square - near.square()) / 2 - slack).to(cut.dtype)
    _visit(units, outline, k, bounds, groups, reach.where(reach < cut, torch.nan), near)
    return near


def _visit(units: Tensor, outline: Outline, k: int, bounds: Tensor, groups: Tensor, cut: Tensor, near: Tensor) -> None:
    """Work out the distances of vectors to all whose bound is not below a cut, and note the k-th; where that is NaN, none."""
    reached = groups >= cut[:, None]
    few = reached.sum(1) <= groups.shape[1] // 2
    near[~few] = torch.nan
    who, group = (reached & few[:, None]).nonzero().unbind(1)
    members = torch.arange(0, bounds.shape[1], groups.shape[1])
    which, member = (bounds.flatten()[(who * bounds.shape[1] + group)[:, None] + members] >= cut[who, None]).nonzero().unbind(1)
    counts, places = torch.bincount(who[which], minlength=len(units)), outline.order[group[which] + members[member]]
    buffer = outline.bank.new_empty(int(counts.max()), outline.bank.shape[1])
    for row, some in enumerate(places.split(counts.tolist())):
        if len(some):
            others = torch.index_select(outline.bank, 0, some, out=buffer[: len(some)])
            near[row] = torch.linalg.vector_norm(others.sub_(units[row]), dim=1).kthvalue(k).values


def _axes(sample: Tensor, share: float, kind: torch.dtype) -> Tensor | None:
    """Principal axes of a centred sample of a bank, as many as promise the least work; `None` where that is all there are.

    The fewer the axes, the shorter the product, and the more vectors their bounds admit. How many that is is tried for
    points half-way between two of the sample, which are about as far from it all as what is to be scored.
    """
    width, tried = sample.shape[1], (sample[:64] + sample[64:128]) / 2
    if width > WIDE:
        return None
    # In float64, since bounds hold as far as axes are at right angles.
    axes = torch.linalg.eigh((sample.T @ sample).double())[1].flip(1).float()
    square = sample.square().sum(1)
    keys = tried @ sample.T - square / 2
    floor = keys.topk(max(round(share * len(sample)), 1)).values[:, -1:] - torch.finfo(kind).eps / 2 * square.mean()
    price = GATHER * torch.finfo(torch.bfloat16).bits / torch.finfo(kind).bits * width / len(sample)
    costs = {width: width + price * float((keys >= floor).sum(1).float().mean())}
    for count in {max(round(width * part), 1) for part in SHARES}:
        (table, _), (mine, _) = (_coordinates(x, torch.zeros(width), axes[:, :count]) for x in (sample, tried))
        costs[count] = count + price * float((mine @ table.T - square / 2 >= floor).sum(1).float().mean())
    best = min(costs, key=costs.__getitem__)
    return axes[:, :best].contiguous() if best < width else None


def _coordinates(vectors: Tensor, centre: Tensor, axes: Tensor | None) -> tuple[Tensor, Tensor]:
    """(u, r) and ||x||^2; without axes, all of x."""
    x = vectors - centre
    square = x.square().sum(1)
    if axes is None:
        return x, square
    main = x @ axes
    # A root of what two roundings left may be too small by 3e-4, and a bound must not be.
    rest = (square - main.square().sum(1)).clamp_(min=0).add_(1e-6).sqrt_()
    return torch.cat([main, rest[:, None]], 1), square


def _norms(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=1)
