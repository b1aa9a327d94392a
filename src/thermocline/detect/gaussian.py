"""Detectors that take the features of every class for a Gaussian, and all for one of a common covariance."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from thermocline.detect import axes as shape
from thermocline.detect.inputs import Features, Labels, Logits, require_fitted, samples, training
from thermocline.moments import ClassMoments, require_finite, slices


@dataclass(eq=False)
class Mahalanobis:
    """The distance to the nearest class mean, in units of the spread within classes.

        s(x) = -min_c (h - mean_c)^T pinv(Sigma_W) (h - mean_c),   Sigma_W of ddof=0   [lee2018unified]

    Directions in which training features do not vary within classes are left out: that is the pseudo-inverse of Sigma_W
    once every feature is divided by its standard deviation, its eigenvalues cut off at d * 2^-52 of the largest.
    """

    mean: Float[Tensor, "d"] = dataclasses.field(init=False, repr=False)
    whiten: Float[Tensor, "d r"] = dataclasses.field(init=False, repr=False)
    centres: Float[Tensor, "c r"] = dataclasses.field(init=False, repr=False)

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> Mahalanobis:
        """Learn class means and the covariance within classes."""
        return self.fit_moments(_labelled(self, features, logits, labels))

    def fit_moments(self, moments: ClassMoments) -> Mahalanobis:
        """`fit` to a stream, whose features are not kept; a class without a sample has no mean to be near to.

        >>> x, labels = torch.tensor([[-1.0], [1.0], [9.0], [11.0]]), torch.tensor([0, 0, 2, 2])
        >>> Mahalanobis().fit_moments(ClassMoments.of(x, labels, classes=3)).score(x + 2)
        tensor([-1., -9., -1., -9.], dtype=torch.float64)
        """
        self.mean = moments.counts @ moments.means / max(moments.count, 1)
        self.whiten = _whitening(moments.within_covariance(ddof=0), moments)
        self.centres = (moments.means[moments.counts > 0] - self.mean) @ self.whiten
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        require_fitted(self)
        features, _ = samples(self, features, logits, reads=("features",), width=len(self.mean))
        return -torch.cat([_nearest(h.sub_(self.mean), self.whiten, self.centres) for (h,) in slices(features)])


@dataclass(eq=False)
class RelativeMahalanobis:
    """The Mahalanobis distance less the one under a single Gaussian of all classes.

        s(x) = -(min_c d_c(h) - d_0(h)),   d_0 = (h - mean)^T pinv(Sigma) (h - mean)   [ren2021simple]

    Sigma is the covariance of all, of ddof=0. Pseudo-inverses are those of `Mahalanobis`.
    """

    mean: Float[Tensor, "d"] = dataclasses.field(init=False, repr=False)
    whiten: Float[Tensor, "d r"] = dataclasses.field(init=False, repr=False)
    centres: Float[Tensor, "c r"] = dataclasses.field(init=False, repr=False)
    whiten_all: Float[Tensor, "d q"] = dataclasses.field(init=False, repr=False)

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> RelativeMahalanobis:
        """Learn class means, the covariance within classes and that of all."""
        return self.fit_moments(_labelled(self, features, logits, labels))

    def fit_moments(self, moments: ClassMoments) -> RelativeMahalanobis:
        """`fit` to a stream, whose features are not kept.

        >>> x, labels = torch.tensor([[-1.0], [1.0], [9.0], [11.0]]), torch.tensor([0, 0, 1, 1])
        >>> detector = RelativeMahalanobis().fit_moments(ClassMoments.of(x, labels, classes=2))
        >>> detector.score(x[:2])  # 36 / 26 - 1, 16 / 26 - 1
        tensor([ 0.3846, -0.3846], dtype=torch.float64)
        """
        if int((moments.counts > 0).sum()) < 2:
            raise ValueError("RelativeMahalanobis needs two classes at least: with one, both distances are the same")
        one = Mahalanobis().fit_moments(moments)
        self.mean, self.whiten, self.centres = one.mean, one.whiten, one.centres
        self.whiten_all = _whitening(moments.all.covariance(ddof=0), moments)
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        require_fitted(self)
        features, _ = samples(self, features, logits, reads=("features",), width=len(self.mean))
        return torch.cat([self._beyond(h.sub_(self.mean)) for (h,) in slices(features)])

    def _beyond(self, h: Tensor) -> Tensor:
        return (self.whiten_all.T @ h.T).square_().sum(0) - _nearest(h, self.whiten, self.centres)


def _labelled(detector: Any, features: Features, logits: Logits, labels: Labels) -> ClassMoments:
    features, _, labels, classes = training(detector, features, logits, labels, reads=("features", "labels"))
    assert labels is not None  # as they are read
    return ClassMoments.of(features, labels, classes=classes)


def _whitening(covariance: Tensor, moments: ClassMoments) -> Tensor:
    """A matrix R with R R^T = pinv(covariance), one column for every direction in which features vary."""
    require_finite(covariance, "the covariance of features that are fitted to")
    # What a variance within classes is rounded by goes with the size of the class means, which may cancel in their mean.
    size = (moments.counts @ moments.means.square() / moments.count).sqrt()
    std, scaled = shape.standardised(covariance, size, count=moments.count)
    variance, axes = shape.principal(scaled)
    rank = shape.rank(variance)
    if not rank:
        raise ValueError("features do not vary within classes: there is no covariance to measure distances by")
    # In the units of a constant feature, which are any, even the rounding of an axis may be a distance.
    used = axes[:, :rank].where(scaled.diagonal()[:, None] > 0, 0.0)
    return used / variance[:rank].sqrt() / std[:, None]


def _nearest(h: Tensor, whiten: Tensor, centres: Tensor) -> Tensor:
    """min_c ||R^T h - m_c||^2 = ||R^T h||^2 + min_c (||m_c||^2 - 2 <R^T h, m_c>), m_c whitened: no loop over classes."""
    white = whiten.T @ h.T
    nearest = torch.addmm(centres.square().sum(1)[:, None], centres, white, alpha=-2).amin(0)
    return nearest.add_(white.square_().sum(0)).clamp_(min=0)
