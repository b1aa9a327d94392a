"""What a training step costs: our loop, and the loop as it is written in plain PyTorch."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from thermocline import data, nets, spec, train
from thermocline.bench.case import Answers, Case, sized
from thermocline.bench.full import NET, SMALL, SMALL_NET
from thermocline.bench.images import draw
from thermocline.data import Split

BEGINNING = 10  # steps before the clock starts: cuDNN and the compiler make up their minds, and the step is recorded


class Loop(NamedTuple):
    """A net to train, resident images, the recipe, how many steps of it to take, and training that has begun."""

    net: nn.Module
    split: Split
    recipe: spec.Train
    steps: int
    begun: Iterator[tuple[int, nn.Module]] | None = None


def _loop(scale: float, *, batch: int, steps: int, net: spec.Net = NET) -> Loop:
    """A net and 10,000 images, with the recipe people use on CIFAR."""
    small = scale < SMALL
    net, classes, size, count, batch = (_shrunk(net), 10, 16, 500, 32) if small else (net, 100, 32, 10_000, batch)
    split, _ = draw(0, count, 0, classes=classes, size=size)
    steps = sized(steps, scale, least=20)
    epochs = -(-(steps + BEGINNING) // (count // batch))
    recipe = spec.Train(
        epochs=epochs, batch=batch, lr=0.02, weight_decay=5e-4, augment="crop+flip", schedule="constant", patience=epochs + 1
    )
    built = nets.build(net, classes=classes, size=size).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return Loop(built, split, recipe, steps)


def _shrunk(net: spec.Net) -> spec.Net:
    """One of its kind that a CPU can train in a second."""
    if net.name.startswith("resnet"):
        return SMALL_NET
    smaller = {"net.width": 24, "net.depth": 2} if net.name.startswith("vit") else {"net.width": 8}
    return spec.replace(spec.Run(net=net), smaller).net


def _begin(loop: Loop, *, compiled: bool) -> Loop:
    """Our loop after its first steps. bfloat16 on a GPU, where it is what people use."""
    cuda = loop.split.device.type == "cuda"
    changes = {"train.precision": "bfloat16" if cuda else "float32", "train.compile": compiled and cuda}
    recipe = spec.replace(spec.Run(train=loop.recipe), changes).train
    net = copy.deepcopy(loop.net)
    steps = train.fit(net, loop.split, recipe, seed=0, at=[BEGINNING, BEGINNING + loop.steps])
    next(one for one in steps if one[0] == BEGINNING)
    return loop._replace(net=net, begun=steps)


def _ours(loop: Loop, *, compiled: bool) -> Callable[[], Answers]:
    loop = loop if loop.begun else _begin(loop, compiled=compiled)
    assert loop.begun is not None
    next(one for one in loop.begun if one[0] == BEGINNING + loop.steps)
    return lambda: _judged(loop.net, loop)


def _plain(loop: Loop) -> Callable[[], Answers]:
    """Eager, images and augmentation on the device too, and nothing that waits for it."""
    net, split, recipe = copy.deepcopy(loop.net), loop.split, loop.recipe
    device = split.device.type
    optimizer = torch.optim.SGD(net.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    generator = torch.Generator().manual_seed(0)
    net.train()
    steps = 0
    while steps < loop.steps:
        for chosen in torch.randperm(len(split), generator=generator).split(recipe.batch)[: len(split) // recipe.batch]:
            draws = data.draw(recipe.augment, len(chosen), size=(split.size, split.size), generator=generator)
            batch = split.take(chosen, augment=recipe.augment, draws=draws.to(split.device))
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = functional.cross_entropy(net(batch.images), batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            steps += 1
            if steps == loop.steps:
                break
    return lambda: _judged(net, loop)


def _judged(net: nn.Module, loop: Loop) -> Answers:
    """The loss of what was trained, on as many images as a forward pass takes."""
    batch = loop.split.take(torch.arange(min(1000, len(loop.split))))
    with torch.no_grad():
        loss = functional.cross_entropy(net.eval()(batch.images), batch.labels)
    return {"loss": loss.cpu().numpy(), "steps": np.array(loop.steps)}


def _alike(ours: Answers, theirs: Answers) -> tuple[bool, str]:
    """Two loops that differ in the order of images learn alike: how far apart two orders end was seen to be under a fifth."""
    gap = float(abs(ours["loss"] / theirs["loss"] - 1))
    words = f"after {ours['steps']} steps the loss is {float(ours['loss']):.3f}, theirs {float(theirs['loss']):.3f}"
    return gap < 0.25, words


def _case(batch: int, steps: int, *, net: spec.Net = NET, group: str = "train", compiled: bool = False) -> Case:
    inputs = functools.partial(_loop, batch=batch, steps=steps, net=net)
    what = f"{steps:,} training steps of {net.name}, batch {batch}, crop + flip, bfloat16 on a GPU"
    return Case(
        group, f"{what}, {'compiled' if compiled else 'as it comes'}",
        "a plain eager loop, its data and augmentation on the device too",
        inputs, functools.partial(_ours, compiled=compiled), _plain, _alike,
        devices=("cuda",) if compiled or group == "epoch" else ("cpu", "cuda"), cpu_scale=0.01, warm_up=SMALL,
        ready=functools.partial(_begin, compiled=compiled),
    )  # fmt: skip


EPOCH = 390  # steps of 128 in 50,000 images
OTHERS = ("mlp", "vgg19", "vgg19_bn", "resnet20", "resnet34", "resnet50", "vit_tiny", "vit_small", "vit_base")
CASES = {
    "train-128": _case(128, 1000),
    "train-1024": _case(1024, 200),
    "train-128-compiled": _case(128, 1000, compiled=True),
    "train-1024-compiled": _case(1024, 200, compiled=True),
    **{f"epoch-{name}": _case(128, EPOCH, net=spec.Net(name), group="epoch") for name in OTHERS},
}
