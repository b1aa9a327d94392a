"""Scales and axes of a cloud of features, as several detectors need them."""

from __future__ import annotations

import numbers
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from thermocline.moments import Moments, add_gram, reals, require_finite

FEW = 512  # rows that give the order of magnitude of a feature
ROWS = 2048  # multiplied in float32 at a time: they stay in cache, and sums that are short err less
ROUNDING = 5e-8  # by how much float32 products get a correlation wrong where whole samples repeat; elsewhere by 2e-8 or less


def standardised(
    covariance: Float[Tensor, "d d"], mean: Float[Tensor, "d"], *, count: int
) -> tuple[Float[Tensor, "d"], Float[Tensor, "d d"]]:
    """The standard deviation of every feature, 1 for a constant one, and the covariance of features divided by theirs.

        constant:  variance <= r variance + (r mean)^2,   r = count * 2^-52      scikit-learn's rule

    The variance of a constant feature may be all rounding, and large where the feature is: it counts as 0.

    >>> covariance = torch.diag(torch.tensor([4.0, 1e8]).double())
    >>> standardised(covariance, torch.tensor([1.0, 1e20]).double(), count=100)
    (tensor([2., 1.], dtype=torch.float64), tensor([[1., 0.],
            [0., 0.]], dtype=torch.float64))
    """
    variance, rounding = covariance.diagonal(), count * torch.finfo(torch.float64).eps
    varies = variance > rounding * variance + (rounding * mean).square()
    std = variance.clamp(min=0).sqrt().where(varies, 1.0)
    return std, (covariance / torch.outer(std, std)).where(varies[:, None] & varies, 0.0)


def leading(variance: Float[Tensor, "d"], dim: int | float) -> int:
    """How many axes to keep of those with these variances, the largest first: `dim`, or those that reach a fraction of it all.

    >>> leading(torch.tensor([6.0, 3.0, 1.0]), 2), leading(torch.tensor([6.0, 3.0, 1.0]), 0.9)
    (2, 2)
    """
    if isinstance(dim, int):
        return min(dim, len(variance))
    explained = variance.cumsum(0) / variance.sum().clamp(min=torch.finfo(variance.dtype).tiny)
    # Rounding may keep the sum of all shares from reaching 1.
    return min(int((explained < dim).sum()) + 1, rank(variance) or len(variance))


def rank(variance: Float[Tensor, "d"]) -> int:
    """How many axes with these variances, the largest first, have more than a decomposition leaves by rounding.

    >>> rank(torch.tensor([6.0, 3.0, 1e-16]).double()), rank(torch.zeros(3))
    (2, 0)
    """
    return int((variance > len(variance) * torch.finfo(variance.dtype).eps * variance[0]).sum())


def divide(
    axes: Float[Tensor, "d d"], variance: Float[Tensor, "d"], dim: int | float, *, residual: bool
) -> tuple[Float[Tensor, "d k"], Float[Tensor, "d rest"]]:
    """The main axes, as many as `leading` says, and the others, of which there must be some.

    Beyond the `rank` axes are arbitrary, and `residual` asks for variance along the others too.

    >>> divide(torch.eye(2), torch.tensor([3.0, 1.0]), 0.9, residual=False)
    Traceback (most recent call last):
    ValueError: dim=0.9 takes all 2 axes, and every score would be 1: ask for fewer
    """
    count, most = leading(variance, dim), rank(variance)
    if not most:
        raise ValueError(f"dim={dim!r} takes axes along which features vary, and these do not")
    if count == len(variance):
        lost = "which leaves no residual" if residual else "and every score would be 1"
        raise ValueError(f"dim={dim!r} takes all {count} axes, {lost}: ask for fewer")
    if count > most - residual:
        lost = ", which leaves no residual" if residual else ""
        raise ValueError(f"dim={dim!r} takes {count} axes of features that vary along {most}{lost}: ask for fewer")
    return axes[:, :count], axes[:, count:]


def settled(
    variance: Float[Tensor, "d"], axes: Float[Tensor, "d d"], std: Float[Tensor, "d"], dim: int | float, *, residual: bool
) -> bool:
    """Whether the rounding of `standard_moments` leaves the span of the first axes alone: a cut between equals does not.

        t_ab = r w_a w_b / (v_a - v_b),   w_a^2 = sum_i (std_i u_ia)^2,   a <= k < b
        2 sqrt(sum_ab (t_ab z_a z_b)^2) <= 1.5e-6 ||z||^2,   or, for a `residual`, 3e-6 ||(1 - P) z||^2

    On the left is by how much ||P z||^2 moves, to first order, where correlations are off by r: asked of z of no direction
    in particular, z_a = 1, and of z like what was fitted to, z_a^2 = v_a. Rounding may not change how many axes reach a
    fraction either, and of a residual next to nothing there is no relative error to promise.

    >>> variance, axes, std = torch.tensor([1.0, 1.0, 0.1]).double(), torch.eye(3).double(), torch.ones(3).double()
    >>> [settled(variance, axes, std, dim, residual=True) for dim in (1, 2)]
    [False, True]
    """
    count, share = leading(variance, dim), variance.cumsum(0) / variance.sum()
    width = ROUNDING * (std.square() @ axes.square())
    turned = torch.outer(width[:count], width[count:]) / (variance[:count, None] - variance[count:]).square()
    for z in (torch.ones_like(variance), variance):  # squared
        whole, rest = z.sum(), z[count:].sum()
        moved, most = 2 * (z[:count] @ turned @ z[count:]).sqrt(), 3e-6 * rest if residual else 1.5e-6 * whole
        if not moved <= most or (residual and rest <= 1e-4 * whole):
            return False
    return isinstance(dim, int) or bool((share - dim).abs().min() > 1e-5)


def principal(spread: Float[Tensor, "d d"]) -> tuple[Float[Tensor, "d"], Float[Tensor, "d d"]]:
    """Variances and axes (in columns) of a covariance, the largest first.

    >>> principal(torch.diag(torch.tensor([1.0, 3.0])))[0]
    tensor([3., 1.])
    """
    variance, axes = torch.linalg.eigh(spread)
    return variance.flip(0).clamp(min=0), axes.flip(1)


def dimension(dim: Any) -> int | float:
    """A number of axes as an int, or a fraction of variance as a float; raise unless it is one of them.

    >>> import numpy as np; dimension(np.int64(5)), dimension(np.float32(0.5))
    (5, 0.5)
    """
    number = int(dim) if isinstance(dim, numbers.Integral) else float(dim) if isinstance(dim, numbers.Real) else 0
    if isinstance(dim, bool) or not (number >= 1 if isinstance(number, int) else 0 < number <= 1):
        raise ValueError(f"dim is a number of axes (an int) or a variance fraction in (0, 1], got {dim!r}")
    return number


def divided(
    z: Float[Tensor, "b d"], axes: Float[Tensor, "d k"], others: Float[Tensor, "d rest"]
) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"]]:
    """The squared norms of two parts of vectors, which are overwritten: along the main axes, and along the others.

    >>> divided(torch.tensor([[3.0, 4.0]]), torch.eye(2)[:, :1], torch.eye(2)[:, 1:])
    (tensor([9.]), tensor([16.]))
    """
    main = axes.shape[1] <= others.shape[1]
    # ||P z||^2 = ||z||^2 - ||(1 - P) z||^2, and the side with fewer axes takes less work. A difference leaves an
    # error of 1e-16 ||z||^2, on the side with more axes only.
    side = (axes if main else others).T @ z.T
    part = side.square_().sum(0)
    rest = (z.square_().sum(1) - part).clamp(min=0)
    return (part, rest) if main else (rest, part)


def roughly(x: Float[Tensor, "n d"]) -> bool:
    """Whether to try products in float32: they save time on a matrix both long and wide, whose roundings average out too.

    Autocast and GPUs may use fewer bits; and numbers of few bits are all rounded to one side, which does not average out.
    """
    plain = x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return plain and len(x) > 4 * ROWS and x.shape[1] >= 64


def standard_moments(x: Float[Tensor, "n d"]) -> Moments:
    """`Moments.of` in half the time, by products in float32: good for main axes that are `settled`, not for small variances.

    Each feature is first brought to about its own mean and scale, so that a product errs by 1e-7 of two standard deviations,
    whatever the mean; products are summed in float64.

    >>> standard_moments(torch.tensor([[100.0], [100.5], [101.0]])).covariance(ddof=1)
    tensor([[0.2500]], dtype=torch.float64)
    """
    x = x.detach()
    # Any rows, and not every so many: where classes take turns those may all be of one class, far from the mean of all.
    some = x[torch.randint(len(x), (FEW,), generator=torch.Generator().manual_seed(0), device="cpu")]
    least = some.amin(0)
    above = some - least
    scale = torch.ldexp(torch.ones_like(least), -torch.frexp(above.amax(0)).exponent.clamp(-100, 100))
    # Means in 6 bits, counted from the least value: one that many samples share, as 0 behind a ReLU, has products whose sums
    # are exact, where rounding would be to the same side each time; and a constant feature stays constant.
    centre = (above.mean(0) * scale * 64).round() / 64
    moments, total = Moments(x.shape[1]), x.new_zeros(x.shape[1], dtype=torch.float64)
    buffer = x.new_empty(min(ROWS, len(x)), x.shape[1])
    for part in x.split(ROWS):
        y = torch.sub(part, least, out=buffer[: len(part)])
        torch.addcmul(-centre, y, scale, out=y)
        total += y.sum(0)
        add_gram(moments.scatter, y)
    shift, wide = total / len(x), scale.double()
    # What is left of the mean is taken off in float64.
    moments.count, moments.mean = len(x), least + (centre + shift) / wide
    moments.scatter.addr_(shift, shift, alpha=-len(x)).div_(torch.outer(wide, wide))
    return moments


def rough_residual(
    x: Float[Tensor, "n d"], origin: Float[Tensor, "d"], others: Float[Tensor, "d rest"]
) -> Float[Tensor, ""] | None:
    """sum ||(1 - P)(x - o)|| by products in float32, or None where float64 is needed.

    Rounding moves a residual by about 1e-7 (||x|| + ||o||), to either side: the residual must be a hundredth of that or more.

    >>> rough_residual(torch.tensor([[3.0, 4.0]]), torch.zeros(2).double(), torch.eye(2)[:, 1:].double())
    tensor(4., dtype=torch.float64)
    """
    turn, offset = others.T.float(), -(others.T @ origin).float()[:, None]
    residual, size = x.new_zeros(2, dtype=torch.float64)
    for part in x.detach().split(ROWS):
        residual += torch.addmm(offset, turn, part.T).square_().sum(0).sqrt_().sum()
        size += part.norm(dim=1).sum()
    # Squares of what is much larger or smaller than 1 may not be numbers of float32.
    fits = 1e-15 * len(x) < residual < 1e15
    return residual if fits and residual > 0.01 * (size + len(x) * origin.norm()) else None


def head(weight: Any, bias: Any) -> tuple[Float[Tensor, "c d"], Any]:
    """The weight and bias of a linear head, if there is one, as tensors: raise unless they are finite and fit each other.

    >>> head(torch.zeros(3, 2), torch.zeros(2))
    Traceback (most recent call last):
    ValueError: a head needs a bias for each of its 3 classes, got shape (2,)
    """
    weight, bias = reals(weight, "the weight of a head"), None if bias is None else reals(bias, "the bias of a head")
    if weight.ndim != 2:
        raise ValueError(f"the weight of a head is a matrix, classes in rows, got shape {tuple(weight.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"a head needs a bias for each of its {len(weight)} classes, got shape {tuple(bias.shape)}")
    require_finite(weight, "the weight of a head")
    if bias is not None:
        require_finite(bias, "the bias of a head")
    return weight, bias


def freeze(detector: Any, *names: str) -> None:
    """Put copies in place of the parts of a head that a detector was given: training on then changes no score.

    The parts themselves are kept, so that to fit again is to read the head as it is by then.

    >>> from types import SimpleNamespace
    >>> weight = torch.zeros(1); detector = SimpleNamespace(weight=weight); freeze(detector, "weight")
    >>> weight += 1; once = detector.weight; freeze(detector, "weight"); once, detector.weight
    (tensor([0.]), tensor([1.]))
    """
    detector._given = given = {**vars(detector).get("_given", {})}  # its own: a copy of a detector has the same one at first
    for name in names:
        part = getattr(detector, name)
        source, copy = given.get(name, (part, part))
        source = source if part is copy else part
        given[name] = source, (copy := None if source is None else source.detach().clone())
        setattr(detector, name, copy)
