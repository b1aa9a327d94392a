"""What a watch costs: a plain training loop, and the same loop under `Watch` as it comes."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from thermocline import nets
from thermocline.bench.case import Answers, Case
from thermocline.bench.full import NET, SMALL, SMALL_NET
from thermocline.bench.images import draw
from thermocline.scanner import Watch

EVERY = 200  # the steps between two measurements of a watch as it comes; loops are multiples of it, so none is cut short
LR = 0.02


class Loop(NamedTuple):
    """A net to train, resident images, and which of them each step takes."""

    net: nn.Module
    images: Tensor
    labels: Tensor
    order: Tensor


def _loop(scale: float) -> Loop:
    """A ResNet-18 and 1,000 batches of 128 out of 10,000 images."""
    small = scale < SMALL
    net, classes, size, count, batch = (SMALL_NET, 10, 16, 500, 32) if small else (NET, 100, 32, 10_000, 128)
    steps = max(round(1000 * scale / EVERY), 1) * EVERY
    split, _ = draw(0, count, 0, classes=classes, size=size)
    images, labels, _ = split.take(torch.arange(count))
    order = torch.randint(count, (steps, batch), generator=torch.Generator().manual_seed(0))
    built = nets.build(net, classes=classes, size=size).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return Loop(built, images, labels, order)


def _plain(loop: Loop) -> Answers:
    """The loop: momentum SGD, cross-entropy, eager, in bfloat16 on a GPU; it never waits for the device."""
    return _train(loop, copy.deepcopy(loop.net), None)


def _watched(loop: Loop) -> Answers:
    net = copy.deepcopy(loop.net)
    return _train(loop, net, Watch(net, (loop.images, loop.labels)))


def _train(loop: Loop, net: nn.Module, watch: Watch | None) -> Answers:
    device = loop.images.device.type
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)
    net.train()
    losses, seen, share = [], 0, 0.0
    for step, chosen in enumerate(loop.order):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = functional.cross_entropy(net(loop.images[chosen]), loop.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if watch is not None:
            seen += watch.step(step) is not None
    found, share = torch.stack(losses).cpu().numpy(), watch.overhead if watch is not None else share
    return {"loss": found, "measurements": np.array(seen), "share": np.array(share), "exact": np.array(device == "cpu")}


def _undisturbed(ours: Answers, theirs: Answers) -> tuple[bool, str]:
    """Watching changes no bit of the training where training twice gives the same bits, which is on a CPU.

    On a GPU sums are made in any order, and their rounding grows as training does: the first steps, right after the first
    measurement, still agree closely, the last ones as two runs of the same loop do.
    """
    a, b = ours["loss"], theirs["loss"]
    what = f"watched at {ours['measurements']} of {len(a)} steps, {ours['share']:.1%} of the time by its own account"
    if np.array_equal(a, b):
        return True, f"losses equal, {what}"
    first = float(np.abs(a[:5] / b[:5] - 1).max())
    last = float(abs(a[-EVERY // 2 :].mean() / b[-EVERY // 2 :].mean() - 1))
    agree = not theirs["exact"] and first <= 0.01 and last <= 0.1
    return agree, f"first losses within {first:.1g}, last {EVERY // 2} on average within {last:.1g} of theirs, {what}"


CASES = {
    "watch": Case(
        "full", "1,000 training steps of a ResNet-18, batch 128, under a Watch as it comes: a ratio of 0.97 is 3 % overhead",
        "the same loop without it", _loop, _watched, _plain, _undisturbed, cpu_scale=0.01, warm_up=SMALL,
    ),
}  # fmt: skip
