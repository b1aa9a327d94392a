"""Ways to and from pytorch-ood, whose scores are higher the more out-of-distribution a sample looks; it is not imported."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thermocline.detect.inputs import Detector, Features, Labels, Logits, samples, training

ROWS = 2**16  # samples handed over at a time
# What a detector of theirs is asked: by which name, and of which of ours, in which shape.
_FEATURES, _LOGITS, _MAPS = "features", "logits", "feature_maps"


class Borrowed:
    """A detector of pytorch-ood with our `fit` and `score`: made by `from_pytorch_ood`."""

    def __init__(self, theirs: Any, reads: str) -> None:
        self.theirs, self.reads = theirs, reads

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> Borrowed:
        """Hand over what it reads, and the labels."""
        if self.theirs.requires_fit:
            features, logits, labels, _ = training(self.theirs, features, logits, labels, reads=(self._read, "labels"))
            getattr(self.theirs, f"fit_{self.reads}")(self._given(features, logits), labels)
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        features, logits = samples(self.theirs, features, logits, reads=(self._read,))
        ask = getattr(self.theirs, f"predict_{self.reads}")
        with torch.no_grad():
            return torch.cat([-ask(part) for part in self._given(features, logits).split(ROWS)]).to(features.device)

    @property
    def _read(self) -> str:
        return _LOGITS if self.reads == _LOGITS else _FEATURES

    def _given(self, features: Tensor, logits: Tensor) -> Tensor:
        given = logits if self.reads == _LOGITS else features
        return given.detach()[:, :, None, None] if self.reads == _MAPS else given.detach()


class Lent:
    """A detector of ours as pytorch-ood has them, features in: made by `to_pytorch_ood`."""

    requires_fit = True

    def __init__(self, ours: Detector, weight: Tensor | None, bias: Tensor | None) -> None:
        self.ours, self.weight, self.bias = ours, weight, bias

    def fit_features(self, x: Float[Tensor, "n d"], y: Int[Tensor, "n"]) -> Lent:
        """Fit to the in-distribution samples: by their convention others have labels below 0."""
        known = y >= 0
        x, y = x[known], y[known]
        self.ours.fit(x, self._logits(x), y)
        return self

    def predict_features(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
        """Higher is more out-of-distribution."""
        return -self.ours.score(x, self._logits(x))

    def _logits(self, x: Tensor) -> Tensor:
        if self.weight is None:
            return x.new_empty(len(x), 0)
        return torch.nn.functional.linear(
            x.detach(), self.weight.to(x.dtype), self.bias if self.bias is None else self.bias.to(x.dtype)
        )


def from_pytorch_ood(theirs: Any) -> Borrowed:
    """A detector of pytorch-ood with our `fit(features, logits, labels)` and `score(features, logits)`, higher = more ID.

    It is told by its methods: `predict_features`, `predict_logits`, or `predict_feature_maps`, which gets features as maps
    of one pixel. Those that need the images themselves cannot be asked.

    >>> class Theirs:
    ...     requires_fit = False
    ...     def predict_logits(self, logits): return -logits.amax(1)
    >>> from_pytorch_ood(Theirs()).score(torch.zeros(1, 5), torch.tensor([[1.0, 4.0]]))
    tensor([4.])
    """
    for reads in (_FEATURES, _LOGITS, _MAPS):
        if callable(getattr(theirs, f"predict_{reads}", None)):
            return Borrowed(theirs, reads)
    raise TypeError(
        f"a {type(theirs).__name__} has none of predict_features, predict_logits and predict_feature_maps: "
        "it cannot score features"
    )


def to_pytorch_ood(
    ours: Detector, *, weight: Float[Tensor, "c d"] | None = None, bias: Float[Tensor, "c"] | None = None
) -> Lent:
    """A detector of ours with pytorch-ood's `fit_features(x, y)` and `predict_features(x)`, higher = more OOD.

    Those that read logits need the head's `weight` and `bias`, which make them of the features.

    >>> from thermocline.detect import MaxLogit
    >>> to_pytorch_ood(MaxLogit(), weight=torch.eye(2)).predict_features(torch.tensor([[1.0, 4.0]]))
    tensor([-4.], dtype=torch.float64)
    """
    return Lent(ours, None if weight is None else weight.detach(), None if bias is None else bias.detach())
