"""uint8 images as whole tensors: resized, in gray or colour, and their statistics."""

from __future__ import annotations

import math
from functools import partial

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as Pillow turns RGB to gray
_AT_ONCE = 1 << 18  # values converted together: what a core's cache holds as float64


def fit(images: UInt8[Tensor, "n c h w"], size: int | None, channels: int | None) -> UInt8[Tensor, "n d s s"]:
    """The images at this size (bilinear, antialiased) and in gray or RGB; None: as they are."""
    if size not in (None, images.shape[-1]):
        resize = partial(functional.interpolate, size=(size, size), mode="bilinear", antialias=True)
        images = torch.cat([rounded(resize(some.float())) for some in _pieces(images)])
    if channels == 3 and images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1).contiguous()
    if channels == 1 and images.shape[1] == 3:
        luma = torch.tensor(_LUMA, device=images.device)[:, None, None]
        images = torch.cat([rounded((some * luma).sum(1, keepdim=True)) for some in _pieces(images)])
    return images


def rounded(x: Tensor) -> Tensor:
    """The nearest bytes."""
    return x.round().clamp(0, 255).to(torch.uint8)


def statistics(images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "c"], Float[Tensor, "c"]]:
    """Mean and standard deviation of each channel over all pixels in [0, 1].

    >>> statistics(torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2))
    (tensor([0.5000]), tensor([0.5000]))
    """
    # Sums of integers are exact in float64, so the order of summation cannot matter, nor a difference of squares cancel.
    total = square = torch.zeros(images.shape[1], dtype=torch.float64, device=images.device)
    for some in _pieces(images):
        values = some.flatten(2).to(torch.float64)
        total, square = total + values.sum(2).sum(0), square + torch.linalg.vecdot(values, values).sum(0)
    pixels = images.numel() // images.shape[1]
    sums = [(int(first), int(second)) for first, second in zip(total.tolist(), square.tolist())]
    mean = [first / pixels / 255 for first, _ in sums]
    std = [math.sqrt(pixels * second - first * first) / pixels / 255 for first, second in sums]
    return torch.tensor(mean, device=images.device), torch.tensor(std, device=images.device)


def _pieces(images: Tensor) -> tuple[Tensor, ...]:
    return images.split(max(_AT_ONCE // images[0].numel(), 1))
