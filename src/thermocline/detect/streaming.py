"""Metrics of more scores than one wants to keep."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Int, Real
from torch import Tensor

from thermocline.detect.intervals import Interval
from thermocline.detect.metrics import Side, passing, require_side
from thermocline.moments import reals

LEAST, LARGEST = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max


class Tally(NamedTuple):
    """Scores in groups, each with the keys of its least and largest score; a group without scores has them crossed."""

    low: Int[Tensor, "k"]
    high: Int[Tensor, "k"]
    counts: Int[Tensor, "k"]


class ScoreStream:
    """How often which scores of one data set occurred, in bounded memory: one stream for ID, one for each OOD set.

    Up to `capacity` distinct scores are counted one by one. Beyond it, those that agree in the leading bits of their
    float64 (from 1/2 to 1, of their distance from 1: probabilities crowd there) are counted together, in as many bits as
    leave no more than `capacity` groups. How many depends on the scores alone, so how the stream was cut or merged cannot
    change anything. A group keeps its least and its largest score.

    A metric is read by the ID stream against an OOD stream: `low` and `high` are certain bounds of the metric of the
    scores themselves, from every order they may have within groups, and `value` is the middle of the two; while nothing
    has been counted together, all three are that metric. Memory is 32 bytes a group.

    >>> inside, outside = ScoreStream.of(torch.tensor([3.0, 2.0])), ScoreStream.of(torch.tensor([1.0, 2.0]))
    >>> inside.auroc(outside).value
    tensor(0.8750, dtype=torch.float64)
    """

    def __init__(self, *, capacity: int = 2**17, device: torch.device | str = "cpu") -> None:
        if capacity < 2:
            raise ValueError(f"capacity is a number of groups, at least 2, got {capacity}")
        self.capacity, self.count = capacity, 0
        self._level, self._late = 0, 0
        self._waiting = [torch.empty(0, dtype=torch.int64, device=device)]
        self._tally = Tally(*torch.empty(3, 0, dtype=torch.int64, device=device))

    @classmethod
    def of(cls, scores: Real[Tensor, "n"], *, capacity: int = 2**17) -> ScoreStream:
        """The stream of a vector."""
        wide = reals(scores, "scores")
        stream = cls(capacity=capacity, device=wide.device)
        stream.update(wide)
        return stream

    @property
    def exact(self) -> bool:
        """Whether every score is still counted by itself."""
        self.tally()
        return self._level == 0

    def update(self, scores: Real[Tensor, "b"]) -> None:
        """Take in a batch."""
        wide = reals(scores, "scores").detach()
        if wide.ndim != 1:
            raise ValueError(f"scores must be a vector, got shape {tuple(wide.shape)}")
        if wide.isnan().any():
            raise ValueError("scores must not be NaN: how such a sample compares is not known")
        for part in wide.split(self.capacity):
            self._waiting.append(_keys(part.to(self._tally.low.device)))
            self.count, self._late = self.count + len(part), self._late + len(part)
            # To sort all groups again for every small batch would take longer than to make the scores.
            if self._late >= self.capacity:
                self.tally()

    def merge(self, other: ScoreStream) -> None:
        """Take in everything another stream has seen."""
        if self.capacity != other.capacity:
            raise ValueError(f"streams of capacity {self.capacity} and {other.capacity} do not merge: make them alike")
        self.tally()
        self._absorb(Tally(*(x.to(self._tally.low.device) for x in other.tally())), other._level)
        self.count += other.count

    def tally(self) -> Tally:
        """The groups, from the least scores up."""
        keys = torch.cat(self._waiting)
        self._waiting, self._late = [keys[:0]], 0
        if len(keys):
            self._absorb(Tally(keys, keys, torch.ones_like(keys)), 0)
        return self._tally

    def _absorb(self, more: Tally, level: int) -> None:
        every = Tally(*map(torch.cat, zip(self._tally, more)))
        ordered, self._level = every.low.sort().values, max(self._level, level)
        while len(groups := _groups(ordered, self._level).unique_consecutive()) > self.capacity:
            self._level += 1
        self._tally = _regrouped(every, groups, self._level)

    def auroc(self, ood: ScoreStream) -> Interval:
        """`metrics.auroc` of this ID stream against an OOD stream, within

            (1/2) sum_g n_g m_g / (n m)   over groups g that hold ID and OOD scores of unknown order.

        >>> inside, outside = (ScoreStream.of(torch.arange(8.0) - less, capacity=2) for less in (0, 4))
        >>> [float(x) for x in inside.auroc(outside)]  # all that is known of a score is its sign
        [0.75, 0.5, 1.0]
        """
        inside, outside = self._against(ood, "id")
        total, pairs = float(self.count * ood.count), inside.counts.double() * outside.counts
        below = outside.counts.sum() - outside.counts.cumsum(0)
        above, tied = inside.low > outside.high, _tied(inside, outside)
        low = (inside.counts * below.double() + pairs * (above + tied / 2)).sum()
        unknown = pairs[~(above | tied | (outside.low > inside.high))].sum()
        return _between(low / total, (low + unknown) / total)

    def aupr(self, ood: ScoreStream, *, positive: Side) -> Interval:
        """`metrics.aupr` of this ID stream against an OOD stream: the precision at a score of group g lies between

            (t + j) / (t + j + f + m_g)   and   (t + n_g) / (t + n_g + f),

        with t true and f false positives in the groups above, n_g and m_g in it, and j = 1 .. n_g.

        >>> ScoreStream.of(torch.tensor([3.0, 1.0])).aupr(ScoreStream.of(torch.tensor([2.0, 0.0])), positive="id").value
        tensor(0.8333, dtype=torch.float64)
        """
        kept, other = self._against(ood, positive)
        here, there = kept.counts.double(), other.counts.double()
        true, false = here.cumsum(0) - here, there.cumsum(0) - there
        most = true + here
        # What is known of the order narrows it: negatives that are surely below do not count, and surely above they do.
        worst = false + there * ~(kept.low > other.high)
        best = false + there * (_tied(kept, other) | (other.low > kept.high))
        high = here * most / (most + best)
        # sum_j (t + j) / (t + j + w) = n - w sum_j 1 / (t + w + j), a difference of digammas; equal ones count together.
        apart = here - worst * (torch.digamma(most + worst + 1) - torch.digamma(true + worst + 1))
        low = torch.where(kept.low == kept.high, here * most / (most + worst), apart)
        some = here > 0
        return _between(low[some].sum() / here.sum(), high[some].sum() / here.sum())

    def fpr_at_tpr(self, ood: ScoreStream, *, tpr: float, positive: Side) -> Interval:
        """`metrics.fpr_at_tpr` of this ID stream against an OOD stream, within the share of negatives in one group.

        >>> inside, outside = ScoreStream.of(torch.tensor([4.0, 3.0, 2.0, 1.0])), ScoreStream.of(torch.tensor([0.0, 2.5]))
        >>> inside.fpr_at_tpr(outside, tpr=0.75, positive="id").value
        tensor(0.5000, dtype=torch.float64)
        """
        kept, other = self._against(ood, positive)
        reached = kept.counts.cumsum(0)
        at = torch.searchsorted(reached, passing(tpr, int(reached[-1])))
        here, passed = other.counts[at], other.counts.cumsum(0)[at].double()
        low = passed - here * (other.low[at] < kept.high[at])
        high = passed - here * (other.high[at] < kept.low[at])
        return _between(low / other.counts.sum(), high / other.counts.sum())

    def _against(self, ood: ScoreStream, positive: Side) -> tuple[Tally, Tally]:
        """The tallies of the positives and the negatives in the same groups, from the most positive down."""
        require_side(positive)
        if not self.count or not ood.count:
            raise ValueError(f"a metric needs scores of both sides, got {self.count} ID and {ood.count} OOD")
        inside, outside = self.tally(), Tally(*(x.to(self._tally.low.device) for x in ood.tally()))
        level = max(self._level, ood._level)
        groups = _groups(torch.cat([inside.low, outside.low]), level).unique()
        inside, outside = (_regrouped(tally, groups, level) for tally in (inside, outside))
        if positive == "id":
            return Tally(*(x.flip(0) for x in inside)), Tally(*(x.flip(0) for x in outside))
        # ~k = -1 - k turns the order of keys round.
        return Tally(~outside.high, ~outside.low, outside.counts), Tally(~inside.high, ~inside.low, inside.counts)


def _keys(scores: Tensor) -> Tensor:
    """Integers in the order of the scores: the bits of a float64, with those of negative ones turned round.

    >>> _keys(torch.tensor([-torch.inf, -1.0, -0.0, 0.0, 5e-324, torch.inf], dtype=torch.float64)).diff().sign()
    tensor([1, 1, 0, 1, 1])
    """
    # -0 + 0 is 0, which has one key.
    bits = (scores.double() + 0.0).view(torch.int64)
    return bits ^ ((bits >> 63) & LARGEST)


def _groups(keys: Tensor, level: int) -> Tensor:
    """The number of the group of each key: at level 0 the key itself, at each level above half as many, in order.

    >>> scores = torch.tensor([-1.0, 0.0, 0.3, 0.5, 0.75, 1 - 1e-9, 1 - 1e-15, 1.0, 2.0], dtype=torch.float64)
    >>> _groups(_keys(scores), 51).diff()  # an octave each, of the score or of its distance from 1
    tensor([1024, 1021,    1,    1,   27,   20,  974,    1])
    """
    if level == 0:
        return keys
    # A quarter of every key makes room for the octaves next to 1, where 1 - s is exact.
    half, one = (_keys(torch.tensor([s], dtype=torch.float64, device=keys.device)) >> 2 for s in (0.5, 1.0))
    scores = (keys ^ ((keys >> 63) & LARGEST)).view(torch.float64)
    rest = 2 * half - ((1 - scores).view(torch.int64) >> 2)
    quarter = keys >> 2
    return quarter.where(scores < 0.5, rest.where(scores <= 1, quarter - one + 2 * half)) >> (level - 1)


def _regrouped(tally: Tally, groups: Tensor, level: int) -> Tally:
    """The scores of a tally in groups of a level no lower than its own; `groups` are sorted, and hold all of theirs."""
    group = torch.searchsorted(groups, _groups(tally.low, level))
    return Tally(
        torch.full_like(groups, LARGEST).scatter_reduce_(0, group, tally.low, "amin"),
        torch.full_like(groups, LEAST).scatter_reduce_(0, group, tally.high, "amax"),
        torch.zeros_like(groups).index_add_(0, group, tally.counts),
    )


def _tied(one: Tally, other: Tally) -> Tensor:
    """The groups whose scores are all one value."""
    return torch.minimum(one.low, other.low) == torch.maximum(one.high, other.high)


def _between(low: Tensor, high: Tensor) -> Interval:
    return Interval((low + high) / 2, low, high)
