"""Neural collapse: classes shrink to points, the points to a simplex, and the head to its dual."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Integer, Real
from torch import Tensor

from thermocline.moments import Array, ClassMoments, class_means, matrix, reals, require_finite, slices, subtract


class NeuralCollapse(NamedTuple):
    """Distances from neural collapse: every one is 0 for a collapsed net."""

    nc1: Float[Tensor, ""]
    nc1_trace: Float[Tensor, ""]
    nc2_equinorm: Float[Tensor, ""]
    nc2_equiangular: Float[Tensor, ""]
    nc2_equinorm_weights: Float[Tensor, ""]
    nc2_equiangular_weights: Float[Tensor, ""]
    nc3: Float[Tensor, ""]
    nc4: Float[Tensor, ""]


def neural_collapse(
    features: Real[Array, "n d"],
    labels: Integer[Array, "n"],
    head_weight: Real[Array, "c d"],
    head_bias: Real[Array, "c"] | None = None,
    *,
    rtol: float = 1e-3,
) -> NeuralCollapse:
    """The four signs of neural collapse in the features before a linear head, as distances from it.

        NC1 = Tr(Sigma_W pinv(Sigma_B)) / c,  also Tr Sigma_W / Tr Sigma_B    [papyan2020collapse, Fig. 6]
        NC2 = std_c ||m_c|| / mean_c ||m_c||                                  [papyan2020collapse, Fig. 2]
              mean_{c != c'} |cos(m_c, m_c') + 1 / (c - 1)|                   [papyan2020collapse, Fig. 4]
        NC3 = || W / ||W||_F - M / ||M||_F ||_F^2,  M = rows m_c              [papyan2020collapse, Fig. 5]
        NC4 = share of samples whose largest logit is not the nearest class mean   [papyan2020collapse, Fig. 7]

    m_c = mean_c - mean of the class means; Sigma_B = mean_c m_c m_c^T; Sigma_W pools samples (ddof 0); std has ddof 0;
    NC2 also for the rows of W. The pseudo-inverse drops eigenvalues of Sigma_B up to `rtol` of the largest (the
    convention of the rank of a covariance), where a cut at c - 1 would divide by noise in a rank-deficit net. A class
    with one sample adds no scatter; equal class means give inf or nan; a class without a sample is an error, as are
    NaN or infinite features.

    >>> simplex = torch.eye(3) - 1 / 3
    >>> [round(abs(float(v)), 6) for v in neural_collapse(5 * simplex.repeat(4, 1), torch.arange(12) % 3, simplex)]
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    features, head_weight = matrix(features, "features"), matrix(head_weight, "the weight of the head")
    counts, means = class_means(features, labels, classes=len(head_weight))
    _require_classes(counts, means, head_weight, rtol)
    between = _Between.of(means)
    weight, bias, n = head_weight.detach().double(), bias_column(head_bias, len(head_weight)), len(features)
    # With x = mean_y + e, w.x = w.e + w.mean_y, and x is closest to the mean of largest m.e + m.m_y - ||m||^2 / 2; e is
    # all that moves within a class, so one product of e with the head and the axes of the means gives NC1 and NC4.
    # Samples are its columns, which is the faster way round on a CPU.
    rows, logits, closeness = torch.cat([between.axes, weight]), weight @ means.T + bias, between.closeness()
    spread, trace, differ = torch.zeros_like(between.sigma), means.new_zeros(()), means.new_zeros(())
    for moved, names in slices(features, labels):
        subtract(moved, means, names)
        along, scores = (rows @ moved.T).split([len(spread), len(weight)])
        scores += logits.index_select(1, names)
        nearest = torch.addmm(closeness.index_select(1, names), between.coordinates, along).argmax(0)
        differ += (scores.argmax(0) != nearest).sum()
        spread += along.square_().sum(1)
        trace += moved.square_().sum()
    return _assemble(between, weight, spread=spread / n, trace=trace / n, nc4=differ / n, rtol=rtol)


def collapse_from_moments(
    moments: ClassMoments, head_weight: Float[Tensor, "c d"], *, nc4: Float[Tensor, ""], rtol: float = 1e-3
) -> NeuralCollapse:
    """`neural_collapse` of a stream, whose NC4 takes a second pass: the mean of argmax logits != `nearest_class_mean`.

        The formulas of `neural_collapse`                                     [papyan2020collapse]

    >>> moments = ClassMoments.of(torch.tensor([[-3.0], [-1.0], [1.0], [3.0]]), torch.tensor([0, 0, 1, 1]), classes=2)
    >>> collapse_from_moments(moments, torch.tensor([[-1.0], [1.0]]), nc4=torch.tensor(0.0)).nc1_trace  # 1 / 2^2
    tensor(0.2500, dtype=torch.float64)
    """
    _require_classes(moments.counts, moments.means, head_weight, rtol)
    between, within = _Between.of(moments.means), moments.within_covariance(ddof=0)
    spread = ((between.axes @ within) * between.axes).sum(1)
    return _assemble(between, head_weight.detach().double(), spread=spread, trace=within.trace(), nc4=nc4.double(), rtol=rtol)


def nearest_class_mean(features: Float[Tensor, "n d"], class_means: Float[Tensor, "c d"]) -> Int[Tensor, "n"]:
    """The class whose mean is closest to each feature; of equally close ones, the first.

        argmin_c ||h - mean_c||_2                                             [papyan2020collapse, Fig. 7]

    >>> nearest_class_mean(torch.tensor([[0.9], [2.1]]), torch.tensor([[0.0], [1.0], [3.0]]))
    tensor([1, 2])
    """
    means = class_means.double()
    if features.shape[1:] != means.shape[1:]:
        raise ValueError(f"features are {tuple(features.shape)} but the class means are {tuple(means.shape)}")
    # ||h - m||^2 = ||h||^2 - 2 (h.m - ||m||^2 / 2), around the centre of the means so that a common offset cannot cancel.
    centre = means.mean(0)
    means = means - centre
    closeness = torch.addmm(means.square().sum(1), features.double() - centre, means.T, beta=-0.5)
    require_finite(closeness, "features and class means")
    return closeness.argmax(1)


def orthodev(
    class_means: Real[Array, "c d"],
    ood_mean: Real[Array, "d"],
    *,
    centered: bool,
    global_mean: Real[Array, "d"] | None = None,
) -> Float[Tensor, ""]:
    """How far the mean of other data is from orthogonal to the class means: 0 is orthogonal, 1 is parallel.

        mean_c |<mu_c, mu_OOD>| / (||mu_c|| ||mu_OOD||)                       [masarczyk2025softmax, Fig. 7]

    The paper's means are not centred. `centered=True` subtracts `global_mean` (default: the mean of the class means)
    from both sides. A mean of zero has no direction and gives nan.

    >>> means = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> orthodev(means, torch.tensor([3.0, 0.0]), centered=False)
    tensor(0.5000, dtype=torch.float64)
    """
    if global_mean is not None and not centered:
        raise ValueError("global_mean is what centered=True subtracts; with centered=False leave it out")
    means, other = reals(class_means, "class_means").double(), reals(ood_mean, "ood_mean").double()
    if means.ndim != 2 or other.shape != means.shape[1:]:
        raise ValueError(f"the mean of other data is of shape {tuple(other.shape)}, the class means {tuple(means.shape)}")
    if centered:
        centre = means.mean(0) if global_mean is None else reals(global_mean, "global_mean").double()
        if centre.shape != other.shape:
            raise ValueError(f"global_mean is of shape {tuple(centre.shape)}, the class means {tuple(means.shape)}")
        means, other = means - centre, other - centre
    return ((means @ other).abs() / (means.norm(dim=1) * other.norm())).mean()


class _Between(NamedTuple):
    """The centred class means M (rows m_c) and their M = P S Q^T, so that Sigma_B = Q (S^2 / c) Q^T."""

    centred: Tensor
    coordinates: Tensor
    sigma: Tensor
    axes: Tensor

    @classmethod
    def of(cls, means: Tensor) -> _Between:
        left, sigma, axes = torch.linalg.svd(centred := _centred_means(means), full_matrices=False)
        return cls(centred, left * sigma, sigma, axes)

    def closeness(self) -> Tensor:
        """m_c . m_y - ||m_c||^2 / 2 in column y, which is largest for the c whose mean is closest to mean_y."""
        products = self.centred @ self.centred.T
        return products - products.diagonal()[:, None] / 2


def bias_column(given: Array | None, classes: int) -> Tensor | float:
    """The bias of a head as a column, one number a class; 0 where there is none."""
    if given is None:
        return 0.0
    bias = reals(given, "the bias of the head")
    if bias.shape != (classes,):
        raise ValueError(f"the head has {classes} rows but the bias has shape {tuple(bias.shape)}")
    require_finite(bias, "the bias of the head")
    return bias.detach().double()[:, None]


def _require_classes(counts: Tensor, means: Tensor, head_weight: Tensor, rtol: float) -> None:
    if not 0 < rtol < 1:
        raise ValueError(f"rtol is a fraction of the largest eigenvalue, above 0 and below 1, got {rtol}")
    if len(head_weight) < 2:
        raise ValueError(f"neural collapse compares classes: the head needs two rows or more, got {len(head_weight)}")
    if head_weight.shape != means.shape:
        raise ValueError(f"the head is {tuple(head_weight.shape)} but the class means are {tuple(means.shape)}")
    missing = (counts == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(f"neural collapse needs samples of every class; {len(missing)} have none, the first is {missing[0]}")
    require_finite(head_weight, "the weight of the head")
    # The mean of a class is NaN or infinite where any of its features is.
    require_finite(means, "features")


def _assemble(between: _Between, weight: Tensor, *, spread: Tensor, trace: Tensor, nc4: Tensor, rtol: float) -> NeuralCollapse:
    """From the variance within classes along each axis of the means (`spread`), and along all axes (`trace`)."""
    centred = between.centred
    return NeuralCollapse(
        nc1=_within_over_between(spread, trace, between.sigma.square(), rtol),
        nc1_trace=trace / centred.square().sum(1).mean(),
        nc2_equinorm=_equinorm(centred),
        nc2_equiangular=_equiangular(centred),
        nc2_equinorm_weights=_equinorm(weight),
        nc2_equiangular_weights=_equiangular(weight),
        nc3=(weight / weight.norm() - centred / centred.norm()).square().sum(),
        nc4=nc4,
    )


def _centred_means(means: Tensor) -> Tensor:
    centred = means - means.mean(0)
    # Equal means leave rounding behind; as numbers, its angles and ratios would look like a finding.
    rounding = 8 * torch.finfo(means.dtype).eps * means.norm(dim=1).max()
    return torch.where(centred.norm(dim=1).max() > rounding, centred, 0.0)


def _within_over_between(spread: Tensor, trace: Tensor, between: Tensor, rtol: float) -> Tensor:
    # Tr(Sigma_W pinv(Sigma_B)) / c = sum_i q_i^T Sigma_W q_i / S_i^2, by the decomposition in `_Between`.
    kept = between > rtol * between[0]
    ratio = (spread / between.where(kept, 1.0)).where(kept, 0.0).sum()
    return torch.where(between[0] > 0, ratio, trace / between[0])


def _equinorm(vectors: Tensor) -> Tensor:
    norms = vectors.norm(dim=1)
    return norms.std(correction=0) / norms.mean()


def _equiangular(vectors: Tensor) -> Tensor:
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    c = len(unit)
    gap = (unit @ unit.T + 1 / (c - 1)).abs()
    return (gap.sum() - gap.diagonal().sum()) / (c * (c - 1))
