"""Networks that declare their taps: one for every weight layer, the head last.

A net maps images to logits, and a temperature never enters it: temperature belongs to the loss.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from thermocline import spec
from thermocline.spec import InputError


@dataclass(frozen=True)
class Tap:
    """A place to read a net: the input or output of a module, as one vector a sample.

    Views: flatten; pool2 (images averaged to 2 x 2); mean (over tokens); cls (the first token); raw (as it is).
    `subset` keeps that many features of a wider view, the same ones every time.
    """

    path: str
    at: Literal["input", "output"] = "output"
    view: Literal["flatten", "pool2", "mean", "cls", "raw"] = "flatten"
    subset: int | None = None

    @property
    def label(self) -> str:
        """The view as rows record it."""
        return self.view if self.subset is None else f"{self.view}/{self.subset}"

    def read(self, value: Float[Tensor, "b *shape"]) -> Float[Tensor, "b *view"]:
        """The view of a captured value, in memory of its own: a later in-place operation cannot change it."""
        value = value.detach()
        if self.view == "raw":
            return value.clone()
        if self.view == "pool2" and value.ndim == 4:
            return self._some(functional.adaptive_avg_pool2d(value, 2).flatten(1))
        if self.view in ("mean", "cls") and value.ndim == 3:
            return self._some(value.mean(1) if self.view == "mean" else value[:, 0].clone())
        return self._some(value.flatten(1).clone())

    def _some(self, vectors: Tensor) -> Tensor:
        if self.subset is None or vectors.shape[1] <= self.subset:
            return vectors
        chosen = torch.randperm(vectors.shape[1], generator=torch.Generator().manual_seed(0))[: self.subset]
        return vectors[:, chosen.sort().values.to(vectors.device)]


class MLP(nn.Module):
    """`depth` linear layers with ReLU between them, initialised to keep the size of activations [he2015delving, Eq. 10].

    torch's default would shrink logits with depth, and so be a high temperature of its own.
    """

    def __init__(self, inputs: int, classes: int, *, depth: int, width: int) -> None:
        super().__init__()
        widths = [inputs] + [width] * (depth - 1)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.head = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)
        self.taps = (*(Tap(f"layers.{i}") for i in range(depth - 1)), Tap("head"))

    def forward(self, images: Float[Tensor, "b ch h w"]) -> Float[Tensor, "b c"]:
        x = images.flatten(1)
        for layer in self.layers:
            x = functional.relu(layer(x))
        return self.head(x)


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut [he2016residual, Fig. 2]."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outputs))

    def forward(self, x: Float[Tensor, "b i h w"]) -> Float[Tensor, "b o h2 w2"]:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A ResNet of basic blocks for small images: 3 x 3 stem, no max-pool, 1 x 1 convolutions where shapes change.

    Weight layers are the stem, every 3 x 3 convolution and the head; shortcuts are not counted, as in its name.
    """

    def __init__(self, channels: int, classes: int, *, stages: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        widths = [width * 2**stage for stage in range(len(stages)) for _ in range(stages[stage])]
        inputs = [width, *widths[:-1]]
        self.blocks = nn.ModuleList(Block(a, b, stride=1 if a == b else 2) for a, b in zip(inputs, widths))
        self.head = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        convolutions = ["stem", *(f"blocks.{i}.conv{j}" for i in range(len(widths)) for j in (1, 2))]
        self.taps = (*(Tap(path, view="pool2") for path in convolutions), Tap("head"))

    def forward(self, images: Float[Tensor, "b ch h w"]) -> Float[Tensor, "b c"]:
        x = functional.relu(self.norm(self.stem(images)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


# name: (blocks a stage, channels of the stem). CIFAR ResNets 8 and 20 follow [he2016residual, Sec. 4.2].
RESNETS = {
    "resnet8": ((1, 1, 1), 16),
    "resnet20": ((3, 3, 3), 16),
    "resnet18": ((2, 2, 2, 2), 64),
    "resnet34": ((3, 4, 6, 3), 64),
}
NAMES = {
    "mlp": "linear layers with ReLU; net.depth (8) and net.width (1024)",
    **{
        name: f"residual net for small images, {2 * sum(s) + 2} weight layers, {w}-channel stem"
        for name, (s, w) in RESNETS.items()
    },
}


def check(net: spec.Net) -> None:
    """Raise unless this net can be built."""
    if net.name not in NAMES:
        raise spec.unknown("net", net.name, NAMES)
    if net.name in RESNETS and net.depth is not None:
        raise InputError(f"net.depth={net.depth} does not apply to {net.name}: its depth is in its name")


def build(net: spec.Net, *, classes: int, size: int, channels: int = 3, seed: int = 0) -> nn.Module:
    """The net of a spec, freshly initialised from the seed; the global random state is left as it was."""
    check(net)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if net.name == "mlp":
            return MLP(channels * size * size, classes, depth=net.depth or 8, width=net.width or 1024)
        stages, width = RESNETS[net.name]
        return ResNet(channels, classes, stages=stages, width=net.width or width)


def taps(net: nn.Module) -> tuple[Tap, ...]:
    """The taps a net declares, in order of depth; the last one is its head. For any other net: `measure.find_taps`."""
    declared = getattr(net, "taps", None)
    if not declared:
        raise InputError(f"{type(net).__name__} declares no taps: set net.taps = (Tap('path.of.module'), ...), head last")
    return tuple(declared)
