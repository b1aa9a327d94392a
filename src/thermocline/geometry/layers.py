"""A layer's weight against what flows through it: alignment with its inputs, and the rank of its gradient."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor, nn

from thermocline.geometry.spectra import GRAM_REACH, numerical_rank
from thermocline.moments import Array, Moments, reals, require_finite

ITERATED, ROUNDS = 1024, 20  # width of inputs from which on their main directions are found without the others, and how


class Alignment(NamedTuple):
    """How a layer's weight and inputs line up; `null` is what `max` would be on average under a random rotation."""

    max: Float[Tensor, ""]
    first: Float[Tensor, ""]
    matrix: Float[Tensor, "w a"]
    null: Float[Tensor, ""]


def alignment(
    weight: Real[Array, "o *i"], activations: Real[Array, "n d"] | Moments, top: int = 15, *, centered: bool = False
) -> Alignment:
    """Cosines between the main input directions of a weight and the main directions of the inputs it meets.

        C = |V_W[:, :top]^T U_A[:, :top]|,  W = U_W S V_W^T,  A = U_A S V_A^T   [masarczyk2025softmax, Fig. 3]

    A holds layer inputs in columns: with samples in rows, as here, U_A are the right singular vectors, taken, as V_W, from
    a float64 Gram (`centered=True`: from the scatter). A convolution has W flattened to (out, in*k*k) and the moments of
    its `unfold_patches`. A direction without energy is arbitrary, and its row or column of C is 0.

    >>> weight, inputs = torch.diag(torch.tensor([3.0, 2.0, 1.0]))[:2], torch.diag(torch.tensor([1.0, 2.0, 3.0]))
    >>> alignment(weight, inputs, top=2).matrix  # W reads axes 0 and 1 best, the inputs lie along 2 and 1
    tensor([[0., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    if top < 1:
        raise ValueError(f"top is a number of directions, at least 1, got {top}")
    flat = _flat(weight, "the weight")
    moments = activations if isinstance(activations, Moments) else Moments.of(activations)
    if not moments.count:
        raise ValueError("alignment needs activations, got none")
    if flat.shape[1] != len(moments.mean):
        raise ValueError(f"the weight reads {flat.shape[1]} inputs but the activations have {len(moments.mean)} features")
    gram = moments.scatter if centered else moments.second_moment()
    require_finite(flat, "the weight")
    require_finite(gram, "the activations, and their squares,")
    reads, axes = _weight_axes(flat.double(), top), _main_axes(gram, top, iterate=len(gram) >= max(ITERATED, 8 * top))
    cosines = (reads.T @ axes).abs()
    null = random_alignment(flat.shape[1], int(reads.any(0).sum() * axes.any(0).sum()))
    return Alignment(cosines.max(), cosines[0, 0], cosines, cosines.new_tensor(null))


def _main_axes(gram: Tensor, top: int, *, iterate: bool = False) -> Tensor:
    """The leading eigenvectors of a Gram matrix in columns; one without energy is zero."""
    energy, axes = (iterate and _iterated(gram, top)) or _decomposed(gram, top)
    return axes * (energy > GRAM_REACH**2 * energy[0])


def _decomposed(gram: Tensor, top: int) -> tuple[Tensor, Tensor]:
    energy, axes = torch.linalg.eigh(gram)
    return energy[-top:].flip(0), axes[:, -top:].flip(1)


def _iterated(gram: Tensor, top: int) -> tuple[Tensor, Tensor] | None:
    """The same by subspace iteration [halko2011finding, Alg. 4.4], many times faster where they are few of many.

    None where it has not converged: |G v - e v| > 1e-8 e + 1e-13 e_1. A flat spectrum, as weights have at first, never does.
    """
    start = torch.randn(len(gram), 4 * top, generator=torch.Generator().manual_seed(0), dtype=gram.dtype, device="cpu")
    basis = start.to(gram.device)
    for _ in range(ROUNDS):
        basis, _ = torch.linalg.qr(gram @ basis)
    energy, turn = torch.linalg.eigh(basis.T @ gram @ basis)
    energy, axes = energy[-top:].flip(0), (basis @ turn[:, -top:]).flip(1)
    missed = torch.linalg.vector_norm(gram @ axes - axes * energy, dim=0)
    return (energy, axes) if bool((missed <= 1e-8 * energy + 1e-13 * energy[0]).all()) else None


def _weight_axes(weight: Tensor, top: int) -> Tensor:
    """The leading right singular vectors of a weight in columns, from the Gram of its shorter side."""
    if len(weight) > weight.shape[1]:
        return _main_axes(weight.T @ weight, top)
    # W = U S V^T: W^T U = V S, and what had no energy stays zero.
    return torch.nn.functional.normalize(
        weight.T @ _main_axes(weight @ weight.T, top), dim=0, eps=torch.finfo(weight.dtype).tiny
    )


def random_alignment(dimension: int, cosines: int) -> float:
    """The largest of several |cos| between random directions, on average.

        E max = int_0^1 1 - F(t)^m dt,   F(t) = P(|cos| <= t), density ~ (1 - t^2)^((d - 3) / 2)   [cai2013angles]

    The marginal law is exact, integrated on a grid; the m cosines of a rotation are taken as independent. From d = 9 up
    that is low, against simulated rotations, by at most 7 % where one direction meets several, 3 % where two do, and 1 %
    from ten by ten on. sqrt(2 ln(2 m) / d) is its crude upper form.

    >>> round(random_alignment(3, 1), 4)  # |cos| is uniform on the sphere in three dimensions
    0.5
    """
    if dimension == 1:
        return 1.0
    # t = sin(angle) makes the density cos(angle)^(d - 2), finite also for d = 2; beyond 12 / sqrt(d) nothing is left.
    angle = torch.linspace(0, min(math.pi / 2, 12 / dimension**0.5), 4097, dtype=torch.float64, device="cpu")
    mass = torch.cumulative_trapezoid(angle.cos().pow(dimension - 2), angle)
    below = torch.cat([mass.new_zeros(1), mass / mass[-1]])
    return float(torch.trapezoid((1 - below.pow(cosines)) * angle.cos(), angle))


def unfold_patches(x: Float[Tensor, "n i h w"], conv: nn.Conv2d, *, group: int | None = None) -> Float[Tensor, "p d"]:
    """What a convolution multiplies its weight with: one row of in*k*k values for every image and output place.

        conv(x)[n, o, place] = (W A)[o, (n, place)] + bias_o,   W = conv.weight.flatten(1)   [masarczyk2025softmax, Fig. 3]

    Stride, padding (its mode too) and dilation are the layer's. With groups > 1 every group has its own W and A: name
    one, and take its weight as `conv.weight.chunk(conv.groups)[group]`.

    >>> unfold_patches(torch.arange(3.0).reshape(1, 1, 1, 3), nn.Conv2d(1, 4, kernel_size=(1, 2), device="meta"))
    tensor([[0., 1.],
            [1., 2.]])
    """
    if conv.groups > 1:
        if group is None:
            raise ValueError(f"this convolution has {conv.groups} groups, each with its own patches: pass group=0, 1, ...")
        x = x.chunk(conv.groups, dim=1)[group]
    mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
    padded = nn.functional.pad(x, _padding(conv), mode=mode)
    patches = nn.functional.unfold(padded, conv.kernel_size, dilation=conv.dilation, stride=conv.stride)
    return patches.transpose(1, 2).flatten(0, 1)


def gradient_rank(gradient: Real[Array, "o *i"], *, of: Literal["features", "covariance"], rtol: float) -> Int[Tensor, ""]:
    """Numerical rank of the gradient of a weight; the rank of the layer's inputs bounds it.

        rank(dL/dW),   dL/dW = (dL/dZ) A^T,  Z = W A                          [masarczyk2025softmax, Fig. 4]

    Uncentred, flattened to (out, in*k*k). A batch of n samples bounds it by n as well: use 2000 or more.

    >>> gradient_rank(torch.outer(torch.tensor([1.0, 2.0]), torch.ones(3)), of="features", rtol=1e-3)
    tensor(1)
    """
    return numerical_rank(_flat(gradient, "the gradient"), of=of, rtol=rtol, centered=False)


def _flat(weight: Real[Array, "o *i"], what: str) -> Float[Tensor, "o i"]:
    """A layer's weight as the matrix that multiplies its inputs, or their patches."""
    found = reals(weight, what).detach()
    if found.ndim < 2:
        raise ValueError(f"{what} must be a matrix, or that of a convolution, got shape {tuple(found.shape)}")
    return found.flatten(1)


def _padding(conv: nn.Conv2d) -> list[int]:
    """Left, right, top, bottom: the order `pad` takes, last axis first."""
    sides = []
    for axis in (1, 0):
        if isinstance(conv.padding, str):
            whole = conv.dilation[axis] * (conv.kernel_size[axis] - 1) if conv.padding == "same" else 0
            sides += [whole // 2, whole - whole // 2]
        else:
            sides += [conv.padding[axis]] * 2
    return [int(side) for side in sides]
