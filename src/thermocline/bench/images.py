"""Images to benchmark on: classes that an untrained net's features can tell apart, but not perfectly; and such a net.

An image is its class's smooth template, shifted by a few pixels, under a smooth field that says nothing of its class and
noise in every pixel. On uniform noise every probe would be at chance, and equal accuracies would prove nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from thermocline import nets, spec
from thermocline.data import Split

SIGNAL, CLUTTER, NOISE = 85, 130, 40  # gray levels, 255 in all: nothing saturates
SHIFT, FIELDS = 4, 2000  # pixels a template moves at most, and how many fields there are to lie over it
CHUNK = 10_000  # images drawn at a time
SETTLING = 200  # images that settle the batch statistics of a net


def draw(seed: int, train: int, test: int, *, classes: int, size: int, like: Split | None = None) -> tuple[Split, Split]:
    """Both splits of one data set, normalised as `like` is; the labels take turns."""
    generator = torch.Generator().manual_seed(seed)
    places = SHIFT + 1
    large = _smooth(classes, size + SHIFT, SIGNAL, generator)
    templates = large.unfold(2, size, 1).unfold(3, size, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 3, size, size)
    fields = _smooth(FIELDS, size, CLUTTER, generator)
    labels, images = torch.arange(train + test) % classes, torch.empty(train + test, 3, size, size, dtype=torch.uint8)
    for here, some in zip(images.split(CHUNK), labels.split(CHUNK)):
        shifted = some * places**2 + torch.randint(places**2, some.shape, generator=generator)
        here.copy_(templates[shifted])
        here += fields[torch.randint(FIELDS, some.shape, generator=generator)]
        here += torch.randint(NOISE, here.shape, dtype=torch.uint8, generator=generator)
    seen = images[:1000].float() / 255
    mean, std = (like.mean, like.std) if like else (seen.mean((0, 2, 3)), seen.std((0, 2, 3)))
    return (
        Split(images[:train], labels[:train], f"drawn:{seed}", classes, mean, std),
        Split(images[train:], labels[train:], f"drawn:{seed}", classes, mean, std),
    )


def _smooth(count: int, size: int, levels: int, generator: torch.Generator) -> Tensor:
    """Random colour fields from 0 up to `levels`, bumps some quarter of the image wide."""
    coarse = torch.randn(count, 3, 4, 4, generator=generator)
    fine = functional.interpolate(coarse, (size, size), mode="bicubic", align_corners=True)
    return ((fine.clamp(-2, 2) + 2) * (levels / 4)).to(torch.uint8)


def settled(net: spec.Net, split: Split) -> nn.Module:
    """An untrained net whose batch statistics are those of some images, laid out as `run` lays out nets on a GPU."""
    built = nets.build(net, classes=split.classes, size=split.size, channels=split.channels)
    settle(built, split.take(torch.arange(min(SETTLING, len(split)))).images)
    return built.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def settle(net: nn.Module, images: Tensor) -> None:
    """Give a net the batch statistics of some images, and put it in evaluation mode."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        net.train()(images)
    net.eval()
