"""Detectors that ask how much of a feature lies in the main subspace of the training features."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float, Real
from torch import Tensor

from thermocline.detect import axes as shape
from thermocline.detect.confidence import energy
from thermocline.detect.inputs import Features, Labels, Logits, require_fitted, require_temperature, samples, training
from thermocline.detect.metrics import auroc
from thermocline.moments import Array, Moments, matrix, require_finite, slices


@dataclass(eq=False)
class NECO:
    """Neural-collapse detector: the share of a feature's norm inside the main subspace of the training features.

        s(x) = ||P z|| / ||z||,   z = (h - mean) / std,   P = first k principal axes of z  [benammar2024neco, Sec. 4]

    `dim` is k, or the fraction of training variance the k axes must reach. `logit_factor` multiplies by the
    largest logit, which the authors do for every architecture but ResNets. A feature at the mean scores 0.
    """

    dim: int | float = 0.9
    _: dataclasses.KW_ONLY
    logit_factor: bool = False
    mean: Float[Tensor, "d"] = dataclasses.field(init=False, repr=False)
    std: Float[Tensor, "d"] = dataclasses.field(init=False, repr=False)
    axes: Float[Tensor, "d k"] = dataclasses.field(init=False, repr=False)
    others: Float[Tensor, "d rest"] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.dim = shape.dimension(self.dim)

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> NECO:
        """Learn the scaling and the principal axes from in-distribution features."""
        return _fit(self, training(self, features, logits, labels, reads=("features",)).features)

    def fit_moments(self, moments: Moments) -> NECO:
        """`fit` to a stream, whose features are not kept.

        >>> x = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
        >>> NECO(dim=1).fit_moments(Moments.of(x)).score(x).square().sum()  # each lies on one axis, and has a share of 0 or 1
        tensor(2., dtype=torch.float64)
        """
        self._learn(moments)
        return self

    def _learn(self, moments: Moments, *, rough: bool = False) -> bool:
        """Whether these were learned from: rough ones only where float64 would give the same axes."""
        mean, std, variance, axes = _standard(moments)
        if rough and not shape.settled(variance, axes, torch.ones_like(std), self.dim, residual=False):
            return False
        self.axes, self.others = shape.divide(axes, variance, self.dim, residual=False)
        self.mean, self.std = mean, std
        return True

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        require_fitted(self)
        reads = ("features", "logits") if self.logit_factor else ("features",)
        features, logits = samples(self, features, logits, reads=reads, width=len(self.mean))
        share = torch.cat([self._share(h) for (h,) in slices(features)])
        return share * logits.detach().amax(1) if self.logit_factor else share

    def _share(self, h: Tensor) -> Tensor:
        inside, outside = shape.divided(h.sub_(self.mean).div_(self.std), self.axes, self.others)
        return (inside / (inside + outside).clamp(min=torch.finfo(torch.float64).tiny)).sqrt()


def neco_oracle(
    train: Moments | Real[Array, "s d"], id_features: Real[Array, "n d"], ood_features: Real[Array, "m d"]
) -> tuple[int, Float[Tensor, ""]]:
    """The `dim` at which NECO tells these very samples apart best, and that AUROC: an ORACLE, never a result by itself.

        argmax_k AUROC(s_k(id), s_k(ood)),   the least such k                 [benammar2024neco]

    The authors choose k on the pair they report on, so their numbers are upper bounds: report a fixed `dim` first, and this
    one as what it is. No logit factor.

    >>> x = torch.tensor([[-2.0, 0.0], [2.0, 0.0], [0.0, -1.0], [0.0, 1.0]]) @ torch.tensor([[1.0, 1.0], [-1.0, 1.0]])
    >>> neco_oracle(x, x[:2], x[2:])
    (1, tensor(1., dtype=torch.float64))
    """
    found = neco_by_dim(train, id_features, ood_features)
    best = max(found, key=lambda dim: float(found[dim]))
    return best, found[best]


def neco_by_dim(
    train: Moments | Real[Array, "s d"],
    id_features: Real[Array, "n d"],
    ood_features: Real[Array, "m d"],
    *,
    dims: Iterable[int] | None = None,
) -> dict[int, Float[Tensor, ""]]:
    """NECO's AUROC between these samples by its number of axes: of `dims` those that `fit` takes, or all that it takes.

        AUROC(s_k(id), s_k(ood)),   s_k = ||P_k z|| / ||z||                   [benammar2024neco]

    It takes axes along which training features, or their moments, vary, and not all there are. No logit factor.

    >>> x = torch.tensor([[-2.0, 0.0], [2.0, 0.0], [0.0, -1.0], [0.0, 1.0]]) @ torch.tensor([[1.0, 1.0], [-1.0, 1.0]])
    >>> neco_by_dim(x, x[:2], x[2:], dims=(1, 100))
    {1: tensor(1., dtype=torch.float64)}
    """
    # Not from a fitted NECO: the quick products it may have learned from give its own axes, and not those after them.
    moments = train if isinstance(train, Moments) else Moments.of(train)
    mean, std, variance, axes = _standard(moments)
    if not (most := min(shape.rank(variance), len(variance) - 1)):
        raise ValueError(f"NECO takes some of the axes along which features vary, and these vary along {shape.rank(variance)}")
    asked = range(1, most + 1) if dims is None else [dim for dim in dims if 1 <= dim <= most]
    inside, outside = matrix(id_features, "id_features"), matrix(ood_features, "ood_features")
    inside, outside = (_energies(x, mean, std, axes) for x in (inside, outside))
    return {dim: auroc(inside[dim - 1], outside[dim - 1]) for dim in asked}


@dataclass(eq=False)
class Residual:
    """How little of a feature lies outside of the main subspace of the training features.

        s(x) = -||(1 - P)(h - o)||,   o = -pinv(W) b                          [wang2022vim]

    P are the first `dim` principal axes of h - o, not centred, or those that reach a fraction of its square. The origin o is
    where the logits of the head `weight`, `bias` vanish; without a bias it is 0.
    """

    weight: Float[Tensor, "c d"] = dataclasses.field(repr=False)
    bias: Float[Tensor, "c"] | None = dataclasses.field(default=None, repr=False)
    _: dataclasses.KW_ONLY
    dim: int | float
    origin: Float[Tensor, "d"] = dataclasses.field(init=False, repr=False)
    axes: Float[Tensor, "d k"] = dataclasses.field(init=False, repr=False)
    others: Float[Tensor, "d rest"] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.dim = shape.dimension(self.dim)
        self.weight, self.bias = shape.head(self.weight, self.bias)

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> Residual:
        """Learn the principal axes from in-distribution features."""
        return _fit(self, training(self, features, logits, labels, reads=("features",)).features)

    def fit_moments(self, moments: Moments) -> Residual:
        """`fit` to a stream, whose features are not kept.

        >>> x = torch.tensor([[3.0, 1.0], [-3.0, 1.0]])
        >>> Residual(torch.eye(2), dim=1).fit_moments(Moments.of(x)).score(x)
        tensor([-1., -1.], dtype=torch.float64)
        """
        self._learn(moments)
        return self

    def _learn(self, moments: Moments, *, rough: bool = False) -> bool:
        return _about_origin(self, moments, rough=rough)

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        require_fitted(self)
        features, _ = samples(self, features, logits, reads=("features",), width=len(self.origin))
        return -_residual(features, self.origin, self.axes, self.others)


@dataclass(eq=False)
class ViM:
    """Virtual-logit matching: the energy of the logits against a logit made of the residual.

        s(x) = T log sum_k exp(e_k / T) - alpha ||(1 - P)(h - o)||            [wang2022vim]
        alpha = sum max_k e_k / sum ||(1 - P)(h - o)||   over training samples   [wang2022vim, Eq. 6]

    o and P are `Residual`'s.
    """

    weight: Float[Tensor, "c d"] = dataclasses.field(repr=False)
    bias: Float[Tensor, "c"] | None = dataclasses.field(default=None, repr=False)
    _: dataclasses.KW_ONLY
    dim: int | float
    temperature: float = 1.0
    origin: Float[Tensor, "d"] = dataclasses.field(init=False, repr=False)
    axes: Float[Tensor, "d k"] = dataclasses.field(init=False, repr=False)
    others: Float[Tensor, "d rest"] = dataclasses.field(init=False, repr=False)
    sums: Float[Tensor, "2"] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.dim = shape.dimension(self.dim)
        self.weight, self.bias = shape.head(self.weight, self.bias)
        require_temperature(self.temperature)

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> ViM:
        """Learn the principal axes and alpha from in-distribution samples."""
        features, logits, *_ = training(self, features, logits, labels, reads=("features", "logits"))
        return _fit(self, features).match(features, logits)

    def fit_moments(self, moments: Moments) -> ViM:
        """Learn the axes from a stream; alpha comes from a second look at some or all of it, by `match`.

        >>> x, logits = torch.tensor([[3.0, 1.0], [-3.0, 1.0]]), torch.tensor([[4.0, 0.0], [2.0, 0.0]])
        >>> ViM(torch.eye(2), dim=1).fit_moments(Moments.of(x)).match(x[:1], logits[:1]).match(x[1:], logits[1:]).alpha
        tensor(3., dtype=torch.float64)
        """
        self._learn(moments)
        return self

    def _learn(self, moments: Moments, *, rough: bool = False) -> bool:
        self.sums = moments.mean.new_zeros(2)
        return _about_origin(self, moments, rough=rough)

    def match(self, features: Features, logits: Logits) -> ViM:
        """Take a batch of training samples into alpha: their mean residual is not to be had from moments."""
        require_fitted(self)
        features, logits = samples(self, features, logits, reads=("features", "logits"), width=len(self.origin))
        largest = logits.detach().amax(1).double()
        require_finite(largest, "logits that ViM is fitted to")
        residual = shape.rough_residual(features, self.origin, self.others) if shape.roughly(features) else None
        if residual is None:
            residual = _residual(features, self.origin, self.axes, self.others).sum()
        self.sums = self.sums + torch.stack([largest.sum(), residual])
        return self

    @property
    def alpha(self) -> Float[Tensor, ""]:
        """What makes the virtual logit of the training samples as large as their largest logit, on average."""
        if not self.sums[1] > 0:
            raise ValueError("ViM has seen no residual to match logits with: call match, or ask for fewer axes")
        return self.sums[0] / self.sums[1]

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        require_fitted(self)
        features, logits = samples(self, features, logits, reads=("features", "logits"), width=len(self.origin))
        residual = _residual(features, self.origin, self.axes, self.others)
        return energy(logits, temperature=self.temperature) - self.alpha * residual


D = TypeVar("D", NECO, Residual, ViM)


def _fit(detector: D, features: Tensor) -> D:
    """`fit_moments`, which products in float32 do in half the time where they give the same axes."""
    if shape.roughly(features):
        moments = shape.standard_moments(features)
        # A sample far from all others may have squares that float32 has not.
        if moments.scatter.isfinite().all() and detector._learn(moments, rough=True):
            return detector
    return detector.fit_moments(Moments.of(features))


def _standard(moments: Moments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean and scale of features, and the variances and principal axes of what they are once standardised."""
    covariance = moments.covariance(ddof=0)
    require_finite(covariance, "the covariance of features that NECO is fitted to")
    std, scaled = shape.standardised(covariance, moments.mean, count=moments.count)
    return moments.mean.clone(), std, *shape.principal(scaled)


def _energies(x: Tensor, mean: Tensor, std: Tensor, axes: Tensor) -> Tensor:
    """The squared score of every sample (columns) at every number of axes (rows), which orders them as the score does."""
    squares = torch.cat([(h.sub_(mean).div_(std) @ axes).square_() for (h,) in slices(x)]).cumsum(1)
    return (squares / squares[:, -1:].clamp(min=torch.finfo(torch.float64).tiny)).T


def _about_origin(detector: Residual | ViM, moments: Moments, *, rough: bool) -> bool:
    """`NECO._learn` for the origin of a head, and the main and other axes of features about it."""
    weight, bias = detector.weight.detach().double(), detector.bias
    if weight.shape[1] != len(moments.mean):
        raise ValueError(f"the head reads {weight.shape[1]} features, and there are {len(moments.mean)}")
    require_finite(moments.scatter, "the scatter of features that are fitted to")
    origin = torch.zeros_like(moments.mean) if bias is None else -torch.linalg.pinv(weight) @ bias.detach().double()
    shift, covariance = moments.mean - origin, moments.covariance(ddof=0)
    variance, axes = shape.principal(torch.addr(covariance, shift, shift))
    std = covariance.diagonal().sqrt()
    if rough and not shape.settled(variance, axes, std, detector.dim, residual=True):
        return False
    detector.axes, detector.others = shape.divide(axes, variance, detector.dim, residual=True)
    detector.origin = origin
    return True


def _residual(x: Tensor, origin: Tensor, axes: Tensor, others: Tensor) -> Tensor:
    return torch.cat([shape.divided(h.sub_(origin), axes, others)[1].sqrt() for (h,) in slices(x)])
