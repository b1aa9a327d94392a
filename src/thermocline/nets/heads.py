"""Heads other than one linear layer, and the size of the logits they start with."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from thermocline import geometry, spec
from thermocline.nets import initial
from thermocline.nets.tap import Tap, Tapped, taps
from thermocline.spec import InputError

EPSILON = 1e-12  # of normalisations: small, so that they undo all scales but vanishing ones


class Circle(nn.Module):
    """Classes on a fixed circle, times one learned scale: two dimensions are enough to get each right.

        M = s x code^T,  code_k = (cos theta_k, sin theta_k)                  [masarczyk2025softmax, Prop. 3.2]

    Its `weight` s * code is computed, not learned: it has no gradient of its own to measure.
    """

    code: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("code", geometry.circle_code(classes).to(self.scale), persistent=False)

    @property
    def weight(self) -> Float[Tensor, "c 2"]:
        return self.scale * self.code

    def forward(self, x: Float[Tensor, "b 2"]) -> Float[Tensor, "b c"]:
        return functional.linear(x, self.weight)


class Normalised(nn.Linear):
    """A linear layer whose outputs are normalised, to mean 0 and variance 1 over classes [ba2016layer, Eq. 3].

    Its output are still the net's logits and its input still multiplies `weight`, as taps want of a head. Every logit vector
    has norm sqrt(c), so that temperature is the only scale left.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, input: Float[Tensor, "b d"]) -> Float[Tensor, "b c"]:
        return functional.layer_norm(super().forward(input), (self.out_features,), eps=EPSILON)


def fit(net: Tapped, what: spec.Net) -> None:
    """Put the head a spec asks for in place of a net's linear one, and its taps in place of that one's.

    A bottleneck is one weight layer more, `down`, without bias, so that the rank of the logits is at most its dimensions;
    the head is then `out`. `logit_norm=before` normalises what all of this reads, without learned parameters.
    """
    if what.head == "linear" and what.logit_norm == "none":
        return
    path = net.taps[-1].path
    out = net.get_submodule(path)
    if not isinstance(out, nn.Linear):
        raise InputError(f"net.head and net.logit_norm need a net with a linear head; {path} is a {type(out).__name__}")
    parts: dict[str, nn.Module] = {}
    if what.logit_norm == "before":
        parts["norm"] = nn.LayerNorm(out.in_features, eps=EPSILON, elementwise_affine=False)
    if what.head != "linear":
        rank = 2 if what.head == "circle" else what.head_rank
        assert rank is not None, "nets.check has seen to it"
        parts["down"] = nn.Linear(out.in_features, rank, bias=False)
        out = nn.Linear(rank, out.out_features, bias=False) if what.head == "bottleneck" else Circle(out.out_features)
    parts["out"] = Normalised(out) if what.logit_norm == "after" and isinstance(out, nn.Linear) else out
    if what.head != "linear":
        for part in parts.values():
            initial.draw(part, "lecun")  # nothing but linear maps from here on
    if len(parts) == 1:
        net.set_submodule(path, parts["out"])
        return
    whole = nn.Sequential()
    for name, part in parts.items():
        whole.add_module(name, part)
    net.set_submodule(path, whole)
    net.taps = (*net.taps[:-1], *(Tap(f"{path}.{name}") for name in parts if name != "norm"))


def set_logit_norm(net: nn.Module, images: Float[Tensor, "n ch h w"], value: float) -> None:
    """Rescale a net's head so that the logits of these images have a given size.

        ||M||_F / sqrt(n) = value                                             [masarczyk2025softmax, Fig. 8]

    The net runs once, on all of them, as in a training step: in training mode, batch statistics and all, since those are
    the logits that training starts from. In evaluation mode batch norms have seen nothing at the start, and the recorded
    `logit_norm` of step 0 is another number (resnet50 on noise: 6 and 93). Modes, buffers and the random state stay.
    """
    head = net.get_submodule(taps(net)[-1].path)
    if isinstance(head, Normalised):
        raise InputError("net.logit_norm_init does not go with net.logit_norm=after, which undoes every scale")
    modes = {module: module.training for module in net.modules()}
    buffers = {buffer: buffer.clone() for buffer in net.buffers()}
    devices = [images.device] if images.device.type == "cuda" else []
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=devices):
            logits = net.train()(images).double()
    finally:
        for buffer, before in buffers.items():
            buffer.copy_(before)
        for module, mode in modes.items():
            module.training = mode
    norm = float(logits.norm()) / math.sqrt(len(logits))
    if not 0 < norm < math.inf:
        raise InputError(f"net.logit_norm_init={value:g} cannot be reached by scaling the head: its logits have norm {norm:g}")
    initial.scale(head, value / norm)
