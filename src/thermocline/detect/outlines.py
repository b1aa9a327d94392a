"""Outlines of a bank of vectors: few coordinates in few bits, which rule out most of it as neighbours, and never one that is.

The bank is cut into blocks of vectors that are near each other. With m the mean of a block, e_i = z_i - m, u the first
principal coordinates of a vector and r the norm of the others,

    key_i = <z, z_i> - h_i <= <z, m> + <u(z), u(e_i)> + r(z) r(e_i) - h_i,      ||z - z_i||^2 = ||z||^2 - 2 key_i

by Cauchy and Schwarz, where h_i = ||z_i||^2 / 2: one product in few dimensions bounds how near a block may come. The blocks
that come near enough are compared whole, which is many times as fast as to pick single vectors from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

LEAST = 2**12  # vectors in a bank under which the plain product takes no longer
BLOCK = 128  # vectors that are ruled out together
TILE = 2**10  # rows and columns of a product that stays in cache
FIRST, GROWTH = 4, 4  # blocks that a vector is compared with at first, and by how much more each time after
LEFT = 0.05  # share of the variance that the axes may leave out
MOST = 0.5  # share of all coordinates, and of all blocks, above which a bank has no outline
LANES = 64  # coordinates come in multiples of it, which is what a CPU likes
WIDE = 2**10  # coordinates above which to find all principal axes takes longer than they save
COARSE = 32  # principal coordinates that say well enough who is near whom
SAFE = 1e-5  # more than float32 gets any sum here wrong by
LOWEST = torch.finfo(torch.float32).min


class Outline(NamedTuple):
    """A bank, and its outline: the vectors in an `order` that keeps near ones together.

    A row of `table` is (u, r) of an e_i, turned at random so that no coordinate is larger than others, and rounded to whole
    multiples of the `scale` of its block. A row of `blocks` is what else is known of one: m, the norms of the largest error of
    a rounding and of the largest e_i, and the largest -h_i.
    """

    bank: Tensor
    half: Tensor
    order: Tensor
    axes: Tensor
    rest: Tensor
    table: Tensor
    scale: Tensor
    blocks: Tensor

    @classmethod
    def of(cls, bank: Tensor, half: Tensor, k: int) -> Outline | None:
        """Outline a bank in as many coordinates as carry almost all of it, in 8 bits where a CPU is fast at those.

        `None` where the plain product is faster: on a GPU, for few vectors, and where most coordinates are needed, or most
        blocks. How many blocks are is tried for points half-way between two of the bank, which are far from all of it.
        """
        if bank.device.type != "cpu" or len(bank) < max(LEAST, BLOCK * k):
            return None
        gen = torch.Generator(bank.device).manual_seed(0)
        sample = bank[torch.randperm(len(bank), generator=gen, device=gen.device)[:LEAST]]
        main = _axes(sample, gen)
        if main.shape[1] > MOST * bank.shape[1]:
            return None
        order = _order(bank, sample, main[:, :COARSE].float())
        turn = torch.linalg.qr(main.new_empty(2 * [main.shape[1] + 1]).normal_(generator=gen))[0]
        axes, rest = (main @ turn[:-1]).float(), turn[-1].float()
        outline = cls(bank, half, order, axes, rest, *_table(bank, half, order, axes, rest))
        tried = (sample[:32] + sample[32:64]) / 2
        least = torch.addmm(half, tried, bank.T, beta=-1).topk(k).values[:, -1:]
        return outline if (_reach(tried, outline) >= least).float().mean() <= MOST else None


def _table(bank: Tensor, half: Tensor, order: Tensor, axes: Tensor, rest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`table`, `scale` and `blocks` of an outline."""
    count, kind = -(-len(bank) // BLOCK), torch.int8 if torch.cpu._is_vnni_supported() else torch.float32
    table, scale = bank.new_empty(count, BLOCK * len(rest), dtype=kind), bank.new_empty(count, 1)
    blocks = bank.new_empty(count, bank.shape[1] + 3)
    # What fills up the last block is its last vector, again.
    whole = torch.cat([order, order[-1:].expand(count * BLOCK - len(order))]).view(count, BLOCK)
    for some, rows, each, own in zip(*(x.split(8) for x in (whole, table, scale, blocks))):
        apart = bank.index_select(0, some.flatten()).view(len(some), BLOCK, -1)
        own[:, :-3] = apart.mean(1)
        exact = _coordinates(apart.sub_(own[:, None, :-3]).flatten(0, 1), axes, rest).view(len(some), -1)
        rounded, each[:] = _rounded(exact, kind)
        rows.copy_(rounded)
        own[:, -2] = _norms(exact.view(len(some), BLOCK, -1)).amax(1)
        own[:, -3] = _norms(exact.addcmul_(rounded, each, value=-1).view(len(some), BLOCK, -1)).amax(1)
        own[:, -1] = -half[some].amin(1)
    return table.view(-1, len(rest)), scale.flatten(), blocks


def nearest(units: Tensor, outline: Outline, k: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Some vectors at a time, and their k largest keys over a bank, in falling order, with their places."""
    for part in units.split(min(max(2**22 // len(outline.scale), 256), 2**14)) if len(units) else ():
        best, places = _searched(part, outline, k)
        best, falling = best.sort(1, descending=True)
        yield part, best, places.gather(1, falling)


def _searched(units: Tensor, outline: Outline, k: int) -> tuple[Tensor, Tensor]:
    """Each is compared with the blocks that may come nearest, then with more, until no other may have one of its k best."""
    reach = _reach(units, outline)
    best, places = units.new_full((len(units), k), -torch.inf), units.new_zeros(len(units), k, dtype=torch.int64)
    least, count = best.amin(1), max(FIRST, -(-k // BLOCK) + 1)
    while (pairs := _pairs(reach, least, count)).numel():
        block, who = pairs
        visitors = who[block.argsort(stable=True)].split(torch.bincount(block, minlength=reach.shape[1]).tolist())
        for own, some in zip(outline.order.split(BLOCK), visitors):
            for few in some.split(TILE) if len(some) else ():
                _visit(units, outline, own, few, best, places, least)
        count *= GROWTH
    return best, places


def _pairs(reach: Tensor, least: Tensor, count: int) -> Tensor:
    """Up to `count` blocks that may come nearest to a vector, of those that may hold more than its least, and the vector.

    They are marked in `reach`, so that they are not compared twice.
    """
    pairs = []
    for start, tile, floor in zip(range(0, len(reach), TILE), reach.split(TILE), least.clamp(min=LOWEST).split(TILE)):
        left = (tile.amax(1) >= floor).nonzero().flatten()
        some = tile.index_select(0, left)
        goal = some.topk(min(count, some.shape[1])).values[:, -1].maximum(floor[left])
        row, block = (some >= goal[:, None]).nonzero().unbind(1)
        tile[left[row], block] = -torch.inf
        pairs.append(torch.stack([block, left[row] + start]))
    return torch.cat(pairs, 1)


def _visit(units: Tensor, outline: Outline, own: Tensor, who: Tensor, best: Tensor, places: Tensor, least: Tensor) -> None:
    """Compare some vectors with all of a block, and keep the best keys, their places, and the least of them."""
    keys = torch.addmm(outline.half[own], units.index_select(0, who), outline.bank.index_select(0, own).T, beta=-1)
    gains = (keys.amax(1) > least.index_select(0, who)).nonzero().flatten()
    if len(gains):
        who = who.index_select(0, gains)
        more, which = torch.cat([best.index_select(0, who), keys.index_select(0, gains)], 1).topk(best.shape[1], sorted=False)
        best.index_copy_(0, who, more)
        least.index_copy_(0, who, more.amin(1))
        where = torch.cat([places.index_select(0, who), own.expand(len(who), -1)], 1)
        places.index_copy_(0, who, where.gather(1, which))


def _reach(units: Tensor, outline: Outline) -> Tensor:
    """The largest key that each vector may have in each block.

    <a, b> = <a', b'> + <a', b - b'> + <a - a', b>, where a' and b' are rounded; the last two are at most products of norms.
    """
    reach, kind = units.new_empty(len(units), len(outline.scale)), outline.table.dtype
    eight = kind == torch.int8
    multiply = torch._int_mm if eight else torch.mm  # pyright: ignore[reportPrivateImportUsage]
    buffer = units.new_empty(TILE * TILE, dtype=torch.int32 if eight else kind)
    for unit, bound in zip(units.split(TILE), reach.split(TILE)):
        exact = _coordinates(unit, outline.axes, outline.rest)
        rounded, scale = _rounded(exact, kind)
        short = rounded.to(kind)
        for rows, most in zip(outline.table.split(TILE), bound.split(TILE // BLOCK, 1)):
            product = multiply(short, rows.T, out=buffer[: len(unit) * len(rows)].view(len(unit), len(rows)))
            most.copy_(product.view(len(unit), -1, BLOCK).amax(2))
        rounded *= scale
        slack = 1.01 * torch.stack([_norms(rounded), _norms(exact.sub_(rounded))], 1)
        bound.mul_(scale).mul_(outline.scale).add_(SAFE)
        bound.addmm_(torch.cat([unit, slack, unit.new_ones(len(unit), 1)], 1), outline.blocks.T)
    return reach


def _rounded(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """x / s in whole numbers that fit into 8 bits, and s, of each row; float32 stays as it is."""
    if kind == torch.float32:
        return x.clone(), x.new_ones(len(x), 1)
    scale = x.abs().amax(1, keepdim=True).div_(127).clamp_(min=1e-30)
    return x.div(scale).round_(), scale


def _axes(sample: Tensor, gen: torch.Generator) -> Tensor:
    """The principal axes that carry almost all of a sample, in float64 since bounds hold as far as they are at right angles."""
    moment = (sample.T @ sample).double()
    basis = torch.eye(len(moment), dtype=torch.float64, device=moment.device)
    if len(moment) > WIDE:  # then of a subspace that power iterations found
        basis = moment.new_empty(len(moment), WIDE // 2).normal_(generator=gen)
        for _ in range(2):
            basis = torch.linalg.qr(moment @ basis)[0]
    values, vectors = torch.linalg.eigh(basis.T @ moment @ basis)
    left = moment.trace() - values.flip(0).cumsum(0)
    count = int((left > LEFT * left[0]).sum()) + 1  # the first axis is about the mean, and no part of the variance
    lanes = LANES if len(moment) > 4 * LANES else 1
    return basis @ vectors.flip(1)[:, : -(-(count + 1) // lanes) * lanes - 1]  # one is left for the norm of the rest


def _order(bank: Tensor, sample: Tensor, axes: Tensor) -> Tensor:
    """The places of a bank, those together that are nearest to the same of some centres: k-means of a sample."""

    def nearest_of(points: Tensor) -> Tensor:
        return torch.addmm(centres.square().sum(1), points, centres.T, beta=-0.5).argmax(1)

    points = sample @ axes
    centres = points[: min(len(bank) // (2 * BLOCK), len(sample) // 4)]
    for _ in range(4):
        near = nearest_of(points)
        sizes = torch.bincount(near, minlength=len(centres)).clamp_(min=1)
        centres = torch.zeros_like(centres).index_add_(0, near, points) / sizes[:, None]
    return torch.cat([nearest_of(some @ axes) for some in bank.split(LEAST)]).argsort(stable=True)


def _coordinates(x: Tensor, axes: Tensor, rest: Tensor) -> Tensor:
    """(u, r), turned: what is turned is as long as what is not."""
    main = x @ axes
    # A root of what two roundings left may be too small by 3e-4, and a bound must not be.
    other = (_norms(x).square_() - _norms(main).square_()).clamp_(min=0).add_(1e-6).sqrt_()
    return main.addr_(other, rest)


def _norms(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1)
