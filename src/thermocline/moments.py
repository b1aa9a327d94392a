"""Streaming sufficient statistics: one pass, float64, mergeable.

NaN or infinity in the input propagates to every reader; a caller that wants an error checks before it updates.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

BATCH = 1024  # rows of a matrix taken in at a time: its float64 copy stays small, and on a CPU in cache
STRIP = 256  # columns of a Gram computed at a time on a CPU, where its other half is mirrored and not computed


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
        for batch in x.split(BATCH):
            moments.update(batch)
        return moments

    def update(self, x: Float[Tensor, "b d"]) -> None:
        """Take in a batch."""
        if len(x) == 0:
            return
        wide = x.detach().double()
        mean = wide.mean(0)
        shift = mean - self.mean
        total = self.count + len(x)
        # With y_i = x_i - mean + sqrt(count / total) shift, sum_i y_i y_i^T is the batch's own scatter plus the
        # pairwise correction (count b / total) shift shift^T, since sum_i (x_i - mean) = 0: one product for both.
        moved = wide - (mean - shift * (self.count / total) ** 0.5)
        _add_gram(self.scatter, moved)
        self.mean += shift * (len(x) / total)
        self.count = total

    def merge(self, other: Moments) -> None:
        """Take in everything another state has seen."""
        if not other.count:
            return
        total = self.count + other.count
        shift = other.mean.to(self.mean.device) - self.mean
        self.scatter += other.scatter.to(self.mean.device)
        self.scatter.addr_(shift, shift, alpha=self.count * other.count / total)
        self.mean += shift * (other.count / total)
        self.count = total

    def covariance(self, *, ddof: int) -> Float[Tensor, "d d"]:
        """scatter / (count - ddof)."""
        return self.scatter / _freedom(self.count, ddof)

    def second_moment(self) -> Float[Tensor, "d d"]:
        """The uncentred sum x^T x."""
        return torch.addr(self.scatter, self.mean, self.mean, alpha=self.count)


class ClassMoments:
    """Moments of a labelled stream: count and mean of every class, and the scatter within classes, pooled.

        within = sum_c sum_{i in c} (x_i - mean_c)(x_i - mean_c)^T            [chan1983variance]

    The pooled scatter is accumulated by the pairwise rule of each class, never as total minus between, which
    cancels when classes collapse; the total is the sum of the two. Memory is O(d^2 + c d). A class that has not
    been seen has count 0 and mean 0, and no reader counts it.

    >>> x, labels = torch.tensor([[0.0], [2.0], [10.0], [10.0]]), torch.tensor([0, 0, 2, 2])
    >>> m = ClassMoments.of(x, labels, classes=3); m.means.flatten()
    tensor([ 1.,  0., 10.], dtype=torch.float64)
    >>> torch.cat([m.within, m.all.scatter]).round()  # 1 + 1, and 2 + 4 * 4.5^2
    tensor([[ 2.],
            [83.]], dtype=torch.float64)
    """

    def __init__(self, dimension: int, classes: int, *, device: torch.device | str = "cpu") -> None:
        self.count = 0
        self.counts = torch.zeros(classes, dtype=torch.float64, device=device)
        self.means = torch.zeros(classes, dimension, dtype=torch.float64, device=device)
        self.within = torch.zeros(dimension, dimension, dtype=torch.float64, device=device)

    @classmethod
    def of(cls, x: Float[Tensor, "n d"], labels: Int[Tensor, "n"], *, classes: int) -> ClassMoments:
        """The class moments of a matrix with samples in rows."""
        moments = cls(x.shape[1], classes, device=x.device)
        for batch, names in zip(x.split(BATCH), labels.split(BATCH)):
            moments.update(batch, names)
        return moments

    def update(self, x: Float[Tensor, "b d"], labels: Int[Tensor, "b"]) -> None:
        """Take in a labelled batch: one (b, d) product, whatever the number of classes."""
        if len(x) == 0:
            return
        wide, labels = x.detach().double(), labels.long()
        counts, means = self._summary(wide, labels)
        # The identity of `Moments.update`, class by class.
        kept = (self.counts / (self.counts + counts).clamp(min=1)).sqrt()
        moved = wide - (means - (means - self.means) * kept[:, None])[labels]
        _add_gram(self.within, moved)
        self._join(len(x), counts, means)

    def merge(self, other: ClassMoments) -> None:
        """Take in everything another state has seen."""
        device = self.counts.device
        counts, means = other.counts.to(device), other.means.to(device)
        weight = self.counts * counts / (self.counts + counts).clamp(min=1)
        shift = (means - self.means) * weight.sqrt()[:, None]
        self.within += other.within.to(device)
        self.within.addmm_(shift.T, shift)
        self._join(other.count, counts, means)

    @property
    def all(self) -> Moments:
        """The moments of all samples, built anew at each reading in O(c d^2).

        scatter = within + sum_c n_c (mean_c - mean)(mean_c - mean)^T
        """
        every = Moments(self.means.shape[1], device=self.counts.device)
        every.count = self.count
        every.mean, spread = self._spread(self.counts / max(self.count, 1))
        every.scatter += self.within
        every.scatter.addmm_(spread.T, spread, alpha=self.count)
        return every

    def within_covariance(self, *, ddof: int) -> Float[Tensor, "d d"]:
        """Sigma_W, the pooled covariance within classes: every sample has the same weight, so a class has its size.

            within / (n - ddof * c),   c = classes seen                       [papyan2020collapse]

        With equal class sizes and ddof=0 it is also the plain mean over classes.

        >>> ClassMoments.of(torch.tensor([[0.0], [2.0], [9.0]]), torch.tensor([0, 0, 1]), classes=2).within_covariance(ddof=1)
        tensor([[2.]], dtype=torch.float64)
        """
        lost = ddof * int((self.counts > 0).sum())
        return self.within / _freedom(self.count, lost)

    def between_covariance(self, *, weights: Literal["classes", "samples"]) -> Float[Tensor, "d d"]:
        """Sigma_B, the covariance of the class means around their own weighted mean.

            sum_c w_c m_c m_c^T,   m_c = mean_c - sum_c w_c mean_c            [papyan2020collapse]

        "classes": w_c = 1/c over the classes seen. "samples": w_c = n_c/n, and then within_covariance(ddof=0) plus
        this is the covariance of all samples. With equal class sizes the two agree.

        >>> m = ClassMoments.of(torch.tensor([[0.0], [0.0], [0.0], [4.0]]), torch.tensor([0, 0, 0, 1]), classes=2)
        >>> [round(m.between_covariance(weights=weights).item(), 6) for weights in ("classes", "samples")]
        [4.0, 3.0]
        """
        if weights not in ("classes", "samples"):
            raise ValueError(f"weights must be 'classes' or 'samples', got {weights!r}")
        mass = (self.counts > 0).double() if weights == "classes" else self.counts
        _, spread = self._spread(mass / mass.sum().clamp(min=1))
        return spread.T @ spread

    def _spread(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted mean of the class means, and the deviations from it times the square roots of the weights."""
        centre = weights @ self.means
        return centre, (self.means - centre) * weights.sqrt()[:, None]

    def _join(self, count: int, counts: Tensor, means: Tensor) -> None:
        self.count += count
        self.counts += counts
        self.means += (means - self.means) * (counts / self.counts.clamp(min=1))[:, None]

    def _summary(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Count and mean of every class in a batch; a bag is summed in one order on every device, unlike an index_add."""
        ordered, order = labels.sort(stable=True)
        low, high = ordered[[0, -1]].tolist()
        if low < 0 or high >= len(self.counts):
            raise ValueError(f"labels must lie in 0..{len(self.counts) - 1}, got {low}..{high}")
        edges = torch.searchsorted(ordered, torch.arange(len(self.counts) + 1, device=labels.device))
        return edges.diff().double(), torch.nn.functional.embedding_bag(order, x, edges[:-1], mode="mean")


def _add_gram(total: Tensor, rows: Tensor) -> None:
    """total += rows^T rows. A CPU computes the upper half in strips and mirrors it; a GPU is faster with one product."""
    width = len(total)
    if total.is_cuda or width <= STRIP:
        total.addmm_(rows.T, rows)
        return
    for start in range(0, width, STRIP):
        stop = min(start + STRIP, width)
        strip = rows[:, start:stop].T @ rows[:, start:]
        total[start:stop, start:] += strip
        total[stop:, start:stop] += strip[:, stop - start :].T


def _freedom(count: int, lost: int) -> int:
    if count <= lost:
        raise ValueError(f"a covariance with {lost} degrees of freedom taken off needs more than {lost} samples, got {count}")
    return count - lost
