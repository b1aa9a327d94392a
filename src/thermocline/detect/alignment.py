"""The detector that asks whether a feature points where the head's weight does."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from thermocline.detect import axes as shape
from thermocline.detect.inputs import Features, Labels, Logits, require_fitted, samples, training
from thermocline.moments import Moments, class_means, require_finite, slices


@dataclass(eq=False)
class NCI:
    """Neural-collapse-inspired detector: nearness to the predicted class's weight, and a norm that filters small features out.

        s(x) = <h - mean, w_c> / ||h - mean|| + alpha ||h||_1,   c = argmax_k e(x)_k   [liu2025nci]

    The mean is that of all training features, w_c the row of the head's `weight`, at its own length. `alpha` 0 drops the
    filter; the authors tune it on validation samples. A feature at the mean is near no weight: 0.
    """

    weight: Float[Tensor, "c d"] = dataclasses.field(repr=False)
    _: dataclasses.KW_ONLY
    alpha: int | float
    mean: Float[Tensor, "d"] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.weight, _ = shape.head(self.weight, None)
        if not self.alpha >= 0:
            raise ValueError(f"alpha weighs the norm of features, and is 0 or more, got {self.alpha}")

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> NCI:
        """Learn the mean of in-distribution features."""
        features = training(self, features, logits, labels, reads=("features",)).features
        one = torch.zeros(len(features), dtype=torch.int64, device=features.device)
        return self._centre(class_means(features, one, classes=1)[1][0])

    def fit_moments(self, moments: Moments) -> NCI:
        """`fit` to a stream, whose features are not kept.

        >>> x, logits = torch.tensor([[4.0, 1.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> NCI(torch.eye(2), alpha=0.1).fit_moments(Moments.of(x)).score(x, logits)
        tensor([ 1.5000, -0.9000], dtype=torch.float64)
        """
        return self._centre(moments.mean.clone())

    def _centre(self, mean: Tensor) -> NCI:
        require_finite(mean, "the mean of features that NCI is fitted to")
        if len(mean) != self.weight.shape[1]:
            raise ValueError(f"the head reads {self.weight.shape[1]} features, and there are {len(mean)}")
        shape.freeze(self, "weight")
        self.mean = mean
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        require_fitted(self)
        features, logits = samples(
            self, features, logits, reads=("features", "logits"), width=len(self.mean), classes=len(self.weight)
        )
        weight, predicted = self.weight.detach().double(), logits.detach().argmax(1)
        found = torch.cat([self._near(h, weight[c]) for h, c in slices(features, predicted)])
        # argmax takes NaN for the largest: what is predicted there is not known.
        return found.masked_fill(logits.detach().amax(1).isnan(), torch.nan)

    def _near(self, h: Tensor, weight: Tensor) -> Tensor:
        size = self.alpha * torch.linalg.vector_norm(h, ord=1, dim=1)
        norm = torch.linalg.vector_norm(h.sub_(self.mean), dim=1).clamp_(min=torch.finfo(torch.float64).tiny)
        return h.mul_(weight).sum(1) / norm + size
