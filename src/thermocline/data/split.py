"""Images and labels, and the batches made of them on a device."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from thermocline.data import augmentation
from thermocline.spec import InputError, unknown

INPUTS = {
    "standardised": "by the mean and std of the data the model was trained on, as nets trained by thermocline see them",
    "unit": "pixels in [0, 1]",
    "imagenet": "pixels in [0, 1], less ImageNet's mean, by its std",
}
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # as every collection of models trained on it has them


class Batch(NamedTuple):
    """Some images, normalised, with their labels and where in the split they stand."""

    images: Float[Tensor, "b c h w"]
    labels: Int[Tensor, "b"]
    indices: Int[Tensor, "b"]


@dataclass(frozen=True, eq=False)
class Split:
    """Part of a data set as uint8 images, with the normalisation its networks were trained under.

    Images lie on the device that batches are made on, as labels do, or in main memory where it has no room for them.
    """

    images: UInt8[Tensor, "n c h w"]
    labels: Int[Tensor, "n"]
    name: str
    classes: int
    mean: Float[Tensor, "c"]
    std: Float[Tensor, "c"]
    names: tuple[str, ...] = ()  # of the classes, where they are known

    def __repr__(self) -> str:
        """What it is, not its pixels."""
        kind = f"{self.classes} classes" if self.labelled else "no labels"
        seen = f"{self.size} x {self.size} pixels, {'grey' if self.channels == 1 else 'RGB'}"
        return f"Split({self.name}: {len(self)} images, {seen}, {kind})"

    @property
    def labelled(self) -> bool:
        """Whether it has labels; where not, it has no classes and every label is -1."""
        return self.classes > 0

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def size(self) -> int:
        """Pixels a side."""
        return self.images.shape[-1]

    @property
    def channels(self) -> int:
        """1 for gray, 3 for RGB."""
        return self.images.shape[1]

    @property
    def device(self) -> torch.device:
        """Where batches are made."""
        return self.labels.device

    @property
    def resident(self) -> bool:
        """Whether the images are on that device too."""
        return self.images.device == self.device

    @property
    def guessing(self) -> float:
        """The share of samples that always naming the most frequent class gets right."""
        return float(self.labels.bincount().max()) / len(self)

    def take(
        self,
        indices: Int[Tensor, "b"],
        *,
        dtype: torch.dtype = torch.float32,
        augment: str = "none",
        draws: Int[Tensor, "b 3"] | None = None,
        images: UInt8[Tensor, "b c h w"] | None = None,
    ) -> Batch:
        """The samples at these indices, augmented as drawn, then normalised: (x / 255 - mean) / std.

        Their `images` may be given, where they have been brought to the device before.
        """
        indices = indices.to(self.device, torch.int64)
        if images is None:
            images = self.images[indices.to(self.images.device)].to(self.device)
        if augment != "none":
            if draws is None:
                raise InputError(f"augment={augment!r} needs draws, one row a sample: see data.draw")
            images = augmentation.augment(images, augment, draws=draws)
        return Batch(self._normalise(images, dtype), self.labels[indices], indices)

    def batches(self, size: int, *, dtype: torch.dtype = torch.float32) -> Iterator[Batch]:
        """All samples in order, `size` at a time; the last batch may be shorter."""
        if size < 1:
            raise InputError(f"a batch holds at least one image, got size={size}")
        for start in range(0, len(self), size):
            here = slice(start, min(start + size, len(self)))
            indices = torch.arange(here.start, here.stop, device=self.device)
            yield Batch(self._normalise(self.images[here].to(self.device), dtype), self.labels[here], indices)

    def seen(self, inputs: str) -> Split:
        """The same images for a model that sees its inputs in another way, one of `INPUTS`.

        >>> images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
        >>> split = Split(images, torch.tensor([0, 1]), "two", 2, torch.tensor([0.5]), torch.tensor([0.5]))
        >>> [split.seen(inputs).take(torch.arange(2)).images.flatten().tolist() for inputs in ("standardised", "unit")]
        [[-1.0, 1.0], [0.0, 1.0]]
        """
        if inputs not in INPUTS:
            raise unknown("way to see inputs", inputs, INPUTS)
        if inputs == "imagenet" and self.channels != 3:
            raise InputError(f"{self.name} is grey, but a model that sees images as ImageNet's has three channels")
        ways = {"unit": ((0.0,) * self.channels, (1.0,) * self.channels), "imagenet": _IMAGENET}
        if inputs not in ways:
            return self
        mean, std = (torch.tensor(values, device=self.device) for values in ways[inputs])
        return replace(self, mean=mean, std=std)

    def fingerprint(self) -> str:
        """Twelve hex digits of the SHA-256 of images and labels: whether this is the data that was there before."""
        digest = hashlib.sha256()
        for part in (*self.images.split(1024), self.labels):  # in pieces: there may be no memory for a second copy
            digest.update(part.cpu().contiguous().numpy().data)
        return digest.hexdigest()[:12]

    def to(self, device: str | torch.device) -> Split:
        """The same split with all of it on another device."""
        tensors = {name: getattr(self, name).to(device) for name in ("images", "labels", "mean", "std")}
        return replace(self, **tensors)

    def _normalise(self, images: Tensor, dtype: torch.dtype) -> Tensor:
        # In half precision the two steps would each round; the result is rounded once instead.
        work = torch.promote_types(dtype, torch.float32)
        mean, std = (v.to(work)[:, None, None] for v in (self.mean, self.std))
        return ((images.to(work) / 255 - mean) / std).to(dtype)
