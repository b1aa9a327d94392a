"""Streaming sufficient statistics: one pass, float64, mergeable."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Moments:
    """Mean and scatter of a stream of d-vectors: one pass, O(d^2) memory, float64.

    Two states combine by the pairwise rule [chan1983variance], so how the stream was cut into batches,
    devices or files cannot change the answer beyond rounding.

    >>> x = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]])
    >>> m = Moments(2); m.update(x[:1]); m.update(x[1:]); m.mean
    tensor([2., 2.], dtype=torch.float64)
    >>> m.covariance(ddof=0)
    tensor([[2.6667, 2.0000],
            [2.0000, 2.0000]], dtype=torch.float64)
    """

    def __init__(self, dimension: int, *, device: torch.device | str = "cpu") -> None:
        self.count = 0
        self.mean = torch.zeros(dimension, dtype=torch.float64, device=device)
        self.scatter = torch.zeros(dimension, dimension, dtype=torch.float64, device=device)

    @classmethod
    def of(cls, x: Float[Tensor, "n d"]) -> Moments:
        """The moments of a matrix with samples in rows."""
        moments = cls(x.shape[1], device=x.device)
        moments.update(x)
        return moments

    def update(self, x: Float[Tensor, "b d"]) -> None:
        """Take in a batch."""
        if len(x) == 0:
            return
        wide = x.double()
        mean = wide.mean(0)
        centred = wide - mean
        self._join(len(x), mean, centred.T @ centred)

    def merge(self, other: Moments) -> None:
        """Take in everything another state has seen."""
        if other.count:
            self._join(other.count, other.mean.to(self.mean.device), other.scatter.to(self.mean.device))

    def covariance(self, *, ddof: int) -> Float[Tensor, "d d"]:
        """scatter / (count - ddof)."""
        if self.count <= ddof:
            raise ValueError(f"a covariance with ddof={ddof} needs more than {ddof} samples, got {self.count}")
        return self.scatter / (self.count - ddof)

    def second_moment(self) -> Float[Tensor, "d d"]:
        """The uncentred sum x^T x."""
        return self.scatter + self.count * torch.outer(self.mean, self.mean)

    def _join(self, count: int, mean: Tensor, scatter: Tensor) -> None:
        total = self.count + count
        shift = mean - self.mean
        self.scatter += scatter + torch.outer(shift, shift) * (self.count * count / total)
        self.mean += shift * (count / total)
        self.count = total


class ClassMoments:
    """Moments of a labelled stream: those of all samples, and count and mean of every class."""

    def __init__(self, dimension: int, classes: int, *, device: torch.device | str = "cpu") -> None:
        self.all = Moments(dimension, device=device)
        self.counts = torch.zeros(classes, dtype=torch.float64, device=device)
        self.means = torch.zeros(classes, dimension, dtype=torch.float64, device=device)

    @classmethod
    def of(cls, x: Float[Tensor, "n d"], labels: Int[Tensor, "n"], *, classes: int) -> ClassMoments:
        """The class moments of a matrix with samples in rows."""
        moments = cls(x.shape[1], classes, device=x.device)
        moments.update(x, labels)
        return moments

    def update(self, x: Float[Tensor, "b d"], labels: Int[Tensor, "b"]) -> None:
        """Take in a labelled batch."""
        self.all.update(x)
        counts = torch.bincount(labels, minlength=len(self.counts)).double()
        sums = torch.zeros_like(self.means).index_add_(0, labels, x.double())
        self._join(counts, sums / counts.clamp(min=1)[:, None])

    def merge(self, other: ClassMoments) -> None:
        """Take in everything another state has seen."""
        self.all.merge(other.all)
        self._join(other.counts.to(self.counts.device), other.means.to(self.means.device))

    def _join(self, counts: Tensor, means: Tensor) -> None:
        self.counts += counts
        self.means += (means - self.means) * (counts / self.counts.clamp(min=1))[:, None]
