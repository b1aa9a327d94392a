"""ResNets."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from thermocline.nets.tap import Tap, Tapped, image_tap


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut [he2016residual, Fig. 2]."""

    expansion, convolutions = 1, 2

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = shortcut(inputs, width, stride)

    def forward(self, x: Float[Tensor, "b i h w"]) -> Float[Tensor, "b o h2 w2"]:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """A 3 x 3 convolution between two of 1 x 1, which narrow and widen again, and a shortcut [he2016residual, Fig. 5].

    The stride is that of the 3 x 3 convolution, not of the first 1 x 1: "v1.5", which is what most libraries have.
    """

    expansion, convolutions = 4, 3

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(outputs)
        self.shortcut = shortcut(inputs, outputs, stride)

    def forward(self, x: Float[Tensor, "b i h w"]) -> Float[Tensor, "b o h2 w2"]:
        y = functional.relu(self.norm1(self.conv1(x)))
        y = functional.relu(self.norm2(self.conv2(y)))
        return functional.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """The identity, or a 1 x 1 convolution where the shape changes [he2016residual, Sec. 3.3, option B]."""
    if stride == 1 and inputs == outputs:
        return nn.Sequential()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class Shape(NamedTuple):
    """A ResNet's blocks a stage, channels of its stem, and kind of block."""

    stages: tuple[int, ...]
    width: int
    block: type[Block] | type[Bottleneck] = Block

    @property
    def layers(self) -> int:
        """Weight layers, shortcuts aside."""
        return self.block.convolutions * sum(self.stages) + 2


# ResNets 8 and 20, for CIFAR, follow [he2016residual, Sec. 4.2], the others its Tab. 1.
RESNETS = {
    "resnet8": Shape((1, 1, 1), 16),
    "resnet20": Shape((3, 3, 3), 16),
    "resnet18": Shape((2, 2, 2, 2), 64),
    "resnet34": Shape((3, 4, 6, 3), 64),
    "resnet50": Shape((3, 4, 6, 3), 64, Bottleneck),
}


class ResNet(Tapped):
    """A ResNet [he2016residual]: 1 x 1 convolutions where shapes change, each stage twice as wide as the last.

    The small stem is a 3 x 3 convolution; ImageNet's is one of 7 x 7 and a max-pool, each halving the image. Weight layers
    are the stem, every convolution of the main path and the head; shortcuts are not counted, as in its name.
    """

    def __init__(self, channels: int, classes: int, *, shape: Shape, width: int, small: bool) -> None:
        super().__init__()
        if small:
            self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        else:
            self.stem = nn.Conv2d(channels, width, 7, 2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.pool = nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1)
        self.blocks, inputs, taps = nn.ModuleList(), width, [image_tap("stem", width)]
        for stage, count in enumerate(shape.stages):
            narrow, wide = width * 2**stage, width * 2**stage * shape.block.expansion
            for i in range(count):
                path = f"blocks.{len(self.blocks)}.conv"
                self.blocks.append(shape.block(inputs, narrow, stride=2 if stage and not i else 1))
                outputs = [*[narrow] * (shape.block.convolutions - 1), wide]
                taps += [image_tap(f"{path}{j}", channels) for j, channels in enumerate(outputs, start=1)]
                inputs = wide
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.taps = (*taps, Tap("head"))

    def forward(self, images: Float[Tensor, "b ch h w"]) -> Float[Tensor, "b c"]:
        x = self.pool(functional.relu(self.norm(self.stem(images))))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))
