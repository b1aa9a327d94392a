"""Random changes of training images, as batched tensor code: what is random is drawn first, and the rest can be replayed."""

from __future__ import annotations

import torch
from jaxtyping import Int, UInt8
from torch import Tensor
from torch.nn import functional

from thermocline.spec import unknown

_WAYS = ("none", "flip", "crop", "crop+flip")


def draw(how: str, count: int, *, size: tuple[int, int], generator: torch.Generator) -> Int[Tensor, "count 3"]:
    """What `augment` does to each of `count` images: the window's row and column, and whether it is mirrored.

    Drawn on the generator's device, so that a CPU generator augments alike everywhere.

    >>> draw("flip", 6, size=(8, 8), generator=torch.Generator().manual_seed(0))[:, 2]
    tensor([0, 1, 0, 0, 0, 0])
    """
    if how not in _WAYS:
        raise unknown("augmentation", how, _WAYS)
    highs = [2 * _margin(side) + 1 if how in ("crop", "crop+flip") else 1 for side in size]
    highs.append(2 if how in ("flip", "crop+flip") else 1)
    return torch.stack([torch.randint(high, (count,), generator=generator, device=generator.device) for high in highs], 1)


def augment(images: UInt8[Tensor, "b c h w"], how: str, *, draws: Int[Tensor, "b 3"]) -> UInt8[Tensor, "b c h w"]:
    """Images changed as drawn: flip mirrors some of them; crop pads by an eighth of the size and cuts a window.

    >>> image = torch.arange(3, dtype=torch.uint8).view(1, 1, 1, 3)
    >>> augment(image.expand(2, 1, 1, 3), "flip", draws=torch.tensor([[0, 0, 0], [0, 0, 1]])).flatten(1)
    tensor([[0, 1, 2],
            [2, 1, 0]], dtype=torch.uint8)
    """
    if how not in _WAYS:
        raise unknown("augmentation", how, _WAYS)
    if how in ("crop", "crop+flip"):
        images = _crop(images, draws)
    if how in ("flip", "crop+flip"):
        images = torch.where(draws[:, 2, None, None, None].bool(), images.flip(-1), images)
    return images


def _crop(images: Tensor, draws: Tensor) -> Tensor:
    b, c, h, w = images.shape
    padded = functional.pad(images, (_margin(w), _margin(w), _margin(h), _margin(h)))
    rows, columns = (draws[:, axis, None] + torch.arange(side, device=images.device) for axis, side in enumerate((h, w)))
    sample, channel = torch.arange(b, device=images.device), torch.arange(c, device=images.device)
    return padded[sample[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]


def _margin(side: int) -> int:
    return max(1, side // 8)
