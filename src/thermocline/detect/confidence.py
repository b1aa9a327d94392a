"""Detectors that read the logits alone. In float64: in float32 the softmax of every confident sample is 1, and all tie."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from thermocline import softmax
from thermocline.detect.inputs import (
    Features,
    Labels,
    Logits,
    natural,
    require_fitted,
    require_temperature,
    samples,
    training,
)
from thermocline.moments import grouped, require_finite, slices


@dataclass(eq=False)
class MSP:
    """Maximum softmax probability: high where the net is confident.

        s(x) = max_k softmax_T(e(x))_k                                        [hendrycks2017baseline, Sec. 3]

    A net trained at temperature T means its probabilities at that T.

    >>> MSP(temperature=100.0).score(torch.zeros(1, 0), torch.tensor([[0.0, 109.8612]]))  # 100 log 3
    tensor([0.7500], dtype=torch.float64)
    """

    _: dataclasses.KW_ONLY
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> MSP:
        """Nothing to learn."""
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        _, logits = samples(self, features, logits, reads=("logits",))
        return _by_rows(logits, lambda e: softmax.softmax(e, temperature=self.temperature).amax(1))


@dataclass(eq=False)
class MaxLogit:
    """The largest logit, before the softmax relates it to the others.

        s(x) = max_k e(x)_k                                                   [hendrycks2022scaling]

    >>> MaxLogit().score(torch.zeros(1, 0), torch.tensor([[1.0, 4.0]]))
    tensor([4.], dtype=torch.float64)
    """

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> MaxLogit:
        """Nothing to learn."""
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        _, logits = samples(self, features, logits, reads=("logits",))
        return logits.detach().amax(1).double()


@dataclass(eq=False)
class Energy:
    """The negative free energy of the logits, a softened largest logit.

        s(x) = T log sum_k exp(e(x)_k / T)                                    [liu2020energy]

    T is both that of the energy and that the net was trained at.

    >>> Energy().score(torch.zeros(1, 0), torch.zeros(1, 10))  # log 10
    tensor([2.3026], dtype=torch.float64)
    """

    _: dataclasses.KW_ONLY
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> Energy:
        """Nothing to learn."""
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        _, logits = samples(self, features, logits, reads=("logits",))
        return energy(logits, temperature=self.temperature)


@dataclass(eq=False)
class Entropy:
    """The negative entropy of the softmax: low where the net spreads its probability.

        s(x) = sum_k p_k log p_k,   p = softmax_T(e(x))                       [chan2021entropy]

    >>> Entropy().score(torch.zeros(1, 0), torch.zeros(1, 10))  # -log 10
    tensor([-2.3026], dtype=torch.float64)
    """

    _: dataclasses.KW_ONLY
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> Entropy:
        """Nothing to learn."""
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        _, logits = samples(self, features, logits, reads=("logits",))
        return _by_rows(logits, lambda e: -softmax.entropy(e, temperature=self.temperature))


@dataclass(eq=False)
class GEN:
    """Negative generalised entropy of the largest probabilities; a small exponent weighs the tail more.

        s(x) = -sum_{k in top M} p_k^gamma (1 - p_k)^gamma,   p = softmax_T(e(x))     [liu2023gen]

    `gamma` 0.1 is the authors'; `top` is M, which they set to 100 on 1,000 classes: None for all. In logarithms, as
    1 - p and p^gamma matter long after p has been rounded to 1 or 0.

    >>> GEN(gamma=1.0).score(torch.zeros(1, 0), torch.zeros(1, 4))  # -4 (1/4) (3/4)
    tensor([-0.7500], dtype=torch.float64)
    """

    _: dataclasses.KW_ONLY
    gamma: float = 0.1
    top: int | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require_temperature(self.temperature)
        self.top = None if self.top is None else natural("top", self.top)
        if not self.gamma > 0:
            raise ValueError(f"gamma must be above 0, got {self.gamma}")

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> GEN:
        """Nothing to learn."""
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        _, logits = samples(self, features, logits, reads=("logits",))
        return _by_rows(logits, self._entropy)

    def _entropy(self, e: Tensor) -> Tensor:
        z = (e / self.temperature).sort(1, descending=True).values
        whole = z.logsumexp(1, keepdim=True)
        rest = torch.log1p(-(z - whole).exp())
        # Only the largest p can come close to 1, where 1 - p has no digits left: it is what the others have.
        rest[:, :1] = z[:, 1:].logsumexp(1, keepdim=True) - whole
        return -(self.gamma * (z - whole + rest)[:, : self.top]).exp().sum(1)


@dataclass(eq=False)
class KLMatching:
    """How close the probabilities come to those typical of some class.

        s(x) = -min_k KL(p(x) || d_k),   d_k = mean of p over training samples predicted as k  [hendrycks2022scaling]

    A class that is never predicted has no d_k. A d_k of 0 counts as 2e-308, the least there is.

    >>> x, logits = torch.zeros(2, 0), torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    >>> KLMatching().fit(x, logits, torch.tensor([0, 1])).score(x, logits).abs()
    tensor([0., 0.], dtype=torch.float64)
    """

    _: dataclasses.KW_ONLY
    temperature: float = 1.0
    typical: Float[Tensor, "k c"] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> KLMatching:
        """Learn the typical probabilities; the labels are not needed."""
        _, logits, _, classes = training(self, features, logits, labels, reads=("logits",))
        require_finite(logits, "logits that KLMatching is fitted to")
        total = torch.zeros(classes, classes, dtype=torch.float64, device=logits.device)
        counts = total.new_zeros(classes)
        for (e,) in slices(logits):
            groups = grouped(e.argmax(1), classes=classes)
            means = groups.means(softmax.softmax(e, temperature=self.temperature))
            total[: groups.classes] += means * groups.counts[:, None]
            counts[: groups.classes] += groups.counts
        self.typical = (total / counts[:, None])[counts > 0]
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        require_fitted(self)
        _, logits = samples(self, features, logits, reads=("logits",), classes=self.typical.shape[1])
        # At 0 the logarithm would turn 0 log 0, which adds nothing, into NaN.
        log_typical = self.typical.clamp(min=torch.finfo(torch.float64).tiny).log()
        return _by_rows(logits, lambda e: -self._divergence(e, log_typical))

    def _divergence(self, e: Tensor, log_typical: Tensor) -> Tensor:
        crossed = softmax.softmax(e, temperature=self.temperature) @ log_typical.T
        return (-softmax.entropy(e, temperature=self.temperature) - crossed.amax(1)).clamp(min=0)


def energy(logits: Float[Tensor, "n c"], *, temperature: float) -> Float[Tensor, "n"]:
    """T log sum_k exp(e_k / T) in float64 [liu2020energy].

    >>> energy(torch.zeros(1, 4), temperature=1.0)  # log 4
    tensor([1.3863], dtype=torch.float64)
    """
    return _by_rows(logits, lambda e: temperature * e.div_(temperature).logsumexp(1))


def _by_rows(x: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """A function of every row, of some rows in float64 at a time."""
    return torch.cat([of(wide) for (wide,) in slices(x)])
