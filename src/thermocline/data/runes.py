"""`runes`: an endless family of synthetic alphabets, drawn in batched torch.

A class is two to four strokes, each a quadratic Bezier curve; a sample jitters the control points, the pose, the
thickness and the pressure, and adds pixel noise. Every number is a hash of (alphabet seed, use, index, coordinate), so an
image depends on nothing but its alphabet, its split, its index and its class.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from thermocline.data.hashing import bell, scramble, uniform

SIZES = (16, 64)  # pixels a side: smallest, largest
STROKES, POINTS = 4, 24  # strokes a class at most, dots a stroke
_USES = {"alphabet": 0, "train": 1, "test": 2}
_POSE = 1 << 16  # first coordinate of the pose, past those of the control points
_NOISE = 1 << 17  # first coordinate of the pixel noise

JITTER, TURN, ZOOM, SLANT, SHIFT = 0.09, 0.10, 0.08, 0.10, 0.07  # standard deviations; the glyph spans [-1, 1]
RADIUS, RADIUS_JITTER = 0.10, 0.15
NOISE = 14.0  # gray levels


def alphabet(seed: int, classes: int) -> tuple[Float[Tensor, "c s 3 2"], Bool[Tensor, "c s"]]:
    """Control points of every stroke of every class, in [-1, 1], and which strokes exist."""
    coordinates = torch.arange(STROKES * 5 + 1)
    draws = uniform(scramble(seed, _USES["alphabet"], torch.arange(classes)[:, None], coordinates))
    count, draws = draws[:, -1], draws[:, :-1].reshape(classes, STROKES, 5)
    strokes, angle, radius = [], 4 * math.pi * draws[:, 0, 0], 0.45 + 0.5 * draws[:, 0, 1]
    for stroke in range(STROKES):
        fresh, reach, turn, far, bend = draws[:, stroke].unbind(1)
        # Half of the strokes go on from where the last one ended, as a pen does.
        lifted = fresh < 0.5
        angle = torch.where(lifted, 4 * math.pi * fresh, angle)
        radius = torch.where(lifted, 0.45 + 0.5 * reach, radius)
        start = _polar(angle, radius)
        angle, radius = angle + math.pi * (0.45 + 1.1 * turn), 0.45 + 0.5 * far
        end = _polar(angle, radius)
        across = (end - start).flip(1) * torch.tensor([1.0, -1.0], dtype=torch.float64)
        # The cube leaves most strokes nearly straight and bends a few strongly.
        middle = (start + end) / 2 + across * (2 * bend[:, None] - 1) ** 3
        strokes.append(torch.stack([start, middle, end], 1))
    return torch.stack(strokes, 1), torch.arange(STROKES) < 2 + (3 * count[:, None]).floor()


def _polar(angle: Tensor, radius: Tensor) -> Tensor:
    return radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)


def labels(classes: int, count: int) -> Int[Tensor, "n"]:
    """Sample i is of class i mod classes.

    >>> labels(3, 7)
    tensor([0, 1, 2, 0, 1, 2, 0])
    """
    return torch.arange(count) % classes


def render(
    indices: Int[Tensor, "n"],
    *,
    seed: int,
    split: str,
    classes: int,
    size: int,
    device: str | torch.device = "cpu",
) -> UInt8[Tensor, "n 1 s s"]:
    """The images at these indices of a split ("train" or "test") of alphabet `seed`."""
    control, exists = alphabet(seed, classes)
    images = torch.empty((len(indices), 1, size, size), dtype=torch.uint8, device=device)
    chunk = max(1, (1 << 21) // (STROKES * POINTS * size * size))
    for start in range(0, len(indices), chunk):
        some = indices[start : start + chunk]
        dots, radius, ink = _pose(control[some % classes], exists[some % classes], some, seed, split)
        images[start : start + chunk, 0] = _draw(
            dots.to(device), radius.to(device), ink.to(device), some.to(device), (seed, _USES[split]), size
        )
    return images


def _pose(control: Tensor, exists: Tensor, indices: Tensor, seed: int, split: str) -> tuple[Tensor, Tensor, Tensor]:
    """Where the pen went in each sample: dots (b, strokes * points, 2), and its radius and ink (b, 1, 1)."""
    where = (seed, _USES[split], indices[:, None])
    wobble = bell(scramble(*where, torch.arange(STROKES * 6))).to(torch.float64).view_as(control)
    control = control + JITTER * wobble
    turn, zoom, slant, right, down, wide, pressure = bell(scramble(*where, _POSE + torch.arange(7))).to(torch.float64).unbind(1)
    along = torch.linspace(0, 1, POINTS, dtype=torch.float64)[:, None]
    start, middle, end = control[:, :, :, None, :].unbind(2)
    dots = start * (1 - along) ** 2 + middle * (2 * along * (1 - along)) + end * along**2
    # With t = tan(angle / 2), cos = (1 - t^2) / (1 + t^2) and sin = 2 t / (1 + t^2): no library function whose last
    # bit could depend on the machine.
    half = (TURN / 2 * turn)[:, None, None]
    cosine, sine = (1 - half**2) / (1 + half**2), 2 * half / (1 + half**2)
    scale = (0.88 * (1 + ZOOM * zoom))[:, None, None]
    x, y = dots.unbind(-1)
    x = x + SLANT * slant[:, None, None] * y
    x, y = scale * (cosine * x - sine * y), scale * (sine * x + cosine * y)
    dots = torch.stack([x + SHIFT * right[:, None, None], y + SHIFT * down[:, None, None]], -1)
    dots = torch.where(exists[:, :, None, None], dots, 1e3)  # off the page
    radius = RADIUS * (1 + RADIUS_JITTER * wide)
    ink = 215 + 15 * pressure
    return dots.flatten(1, 2).float(), radius[:, None, None].float(), ink[:, None, None].float()


def _draw(dots: Tensor, radius: Tensor, ink: Tensor, indices: Tensor, where: tuple[int, int], size: int) -> Tensor:
    """Pixels (b, size, size). Correctly rounded operations only, one kernel each, so that devices agree."""
    # Made on the CPU: CUDA divides by a number through its reciprocal, which rounds twice.
    centres = ((torch.arange(size) * 2 + 1).float() / size - 1).to(dots.device)
    across, down = ((dots[:, :, axis, None] - centres).square() for axis in (0, 1))
    nearest = (down[:, :, :, None] + across[:, :, None, :]).amin(1).sqrt()
    cover = ((radius - nearest) * (size / 2) + 0.5).clamp(0, 1)  # an edge one pixel wide
    pixels = torch.arange(size * size, device=dots.device)
    noise = bell(scramble(*where, indices[:, None], _NOISE + pixels)).view_as(cover)
    return (cover * ink + NOISE * noise).round().clamp(0, 255).to(torch.uint8)
