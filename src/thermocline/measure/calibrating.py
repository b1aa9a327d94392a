"""The probabilities of the test set: at the temperature of training, and at one fitted to the half a sample is not in."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from thermocline import softmax
from thermocline.measure import source


class Calibrated(NamedTuple):
    """Probabilities by the temperature they are at ("training", "fitted"), the labels, and the fitted temperatures."""

    probabilities: dict[str, Tensor]
    labels: Tensor
    temperatures: tuple[float, ...]


def calibrated(logits: Tensor, labels: Tensor, temperature: float) -> Calibrated:
    """Nothing is fitted to the samples it is judged on: each half of them has the temperature of the other.

    Where the labels of a half have no likeliest temperature, being all right or at chance, there is none for the other.
    """
    wide, half = logits.double(), torch.zeros(len(labels), dtype=torch.bool)
    half[source.some(len(labels) // 2, of=len(labels))] = True
    halves = tuple(part.to(labels.device) for part in (half, ~half))
    found = {"training": softmax.softmax(wide, temperature=temperature)}
    try:
        fits = tuple(softmax.fit_temperature(wide[~part], labels[~part]) for part in halves)
    except ValueError:
        return Calibrated(found, labels, ())
    found["fitted"] = torch.empty_like(wide)
    for part, fit in zip(halves, fits):
        found["fitted"][part] = softmax.softmax(wide[part], temperature=fit)
    return Calibrated(found, labels, fits)
