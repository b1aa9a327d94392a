"""Vision transformers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from thermocline.nets.tap import Tap, Tapped, image_tap
from thermocline.spec import InputError


class Size(NamedTuple):
    """A ViT's dimension and heads."""

    width: int
    heads: int


# [touvron2021deit, Tab. 1]; the base is that of [dosovitskiy2021vit, Tab. 1]. All have heads of 64 and 12 blocks.
VITS = {"vit_tiny": Size(192, 3), "vit_small": Size(384, 6), "vit_base": Size(768, 12)}


def patch_size(size: int) -> int:
    """Pixels a side of a patch: the fewest that tile the image with at most 8 x 8 patches, 14 x 14 above 64 pixels.

    These are the papers' 16 pixels at 224, and at 32 and 64 pixels as many patches as an 8 x 8 image has pixels.

    >>> [patch_size(size) for size in (8, 16, 28, 32, 64, 224)]
    [1, 2, 4, 4, 8, 16]
    """
    most = 8 if size <= 64 else 14
    patch = next(patch for patch in range(1, size + 1) if size % patch == 0 and size // patch <= most)
    if size // patch < 4:
        raise InputError(f"a ViT cannot cut {size} x {size} pixels into 4 x 4 to {most} x {most} patches: change data.size")
    return patch


class Encoder(nn.Module):
    """Attention and a GELU MLP, each after a LayerNorm and beside an identity [dosovitskiy2021vit, Eqs. 2-3]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        # Suffixes: B images, T tokens, H heads, E = D / H.
        q_BHTE, k_BHTE, v_BHTE = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed_BHTE = functional.scaled_dot_product_attention(q_BHTE, k_BHTE, v_BHTE)
        x = x + self.proj(mixed_BHTE.transpose(1, 2).flatten(2))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


class ViT(Tapped):
    """A vision transformer with a class token, which the head reads, and learned positions [dosovitskiy2021vit, Sec. 3.1].

    Weight layers are the patch embedding, four in each block, and the head. All but the patch embedding, which has none,
    are read at the class token. No dropout or stochastic depth: training keeps no random state. Initialised as DeiT: normal,
    std 0.02, cut at 2; the patch embedding keeps the size of what it reads.
    """

    def __init__(self, channels: int, classes: int, *, size: int, patch: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.token = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, 1 + (size // patch) ** 2, width))
        self.blocks = nn.ModuleList(Encoder(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)
        nn.init.kaiming_normal_(self.patches.weight, nonlinearity="linear")
        nn.init.zeros_(self.patches.bias)  # pyright: ignore[reportArgumentType]  it has one
        linear = [module for module in self.modules() if isinstance(module, nn.Linear)]
        for tensor in (self.token, self.positions, *(module.weight for module in linear)):
            nn.init.trunc_normal_(tensor, std=0.02, a=-0.04, b=0.04)
        for module in linear:
            nn.init.zeros_(module.bias)
        inner = (Tap(f"blocks.{i}.{name}", view="cls") for i in range(depth) for name in ("qkv", "proj", "fc1", "fc2"))
        self.taps = (image_tap("patches", width), *inner, Tap("head"))

    def forward(self, images: Float[Tensor, "b ch h w"]) -> Float[Tensor, "b c"]:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))
