"""Detectors that read the logits alone."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from thermocline import softmax


class MSP:
    """Maximum softmax probability: a confident net is taken to be at home.

        s(x) = max_k softmax_T(e(x))_k                                        [hendrycks2017baseline, Sec. 3]

    A net trained at temperature T means its probabilities at that T.
    """

    def __init__(self, *, temperature: float = 1.0) -> None:
        self.temperature = temperature

    def fit(self, features: Float[Tensor, "n d"], logits: Float[Tensor, "n c"], labels: Int[Tensor, "n"]) -> MSP:
        """Nothing to learn."""
        return self

    def score(self, features: Float[Tensor, "n d"], logits: Float[Tensor, "n c"]) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        return softmax.softmax(logits, temperature=self.temperature).amax(1)
