"""Nets without shortcuts: MLP and VGG."""

from __future__ import annotations

import itertools

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from thermocline.nets import initial
from thermocline.nets.tap import Tap, Tapped, image_tap


class MLP(Tapped):
    """`depth` linear layers with ReLU between them, initialised to keep the size of activations [he2015delving, Eq. 10].

    torch's default would shrink logits with depth, and so be a high temperature of its own.
    """

    def __init__(self, inputs: int, classes: int, *, depth: int, width: int) -> None:
        super().__init__()
        widths = [inputs] + [width] * (depth - 1)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.head = nn.Linear(widths[-1], classes)
        initial.draw(self, "he")
        self.taps = (*(Tap(f"layers.{i}") for i in range(depth - 1)), Tap("head"))

    def forward(self, images: Float[Tensor, "b ch h w"]) -> Float[Tensor, "b c"]:
        x = images.flatten(1)
        for layer in self.layers:
            x = functional.relu(layer(x))
        return self.head(x)


# Convolutions a stage and their channels as multiples of the first's [simonyan2015vgg, Tab. 1, column E].
VGG19 = ((2, 1), (2, 2), (4, 4), (4, 8), (4, 8))


class VGG(Tapped):
    """VGG-19: 16 convolutions of 3 x 3 in 5 stages, and 3 linear layers [simonyan2015vgg, Tab. 1].

    A stage ends in a 2 x 2 max-pool while there are 2 pixels to pool. Up to 64 pixels the hidden linear layers have 8 times
    the first stage's channels (512, as is usual on CIFAR, where 4096 would read one pixel); above, its 4096. There is no
    dropout: training keeps no random state. Initialised as the MLP, since without normalisation size must be kept.
    """

    def __init__(self, channels: int, classes: int, *, size: int, width: int, hidden: int, normalised: bool) -> None:
        super().__init__()
        widths = [width * multiple for count, multiple in VGG19 for _ in range(count)]
        ends = set(itertools.accumulate(count for count, _ in VGG19))
        convolutions, norms, pools = [], [], []
        for i, (a, b) in enumerate(itertools.pairwise([channels, *widths]), start=1):
            pooled = i in ends and size >= 2
            convolutions.append(nn.Conv2d(a, b, 3, padding=1, bias=not normalised))
            norms.append(nn.BatchNorm2d(b) if normalised else nn.Identity())
            pools.append(nn.MaxPool2d(2) if pooled else nn.Identity())
            size = size // 2 if pooled else size
        self.convolutions, self.norms, self.pools = map(nn.ModuleList, (convolutions, norms, pools))
        self.hidden = nn.ModuleList([nn.Linear(widths[-1] * size * size, hidden), nn.Linear(hidden, hidden)])
        self.head = nn.Linear(hidden, classes)
        initial.draw(self, "he")
        images = (image_tap(f"convolutions.{i}", width) for i, width in enumerate(widths))
        self.taps = (*images, Tap("hidden.0"), Tap("hidden.1"), Tap("head"))

    def forward(self, images: Float[Tensor, "b ch h w"]) -> Float[Tensor, "b c"]:
        x = images
        for convolution, norm, pool in zip(self.convolutions, self.norms, self.pools):
            x = pool(functional.relu(norm(convolution(x))))
        x = x.flatten(1)
        for layer in self.hidden:
            x = functional.relu(layer(x))
        return self.head(x)
