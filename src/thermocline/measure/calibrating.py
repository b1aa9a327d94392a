"""The probabilities of the test set: at the temperature of training, and at one fitted to the half a sample is not in."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from thermocline import softmax


class Calibrated(NamedTuple):
    """Probabilities by the temperature they are at ("training", "fitted"), the labels, and the fitted temperatures."""

    probabilities: dict[str, Tensor]
    labels: Tensor
    temperatures: tuple[float, ...]


def calibrated(logits: Tensor, labels: Tensor, temperature: float) -> Calibrated:
    """Nothing is fitted to the samples it is judged on: every other sample has the temperature of those between.

    Where the labels of a half have no likeliest temperature, being all right or at chance, there is none for the other.
    """
    wide = logits.double()
    found = {"training": softmax.softmax(wide, temperature=temperature)}
    try:
        fits = tuple(softmax.fit_temperature(wide[start::2], labels[start::2]) for start in (1, 0))
    except ValueError:
        return Calibrated(found, labels, ())
    found["fitted"] = torch.empty_like(wide)
    for start, fit in enumerate(fits):
        found["fitted"][start::2] = softmax.softmax(wide[start::2], temperature=fit)
    return Calibrated(found, labels, fits)
