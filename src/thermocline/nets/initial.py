"""How weights are drawn, and scaled, before training: the size of the first logits is a temperature by another name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from thermocline.nets.tap import LAYERS

SCHEMES: dict[str, Callable[[Tensor], Any]] = {
    # Normal, variance 2 / fan_in: keeps the size of what ReLUs pass on [he2015delving, Eq. 10].
    "he": functools.partial(nn.init.kaiming_normal_, nonlinearity="relu"),
    # Normal, variance 1 / fan_in: keeps the size of what is linear [lecun1998efficient, Sec. 4.6].
    "lecun": functools.partial(nn.init.kaiming_normal_, nonlinearity="linear"),
    # Uniform, variance 2 / (fan_in + fan_out) [glorot2010understanding, Eq. 16].
    "xavier": nn.init.xavier_uniform_,
    # Orthonormal rows or columns, whichever are fewer, of the weight as (out, in*k*k); no gain for ReLUs [saxe2014exact].
    "orthogonal": nn.init.orthogonal_,
}


def draw(net: nn.Module, init: Literal["he", "lecun", "xavier", "orthogonal", "torch"]) -> None:
    """Draw the weights of every Linear and convolution afresh, in their order; biases are zero.

    "torch" is each module's own default, biases included. Norms, tokens and positions stay as they are.

    >>> layer = nn.Linear(3, 2)
    >>> with torch.random.fork_rng():
    ...     draw(layer, "orthogonal")
    >>> (layer.weight @ layer.weight.T).allclose(torch.eye(2), atol=1e-6), layer.bias.tolist()
    (True, [0.0, 0.0])
    """
    for module in net.modules():
        if not isinstance(module, LAYERS):
            continue
        if init == "torch":
            module.reset_parameters()
            continue
        SCHEMES[init](module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


@torch.no_grad()
def scale(layer: nn.Module, factor: float) -> None:
    """Multiply the parameters of one layer: of a linear one, whose output is then multiplied too."""
    for parameter in layer.parameters(recurse=False):
        parameter.mul_(factor)
