"""Random changes of training images, as batched tensor code."""

from __future__ import annotations

import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn import functional

from thermocline.spec import unknown

_WAYS = ("none", "flip", "crop", "crop+flip")


def augment(images: UInt8[Tensor, "b c h w"], how: str, *, generator: torch.Generator) -> UInt8[Tensor, "b c h w"]:
    """Every image changed at random: flip mirrors half of them; crop pads by an eighth of the size and cuts a window.

    Random numbers come from the generator alone and are drawn on its device, so a CPU generator augments alike everywhere.

    >>> image = torch.arange(3, dtype=torch.uint8).view(1, 1, 1, 3)
    >>> augment(image.expand(9, 1, 1, 3), "flip", generator=torch.Generator().manual_seed(0))[:, 0, 0].unique(dim=0)
    tensor([[0, 1, 2],
            [2, 1, 0]], dtype=torch.uint8)
    """
    if how not in _WAYS:
        raise unknown("augmentation", how, _WAYS)
    if how in ("crop", "crop+flip"):
        images = _crop(images, generator)
    if how in ("flip", "crop+flip"):
        images = _flip(images, generator)
    return images


def _crop(images: Tensor, generator: torch.Generator) -> Tensor:
    b, c, h, w = images.shape
    margins = [max(1, side // 8) for side in (h, w)]
    padded = functional.pad(images, (margins[1], margins[1], margins[0], margins[0]))
    rows, columns = (
        _draw(2 * margin + 1, b, images.device, generator)[:, None] + torch.arange(side, device=images.device)
        for margin, side in zip(margins, (h, w))
    )
    sample, channel = torch.arange(b, device=images.device), torch.arange(c, device=images.device)
    return padded[sample[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]


def _flip(images: Tensor, generator: torch.Generator) -> Tensor:
    mirrored = _draw(2, len(images), images.device, generator).bool()
    return torch.where(mirrored[:, None, None, None], images.flip(-1), images)


def _draw(high: int, count: int, device: torch.device, generator: torch.Generator) -> Tensor:
    return torch.randint(high, (count,), generator=generator, device=generator.device).to(device)
