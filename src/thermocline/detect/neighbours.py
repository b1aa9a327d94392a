"""Detectors that compare a feature with those of single training samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from thermocline.detect.confidence import energy
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
from thermocline.detect.outlines import Outline, nearest
from thermocline.moments import require_finite, slices, unrounded

PLACES = 8  # how many places float32 may get a neighbour wrong by, as a rule
ROUNDING = 1e-6  # by how much float32 may get a product of unit vectors wrong
NEAR = 0.5  # at a distance below it, an error of ROUNDING in a product is no longer small


@dataclass(eq=False)
class KNN:
    """The distance to the k-th nearest training sample, features at unit length.

        s(x) = -||z - z_(k)||,   z = h / ||h||                                [sun2022knn]

    `k` was 50 on CIFAR-10, 200 on CIFAR-100 and 1,000 on ImageNet in the paper. A training sample is its own nearest
    neighbour; a feature of 0 stays 0. Features are kept in float32 at unit length: distances are good to 1e-6.
    On a CPU most of a large bank is ruled out by an `Outline` of it, which changes no score and is made when first needed.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    >>> KNN(k=2).fit(x).score([[2.0, 0.0]])  # -sqrt 2
    tensor([-1.4142], dtype=torch.float64)
    """

    _: dataclasses.KW_ONLY
    k: int
    bank: Float[Tensor, "n d"] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.k = natural("k", self.k)
        self._outlined: Tensor | None = None  # the bank that the outline is of
        self._outline: Outline | None = None

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> KNN:
        """Keep the training features."""
        features = training(self, features, logits, labels, reads=("features",)).features
        _require_neighbours(self.k, features)
        self.bank = _units(features)
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        require_fitted(self)
        features, _ = samples(self, features, logits, reads=("features",), width=self.bank.shape[1])
        units, half, last = _units(features), _halves(self.bank), min(self.k + PLACES, len(self.bank))
        with unrounded(self.bank):  # bounds of an outline are certain in float32
            if self._outlined is not self.bank:
                self._outlined, self._outline = self.bank, Outline.of(self.bank, half, last)
            outline = self._outline
            found = _nearest(units, self.bank, half, last) if outline is None else nearest(units, outline, last)
            return -_kth(found, self.bank, self.k).double()


@dataclass(eq=False)
class NNGuide:
    """Confidence, guided by the nearest confident training samples.

        s(x) = E(x) (1/k) sum over the k largest of E(x_i) <z, z_i>,   z = h / ||h||   [park2023nnguide]

    E is the energy of the logits at the temperature. The authors keep a share of the training samples, 1 % of ImageNet: fit
    to those. Features are kept in float32.

    >>> x, logits = torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.tensor([[2.0, -9e9], [3.0, -9e9]])
    >>> NNGuide(k=1).fit(x, logits).score(x, logits)
    tensor([4., 9.], dtype=torch.float64)
    """

    _: dataclasses.KW_ONLY
    k: int
    temperature: float = 1.0
    bank: Float[Tensor, "n d"] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.k = natural("k", self.k)
        require_temperature(self.temperature)

    def fit(self, features: Features = None, logits: Logits = None, labels: Labels = None) -> NNGuide:
        """Keep the training features, each as long as its sample is confident."""
        features, logits, *_ = training(self, features, logits, labels, reads=("features", "logits"))
        _require_neighbours(self.k, features)
        require_finite(logits, "logits that NNGuide is fitted to")
        self.bank = _units(features).mul_(energy(logits, temperature=self.temperature).float()[:, None])
        return self

    def score(self, features: Features = None, logits: Logits = None) -> Float[Tensor, "n"]:
        """Higher is more in-distribution."""
        require_fitted(self)
        features, logits = samples(self, features, logits, reads=("features", "logits"), width=self.bank.shape[1])
        plain = self.bank.new_zeros(len(self.bank))
        near = [most.mean(1, dtype=torch.float64) for _, most, _ in _nearest(_units(features), self.bank, plain, self.k)]
        return torch.cat([plain[:0].double(), *near]) * energy(logits, temperature=self.temperature)


def _units(features: Tensor) -> Tensor:
    """Features at unit length, worked out in float64 and rounded to float32."""
    units = torch.empty(features.shape, dtype=torch.float32, device=features.device)
    start = 0
    for (h,) in slices(features):
        norm = torch.linalg.vector_norm(h, dim=1, keepdim=True)
        units[start : start + len(h)] = h.div_(norm.clamp_(min=torch.finfo(torch.float64).tiny))
        start += len(h)
    return units


def _halves(bank: Tensor) -> Tensor:
    """||z_i||^2 / 2: a feature of 0 has no length, and all others have length 1."""
    return torch.linalg.vector_norm(bank, dim=1).sign_().div_(2)


def _kth(found: Iterator[tuple[Tensor, Tensor, Tensor]], bank: Tensor, k: int) -> Tensor:
    """The distance of unit vectors to the k-th nearest of a bank, from the keys and places of the nearest, some more than k.

    Products in float32 found who may be it, and differences say how far: 2 - 2 cos would cancel.
    """
    distances, rows = [bank.new_empty(0)], 128 if bank.device.type == "cpu" else 2**12
    for many in found:
        for units, most, places in zip(*(x.split(rows) for x in many)):
            near = torch.linalg.vector_norm(units - bank.index_select(0, places[:, k - 1]), dim=1)
            close = near < NEAR
            if close.any():
                near[close] = _kth_of_close(units[close], most[close], places[close], bank, k)
            distances.append(near)
    return torch.cat(distances)


def _kth_of_close(units: Tensor, most: Tensor, places: Tensor, bank: Tensor, k: int) -> Tensor:
    """`_kth` where float32 may get the order wrong by some places: it is the k-th of all of these, by their differences.

    Where so many are so near that such a product may misplace one by more, it is made in float64.
    """
    first, last = max(k - PLACES, 1), most.shape[1]
    apart = torch.linalg.vector_norm(units[:, None] - bank[places[:, first - 1 :]], dim=2)
    near = apart.sort(1).values[:, k - first]
    unsure = most[:, k - 1] - most[:, -1] < (ROUNDING if last < len(bank) else 0)
    unsure |= most[:, first - 1] - most[:, k - 1] < (ROUNDING if first > 1 else 0)
    if unsure.any():
        near[unsure] = _kth_by_float64(units[unsure], bank, k)
    return near


def _kth_by_float64(units: Tensor, bank: Tensor, k: int) -> Tensor:
    """`_kth` where everyone is near: products in float64 alone say how far to 1e-8, since it is their root that is wanted."""
    half = torch.cat([some.square().sum(1) / 2 for (some,) in slices(bank)])
    keys = torch.cat([most[:, -1] for _, most, _ in _nearest(units.double(), bank, half, k)])
    return (units.double().square().sum(1) - 2 * keys).clamp(min=0).sqrt().to(units.dtype)


def _nearest(units: Tensor, bank: Tensor, half: Tensor, k: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Some vectors at a time, and their k largest <z, z_i> - half_i over a bank, in falling order, with their places.

        ||z - z_i||^2 = ||z||^2 - 2 (<z, z_i> - ||z_i||^2 / 2)

    Products are made with a part of the bank at a time, so that memory goes with neither its size nor theirs.
    """
    rows, width = (512, 2**14) if units.device.type == "cpu" else (2**12, 2**16)
    buffer = units.new_empty(min(rows, len(units)) * min(width, len(bank)))
    for unit in units.split(rows) if len(units) else ():
        largest, places = unit.new_empty(len(unit), 0), torch.empty(len(unit), 0, dtype=torch.int64, device=unit.device)
        for start, some in zip(range(0, len(bank), width), bank.split(width)):
            product = buffer[: len(unit) * len(some)].view(len(unit), len(some))
            torch.addmm(half[start : start + width], unit, some.T.to(unit.dtype), beta=-1, out=product)
            more, where = product.topk(min(k, len(some)))
            largest, places = torch.cat([largest, more], 1), torch.cat([places, where + start], 1)
            largest, order = largest.topk(min(k, largest.shape[1]))
            places = places.gather(1, order)
        yield unit, largest, places


def _require_neighbours(k: int, features: Tensor) -> None:
    if k > len(features):
        raise ValueError(f"there is no neighbour number {k} among {len(features)} training samples")
    require_finite(features, "features that neighbours are looked for among")
