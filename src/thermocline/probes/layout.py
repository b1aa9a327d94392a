"""Where taps of different widths lie in one matrix, and which batched products serve all of them."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

K = TypeVar("K", bound=Hashable)

LANE = 16  # numbers of 4 bytes in the widest vector register of a CPU
BLOCK = 256  # columns of a block: a few long products keep few of a GPU's processors busy, many short ones all of them


class Layout(Generic[K]):
    """Taps side by side in the columns of a matrix, each in whole blocks of columns, the last filled up with zeros.

    Batched, as a GPU wants it, all blocks have one width and are one product, and a tap's is the sum over its blocks.
    Otherwise a tap is one block, and a product of its own.
    """

    def __init__(self, widths: Mapping[K, int], device: torch.device, *, batched: bool) -> None:
        self.batched = batched
        self.width = min(lanes(max(widths.values())), BLOCK)
        counts = {tap: -(-width // self.width) if batched else 1 for tap, width in widths.items()}
        counts = dict(sorted(counts.items(), key=lambda item: item[1]))
        sizes = [count * self.width if batched else lanes(widths[tap]) for tap, count in counts.items()]
        edges = list(itertools.accumulate(sizes, initial=0))
        self.columns = {tap: slice(start, start + widths[tap]) for tap, start in zip(counts, edges)}
        gaps = {tap: stop - self.columns[tap].stop for tap, stop in zip(counts, edges[1:])}
        self.filling = {tap: gap for tap, gap in gaps.items() if gap}
        self.total, self.blocks = edges[-1], sum(counts.values())
        self.runs = [(count, len(list(run))) for count, run in itertools.groupby(counts.values())]  # blocks a tap, taps
        owner = [index for index, count in enumerate(counts.values()) for _ in range(count)]
        self.owner = torch.tensor(owner, device=device)

    def views(self, matrix: Tensor) -> list[Tensor]:
        """The blocks of an (n, columns) matrix, as one (blocks, n, width) a product."""
        if self.batched:
            return [matrix.unflatten(1, (-1, self.width)).transpose(0, 1)]
        return [matrix[None, :, columns] for columns in self.columns.values()]

    def shares(self, blocks: Tensor) -> Sequence[Tensor]:
        """What belongs to each product, of a tensor with blocks in its first dimension."""
        return [blocks] if self.batched else blocks.split(1)

    def gather(self, blocks: Tensor) -> Tensor:
        """Sums over the blocks of each tap."""
        if self.blocks == len(self.columns):
            return blocks
        sums = blocks.new_empty(len(self.columns), *blocks.shape[1:])
        parts = blocks.split([count * taps for count, taps in self.runs])
        for (count, _), part, out in zip(self.runs, parts, sums.split([taps for _, taps in self.runs])):
            torch.sum(part.unflatten(0, (-1, count)), 1, out=out)
        return sums

    def spread(self, taps: Tensor) -> Tensor:
        """What is each tap's, for each of its blocks."""
        return taps if self.blocks == len(self.columns) else taps.index_select(0, self.owner)

    def pieces(self, features: Mapping[K, Tensor], filling: Mapping[K, Tensor]) -> list[Tensor]:
        """What side by side is x: the features of each tap, and what fills its last block up."""
        found: list[Tensor] = []
        for tap in self.columns:
            found += [features[tap], filling[tap]] if tap in filling else [features[tap]]
        return found


def lanes(size: int) -> int:
    """Filled up to whole vector registers: what is in the company of other taps then rounds as it would alone."""
    return -(-size // LANE) * LANE
