"""Streaming sufficient statistics: one pass, float64, mergeable.

NaN or infinity in the input propagates to every reader; a caller that wants an error asks `require_finite`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Integer, Real
from torch import Tensor

Array = Tensor | np.ndarray

STRIP = 256  # columns of a Gram computed at a time on a CPU, where its other half is mirrored and not computed
MOST = 2**20  # classes: a label beyond is taken for something else, such as a hash, before memory is asked for
NARROW = 1024  # columns up to which numpy takes less time, and no more memory, for half a Gram than strips do


class Groups(NamedTuple):
    """The samples of a batch by class. `grouped` makes it once a batch, for the moments of any number of layers."""

    labels: Int[Tensor, "b"]
    order: Int[Tensor, "b"]
    starts: Int[Tensor, "classes"]
    counts: Float[Tensor, "classes"]

    @property
    def classes(self) -> int:
        """One more than the largest label."""
        return len(self.counts)

    def means(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "classes d"]:
        """The mean of every class, 0 without a sample; a bag is summed in one order on every device, unlike an index_add."""
        return torch.nn.functional.embedding_bag(self.order, x, self.starts, mode="mean")


def grouped(labels: Integer[Tensor, "b"], *, classes: int | None = None) -> Groups:
    """Sort a batch by class, of at most `classes`; the only step of `ClassMoments.update` that waits for the device.

    >>> grouped(torch.tensor([2, 0, 2])).counts
    tensor([1., 0., 2.], dtype=torch.float64)
    """
    labels = require_labels(len(labels), labels).detach()
    ordered, order = labels.sort(stable=True)
    low, high = ordered[[0, -1]].tolist() if len(labels) else (0, -1)
    if low < 0 or (classes is not None and high >= classes):
        raise ValueError(f"labels must lie in 0..{'' if classes is None else classes - 1}, got {low}..{high}")
    edges = torch.searchsorted(ordered, torch.arange(high + 2, device=labels.device))
    return Groups(labels, order, edges[:-1], edges.diff().double())


def class_means(
    x: Float[Tensor, "n d"], labels: Integer[Array, "n"], *, classes: int
) -> tuple[Float[Tensor, "classes"], Float[Tensor, "classes d"]]:
    """The count and mean of every class of a matrix, in float64; a class without a sample has mean 0.

    >>> class_means(torch.tensor([[0.0], [2.0], [10.0]]), torch.tensor([0, 0, 2]), classes=3)[1].flatten()
    tensor([ 1.,  0., 10.], dtype=torch.float64)
    """
    counts = torch.zeros(classes, dtype=torch.float64, device=x.device)
    means = torch.zeros(classes, x.shape[1], dtype=torch.float64, device=x.device)
    for wide, names in slices(x, labels):
        groups = grouped(names, classes=classes)
        _join(counts, means, groups.counts, groups.means(wide))
    return counts, means


def slices(x: Float[Tensor, "n d"], *labels: Integer[Array, "n"]) -> Iterator[tuple[Tensor, ...]]:
    """Some rows of a matrix at a time, in float64 and free to be overwritten, with their labels, where given.

    All are copied to one buffer, good until the next: new memory for each would cost more than the copying.

    >>> [len(wide) for (wide,) in slices(torch.ones(2500, 2048))]
    [1024, 1024, 452]
    """
    found = [require_labels(len(x), names) for names in labels]
    rows = max(2 ** (21 if x.device.type == "cpu" else 24) // max(x.shape[1], 1), 1024)
    buffer = torch.empty(min(rows, len(x)), x.shape[1], dtype=torch.float64, device=x.device)
    for part, *rest in zip(*(tensor.detach().split(rows) for tensor in (x, *found))):
        yield buffer[: len(part)].copy_(part), *rest


def subtract(rows: Float[Tensor, "b d"], table: Float[Tensor, "c d"], labels: Int[Tensor, "b"]) -> None:
    """rows -= table[labels]; on a CPU a few rows at a time, so that what is taken from the table stays in cache.

    >>> subtract(x := torch.tensor([[5.0], [7.0]]), torch.tensor([[1.0], [2.0]]), torch.tensor([1, 0])); x.flatten()
    tensor([3., 6.])
    """
    step = max(2**17 // max(rows.shape[1], 1), 16) if rows.device.type == "cpu" else max(len(rows), 1)
    for some, names in zip(rows.split(step), labels.split(step)):
        some -= table.index_select(0, names)


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
    def of(cls, x: Real[Array, "n d"]) -> Moments:
        """The moments of a matrix with samples in rows."""
        x = matrix(x, "x")
        moments = cls(x.shape[1], device=x.device)
        for (wide,) in slices(x):
            moments._take(wide)
        return moments

    def update(self, x: Float[Tensor, "b d"]) -> None:
        """Take in a batch."""
        _require_width(len(self.mean), x)
        self._take(x.detach().to(torch.float64, copy=True))

    def _take(self, x: Tensor) -> None:
        """Take in a batch in float64, and overwrite it."""
        if len(x) == 0:
            return
        mean = x.mean(0)
        total = self.count + len(x)
        # With y_i = x_i - mean + sqrt(count / total) shift, sum_i y_i y_i^T is the batch's own scatter plus the
        # pairwise correction (count b / total) shift shift^T, since sum_i (x_i - mean) = 0: one product for both.
        x -= torch.lerp(mean, self.mean, (self.count / total) ** 0.5)
        add_gram(self.scatter, x)
        self.mean.lerp_(mean, len(x) / total)
        self.count = total

    def merge(self, other: Moments) -> None:
        """Take in everything another state has seen."""
        _require_width(len(self.mean), other.scatter)
        if not other.count:
            return
        total = self.count + other.count
        shift = other.mean.to(self.mean.device) - self.mean
        self.scatter += other.scatter.to(self.mean.device)
        self.scatter.addr_(shift, shift, alpha=self.count * other.count / total)
        self.mean += shift * (other.count / total)
        self.count = total

    def pool(self, total: Callable[[Tensor], Tensor]) -> None:
        """Take in what all processes of a team have seen, each its own samples; `total` sums a tensor over them."""
        count = total(self.mean.new_tensor(self.count))
        mean = total(self.mean * self.count) / count.clamp(min=1)
        shift = self.mean - mean
        self.scatter = total(torch.addr(self.scatter, shift, shift, alpha=self.count))
        self.mean, self.count = mean, int(count)

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
    def of(cls, x: Real[Array, "n d"], labels: Integer[Array, "n"], *, classes: int) -> ClassMoments:
        """The class moments of a matrix with samples in rows."""
        x = matrix(x, "x")
        moments = cls(x.shape[1], classes, device=x.device)
        for wide, names in slices(x, labels):
            moments._take(wide, grouped(names, classes=classes))
        return moments

    def update(self, x: Float[Tensor, "b d"], labels: Integer[Tensor, "b"] | Groups) -> None:
        """Take in a labelled batch: one (b, d) product, whatever the number of classes.

        Where several moments see the same labels, `grouped` sorts them once for all.
        """
        groups = labels if isinstance(labels, Groups) else grouped(labels, classes=len(self.counts))
        if groups.classes > len(self.counts):
            raise ValueError(f"there are {groups.classes} classes, and room for {len(self.counts)}: widen first")
        _require_width(len(self.within), x)
        require_labels(len(x), groups.labels)
        self._take(x.detach().to(torch.float64, copy=True), groups)

    def _take(self, x: Tensor, groups: Groups) -> None:
        """Take in a batch in float64, and overwrite it."""
        if len(x) == 0:
            return
        means, counts = groups.means(x), self.counts[: groups.classes]
        # The identity of `Moments._take`, class by class.
        kept = (counts / (counts + groups.counts).clamp(min=1)).sqrt()
        subtract(x, torch.lerp(means, self.means[: groups.classes], kept[:, None]), groups.labels)
        add_gram(self.within, x)
        _join(self.counts, self.means, groups.counts, means)
        self.count += len(x)

    def widen(self, classes: int) -> None:
        """Make room for classes that have not been seen; where there is room already, nothing changes."""
        if (more := classes - len(self.counts)) > 0:
            self.counts = torch.nn.functional.pad(self.counts, (0, more))
            self.means = torch.nn.functional.pad(self.means, (0, 0, 0, more))

    def merge(self, other: ClassMoments) -> None:
        """Take in everything another state has seen, and make room for its classes."""
        _require_width(len(self.within), other.within)
        self.widen(len(other.counts))
        device = self.counts.device
        counts, means = other.counts.to(device), other.means.to(device)
        before = self.counts[: len(counts)]
        weight = before * counts / (before + counts).clamp(min=1)
        shift = (means - self.means[: len(counts)]) * weight.sqrt()[:, None]
        self.within += other.within.to(device)
        self.within.addmm_(shift.T, shift)
        _join(self.counts, self.means, counts, means)
        self.count += other.count

    def pool(self, total: Callable[[Tensor], Tensor]) -> None:
        """Take in what all processes of a team have seen, with room for the same classes; `total` sums a tensor over them."""
        counts = total(self.counts)
        means = total(self.means * self.counts[:, None]) / counts.clamp(min=1)[:, None]
        shift = (self.means - means) * self.counts.sqrt()[:, None]
        self.within = total(torch.addmm(self.within, shift.T, shift))
        self.counts, self.means, self.count = counts, means, int(counts.sum())

    @property
    def all(self) -> Moments:
        """The moments of all samples, built anew at each reading in O(c d^2).

        scatter = within + sum_c n_c (mean_c - mean)(mean_c - mean)^T
        """
        every = Moments(self.means.shape[1], device=self.counts.device)
        every.count = self.count
        weights = self.counts / max(self.count, 1)
        every.mean = weights @ self.means
        spread = (self.means - every.mean) * weights.sqrt()[:, None]
        every.scatter = torch.addmm(self.within, spread.T, spread, alpha=self.count)
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


def reals(x: Real[Array, "..."] | Sequence[Any], what: str) -> Float[Tensor, "..."]:
    """A tensor of floats as it is; integers, and numbers out of a list, in float64.

    >>> reals([1, 2], "x"), reals(torch.tensor([0.5]), "x")
    (tensor([1., 2.], dtype=torch.float64), tensor([0.5000]))
    """
    if not isinstance(x, Tensor):
        array = np.require(x, requirements=["C", "W"])
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{what} must be real numbers, got {type(x).__name__} of {array.dtype}")
        if np.ma.is_masked(array):
            raise TypeError(f"{what} must be real numbers, and some are masked: leave those samples out, or fill them")
        # Files may have the other byte order, and to numpy an axis of length 1 is in order even if it runs backwards.
        other = not array.dtype.isnative or min(array.strides, default=0) < 0
        x = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")) if other else array)
    if x.is_complex():
        raise TypeError(f"{what} must be real numbers, got {x.dtype}")
    if x.layout != torch.strided:
        raise TypeError(f"{what} must be dense, got {x.layout}: call to_dense() first")
    return x if x.is_floating_point() else x.double()


def matrix(x: Real[Array, "n d"] | Sequence[Sequence[int | float]], what: str) -> Float[Tensor, "n d"]:
    """A tensor, an array or rows of numbers as a matrix of floats."""
    try:
        found = reals(x, what)
    except ValueError:
        raise ValueError(f"{what} must be a matrix with samples in rows, all of the same length") from None
    if found.ndim != 2:
        raise ValueError(f"{what} must be a matrix with samples in rows, got {found.dtype} of shape {tuple(found.shape)}")
    return found


def require_finite(x: Float[Tensor, "..."], what: str) -> None:
    """Raise where there is NaN or infinity, which some devices would decompose or compare into numbers.

    >>> require_finite(torch.tensor([1.0, torch.nan]), "x")
    Traceback (most recent call last):
    ValueError: x must not be NaN or infinite
    """
    # The least and the largest are NaN where any value is.
    if x.numel() and not torch.stack(x.detach().aminmax()).isfinite().all():
        raise ValueError(f"{what} must not be NaN or infinite")


def unrounded(x: Tensor) -> AbstractContextManager[object]:
    """Products as wide as what is multiplied: autocast would round it to halves."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def require_labels(samples: int, labels: Integer[Array, "n"] | Sequence[int]) -> Int[Tensor, "n"]:
    """Labels as a tensor of int64; raise unless every sample has one, an integer: one-hot rows are not.

    >>> require_labels(3, [0, 1])
    Traceback (most recent call last):
    ValueError: every sample needs a label: there are 3 samples and 2 labels
    """
    found = labels if isinstance(labels, Tensor) else np.asarray(labels)
    whole = not found.is_floating_point() if isinstance(found, Tensor) else found.dtype.kind in "iu"
    if found.ndim != 1 or not whole:
        raise ValueError(f"labels must be a vector of class indices, got {found.dtype} of shape {tuple(found.shape)}")
    if samples != len(found):
        raise ValueError(f"every sample needs a label: there are {samples} samples and {len(found)} labels")
    if np.ma.is_masked(labels):
        raise ValueError("every sample needs a label, and some are masked: leave those samples out")
    return found.long() if isinstance(found, Tensor) else torch.from_numpy(found.astype(np.int64))


def _join(counts: Tensor, means: Tensor, more: Tensor, other: Tensor) -> None:
    """Take the counts and means of the first classes into those of all."""
    counts, means = counts[: len(more)], means[: len(more)]
    counts += more
    means.lerp_(other, (more / counts.clamp(min=1))[:, None])


def add_gram(total: Tensor, rows: Tensor) -> None:
    """total += rows^T rows. A CPU computes half of it and mirrors that; a GPU is faster with one product."""
    width = len(total)
    if total.device.type != "cpu":
        total.addmm_(rows.T, rows)
    elif width <= NARROW and torch.get_num_threads() == 1:
        # A matrix times itself is a SYRK to numpy. It has threads of its own, and two pools of them slow each other down.
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is the reader's to find, as it is in torch
            total += torch.from_numpy(np.dot(rows.T.numpy(), rows.numpy()))
    else:
        for start in range(0, width, STRIP):
            stop = min(start + STRIP, width)
            strip = rows[:, start:stop].T @ rows[:, start:]
            total[start:stop, start:] += strip
            total[stop:, start:stop] += strip[:, stop - start :].T


def _require_width(width: int, rows: Tensor) -> None:
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"these are moments of width {width}, which cannot take in vectors of shape {tuple(rows.shape[1:])}")


def _freedom(count: int, lost: int) -> int:
    if count <= lost:
        raise ValueError(f"a covariance with {lost} degrees of freedom taken off needs more than {lost} samples, got {count}")
    return count - lost
