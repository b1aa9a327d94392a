"""Networks that declare their taps: one for every weight layer, the head last.

A net maps images to logits, and a temperature never enters it: temperature belongs to the loss.
"""

from __future__ import annotations

import torch

from thermocline import spec
from thermocline.nets import borrowed, heads, initial
from thermocline.nets.heads import Circle, set_logit_norm
from thermocline.nets.plain import MLP, VGG
from thermocline.nets.residual import RESNETS, ResNet
from thermocline.nets.tap import LAYERS, WIDEST, Tap, Tapped, Tokens, find_taps, named_taps, some_features, taps
from thermocline.nets.transformer import VITS, ViT, patch_size
from thermocline.spec import InputError

__all__ = [
    "BATCH_NORMED", "NAMES", "RESNETS", "WIDEST", "Tap", "Tapped", "Tokens", "build", "check", "find_taps", "named_taps",
    "set_logit_norm", "some_features", "taps",
]  # fmt: skip

SMALL = 64  # pixels up to which an image is small: a ResNet's stem then keeps its size, a VGG has few hidden units
VGGS = {"vgg19": False, "vgg19_bn": True}  # whether convolutions are followed by batch norm
BATCH_NORMED = frozenset((*RESNETS, "vgg19_bn"))
NAMES = {
    "mlp": "linear layers with ReLU; net.depth (8) and net.width (1024)",
    **{
        name: f"residual net, {shape.layers} weight layers; net.width: channels of the stem ({shape.width}); net.stem"
        for name, shape in RESNETS.items()
    },
    "vgg19": "16 convolutions and 3 linear layers; net.width: channels of the first (64)",
    "vgg19_bn": "the same, each convolution followed by batch norm",
    **{
        name: f"vision transformer, {size.heads} heads; net.depth: blocks (12); net.width: dimension ({size.width})"
        for name, size in VITS.items()
    },
    "timm:NAME": "a timm model, untrained, its layers found; net.stem=small for ResNets; pip install '.[vision]' in the clone",
    "torchvision:NAME": "a torchvision classifier, likewise; images of 3 channels",
}


def check(net: spec.Net) -> None:
    """Raise unless this net can be built."""
    if not isinstance(net, spec.Net):
        wanted = f"thermocline.spec.Net({net!r})" if isinstance(net, str) else "a thermocline.spec.Net"
        raise InputError(f"the net to build must be {wanted}, got a {type(net).__name__}")
    foreign = borrowed.split(net.name)
    if foreign:
        borrowed.maker(net.name)
    elif net.name not in NAMES:
        raise spec.unknown("net", net.name, NAMES)
    if net.depth is not None and net.name != "mlp" and net.name not in VITS:
        raise InputError(f"net.depth={net.depth} does not apply to {net.name}: its depth is in its name")
    if foreign and (net.width is not None or net.widen != 1):
        raise InputError(f"net.width and net.widen do not apply to {net.name}: its widths are in its name")
    if net.stem != "auto" and not foreign and net.name not in RESNETS:
        raise InputError(f"net.stem={net.stem} does not apply to {net.name}: only ResNets have a choice of stem")
    if net.name in VITS and net.width is not None and net.width % VITS[net.name].heads:
        raise InputError(f"net.width={net.width} must be a multiple of the {VITS[net.name].heads} heads of {net.name}")
    if (net.head == "bottleneck") != (net.head_rank is not None):
        raise InputError(f"net.head={net.head} {'needs' if net.head == 'bottleneck' else 'takes no'} net.head_rank")
    if net.logit_norm == "after" and net.head == "circle":
        raise InputError("net.logit_norm=after does not go with net.head=circle: it would undo the one scale that learns")
    if net.logit_norm == "after" and net.logit_norm_init is not None:
        raise InputError("net.logit_norm_init does not go with net.logit_norm=after, which undoes every scale")


def build(net: spec.Net, *, classes: int, size: int, channels: int = 3, seed: int = 0) -> Tapped:
    """The net of a spec, freshly initialised from the seed; the global random state is left as it was.

    `logit_norm_init` needs images: `set_logit_norm` sees to it.
    """
    check(net)
    for what, count in (("classes", classes), ("size", size), ("channels", channels)):
        if count < 1:
            raise InputError(f"{what} must be at least 1, got {count}")
    if net.logit_norm == "after" and classes < 3:
        raise InputError("net.logit_norm=after leaves two classes nothing to learn: normalised, two logits are 1 and -1")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # that of the CPU alone: `torch.manual_seed` would seed every GPU too
        built = _plain(net, classes=classes, size=size, channels=channels)
        heads.fit(built, net)
        if net.init != "own":
            initial.draw(built, net.init)
    for module in built.modules() if net.init_scale != 1 else ():
        if isinstance(module, (*LAYERS, Circle)):
            initial.scale(module, net.init_scale)
    if net.head_init_scale != 1:
        initial.scale(built.get_submodule(built.taps[-1].path), net.head_init_scale)
    return built


def _plain(net: spec.Net, *, classes: int, size: int, channels: int) -> Tapped:
    """The net as its name, depth, widths and stem have it, with a linear head."""
    if borrowed.split(net.name):
        return borrowed.borrow(net.name, classes=classes, size=size, channels=channels, stem=net.stem)
    if net.name == "mlp":
        return MLP(channels * size * size, classes, depth=net.depth or 8, width=_widened(net.width or 1024, net))
    if net.name in RESNETS:
        shape, small = RESNETS[net.name], net.stem == "small" or (net.stem == "auto" and size <= SMALL)
        return ResNet(channels, classes, shape=shape, width=_widened(net.width or shape.width, net), small=small)
    if net.name in VGGS:
        width = _widened(net.width or 64, net)
        hidden = width * (8 if size <= SMALL else 64)
        return VGG(channels, classes, size=size, width=width, hidden=hidden, normalised=VGGS[net.name])
    width, heads_ = VITS[net.name]
    return ViT(
        channels,
        classes,
        size=size,
        patch=patch_size(size),
        width=_widened(net.width or width, net, multiple=heads_),
        heads=heads_,
        depth=net.depth or 12,
    )


def _widened(width: int, net: spec.Net, *, multiple: int = 1) -> int:
    """A width times net.widen, rounded to a whole multiple.

    >>> _widened(192, spec.Net(widen=0.51), multiple=3)
    99
    """
    return multiple * max(round(width * net.widen / multiple), 1)
