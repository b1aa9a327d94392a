"""Detectors that compare a feature with those of single training samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thermocline.detect.confidence import energy
from thermocline.detect.inputs import (
    require_count,
    require_fitted,
    require_samples,
    require_temperature,
    require_training,
)
from thermocline.moments import require_finite, slices

PLACES = 8  # how many places float32 may get a neighbour wrong by


@dataclass(eq=False)
class KNN:
    """The distance to the k-th nearest training sample, features at unit length.

        s(x) = -||z - z_(k)||,   z = h / ||h||                                [sun2022knn]

    `k` was 50 on CIFAR-10, 200 on CIFAR-100 and 1,000 on ImageNet in the paper. A training sample is its own nearest
    neighbour; a feature of 0 stays 0. Features are kept in float32 at unit length: distances are good to 1e-7.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    >>> KNN(k=2).fit(x, x, torch.tensor([0, 1])).score(torch.tensor([[2.0, 0.0]]), x[:1])  # -sqrt 2
    tensor([-1.4142], dtype=torch.float64)
    """

    _: dataclasses.KW_ONLY
    k: int
    bank: Float[Tensor, "n d"] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_count("k", self.k)

    def fit(self, features: Float[Tensor, "n d"], logits: Float[Tensor, "n c"], labels: Int[Tensor, "n"]) -> KNN:
        """Keep the training features."""
        require_training(features, logits, labels)
        _require_neighbours(self.k, features)
        self.bank = _units(features)
        return self

    def score(self, features: Float[Tensor, "n d"], logits: Float[Tensor, "n c"]) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        require_fitted(self)
        require_samples(features, logits, width=self.bank.shape[1])
        last = min(self.k + PLACES, len(self.bank))
        return -torch.cat([self._distance(unit, places) for unit, _, places in _nearest(features, self.bank, last)])

    def _distance(self, unit: Tensor, places: Tensor) -> Tensor:
        """Products in float32 found who may be the k-th nearest, differences say how far: 2 - 2 cos would cancel."""
        first = max(self.k - PLACES, 1)
        away = torch.linalg.vector_norm(unit[:, None] - self.bank[places[:, first - 1 :]], dim=2)
        return away.sort(1).values[:, self.k - first].double()


@dataclass(eq=False)
class NNGuide:
    """Confidence, guided by the nearest confident training samples.

        s(x) = E(x) (1/k) sum over the k largest of E(x_i) <z, z_i>,   z = h / ||h||   [park2023nnguide]

    E is the energy of the logits at the temperature. The authors keep a share of the training samples, 1 % of ImageNet: fit
    to those. Features are kept in float32.

    >>> x, logits = torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.tensor([[2.0, -9e9], [3.0, -9e9]])
    >>> NNGuide(k=1).fit(x, logits, torch.tensor([0, 1])).score(x, logits)
    tensor([4., 9.], dtype=torch.float64)
    """

    _: dataclasses.KW_ONLY
    k: int
    temperature: float = 1.0
    bank: Float[Tensor, "n d"] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_count("k", self.k)
        require_temperature(self.temperature)

    def fit(self, features: Float[Tensor, "n d"], logits: Float[Tensor, "n c"], labels: Int[Tensor, "n"]) -> NNGuide:
        """Keep the training features, each as long as its sample is confident."""
        require_training(features, logits, labels, logits_read=True)
        _require_neighbours(self.k, features)
        require_finite(logits, "logits that NNGuide is fitted to")
        self.bank = _units(features).mul_(energy(logits, temperature=self.temperature).float()[:, None])
        return self

    def score(self, features: Float[Tensor, "n d"], logits: Float[Tensor, "n c"]) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        require_fitted(self)
        require_samples(features, logits, width=self.bank.shape[1], classes=0)
        near = [largest.mean(1, dtype=torch.float64) for _, largest, _ in _nearest(features, self.bank, self.k)]
        return torch.cat(near) * energy(logits, temperature=self.temperature)


def _units(features: Tensor) -> Tensor:
    """Features at unit length, worked out in float64 and rounded to float32."""
    units = torch.empty(features.shape, dtype=torch.float32, device=features.device)
    start = 0
    for (h,) in slices(features):
        norm = torch.linalg.vector_norm(h, dim=1, keepdim=True)
        units[start : start + len(h)] = h.div_(norm.clamp_(min=torch.finfo(torch.float64).tiny))
        start += len(h)
    return units


def _nearest(features: Tensor, bank: Tensor, k: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Some features at a time, at unit length, and their k largest products with the bank, in falling order, with their places.

    Products are made with a part of the bank at a time, so that memory goes with neither its size nor theirs.
    """
    rows, width = (512, 2**14) if features.device.type == "cpu" else (2**12, 2**16)
    buffer = bank.new_empty(min(rows, len(features)) * min(width, len(bank)))
    for part in features.detach().split(rows):
        unit = _units(part)
        largest, places = unit.new_empty(len(unit), 0), torch.empty(len(unit), 0, dtype=torch.int64, device=unit.device)
        for start, some in zip(range(0, len(bank), width), bank.split(width)):
            product = torch.mm(unit, some.T, out=buffer[: len(unit) * len(some)].view(len(unit), len(some)))
            more, where = product.topk(min(k, len(some)))
            largest, places = torch.cat([largest, more], 1), torch.cat([places, where + start], 1)
            largest, order = largest.topk(min(k, largest.shape[1]))
            places = places.gather(1, order)
        yield unit, largest, places


def _require_neighbours(k: int, features: Tensor) -> None:
    if k > len(features):
        raise ValueError(f"there is no neighbour number {k} among {len(features)} training samples")
    require_finite(features, "features that neighbours are looked for among")
