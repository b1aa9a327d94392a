"""Nets by name from timm and torchvision, where they are installed, with their taps found."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thermocline.nets.tap import Tapped, find_taps
from thermocline.spec import InputError

LIBRARIES = {"timm": "timm", "torchvision": "torchvision.models"}


class Borrowed(Tapped):
    """Another library's net, and the taps found in it: every Linear and convolution that runs, a ResNet's shortcuts aside.

    Its dropout and stochastic depth are switched off: training keeps no random state.
    """

    def __init__(self, net: nn.Module, *, channels: int, size: int) -> None:
        super().__init__()
        self.net = net
        for module in net.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd) or type(module).__name__ in ("StochasticDepth", "DropPath"):
                for rate in ("p", "drop_prob"):
                    if rate in vars(module):
                        setattr(module, rate, 0.0)
        named = {name.rpartition(".")[2] for name, _ in net.named_parameters()}
        tokens = "cls" if named & {"cls_token", "class_token"} else "mean"
        # A ramp, since on a constant image two layers might agree on what they give.
        images = torch.linspace(-1, 1, 2 * channels * size * size).view(2, channels, size, size)
        training = net.training
        with torch.no_grad():
            found = find_taps(net, lambda: net.eval()(images), tokens=tokens)
        net.train(training)
        self.taps = tuple(
            replace(tap, path=f"net.{tap.path}")
            for tap in found
            if not (is_resnet(net) and "downsample" in tap.path.split("."))
        )

    def forward(self, images: Float[Tensor, "b ch h w"]) -> Float[Tensor, "b c"]:
        return self.net(images)


def is_resnet(net: nn.Module) -> bool:
    """Whether this is a ResNet of either library: both call it so, its stem conv1 and maxpool, its shortcuts downsample."""
    return type(net).__name__ == "ResNet"


def split(name: str) -> tuple[str, str] | None:
    """The library and the net that `timm:NAME` or `torchvision:NAME` names; None for a net of our own.

    >>> split("timm:resnet50d"), split("mlp")
    (('timm', 'resnet50d'), None)
    """
    library, _, inner = name.partition(":")
    return (library, inner) if library in LIBRARIES and ":" in name else None


def maker(name: str) -> Callable[..., nn.Module]:
    """What makes the net of that name: a function of `classes`, `size` and `channels`. Raises unless it is there."""
    library, inner = split(name) or ("", "")
    try:
        module: Any = importlib.import_module(LIBRARIES[library])
    except (ImportError, RuntimeError) as error:  # torchvision raises the latter beside a torch it was not built for
        reason = str(error).partition("\n")[0]
        advice = "pip install '.[vision]' in the clone"
        raise InputError(f"{name} needs {library}, which does not import here ({reason}): {advice}") from None
    names = module.list_models() if library == "timm" else module.list_models(module=module)
    if inner not in names:
        close = difflib.get_close_matches(inner, names, n=1, cutoff=0.5)
        hint = f"did you mean {f'{library}:{close[0]}'!r}?" if close else f"{LIBRARIES[library]}.list_models() lists them"
        raise InputError(f"unknown net {name!r}; {hint}")

    def make(*, classes: int, size: int, channels: int) -> nn.Module:
        if library == "timm":
            options = {"pretrained": False, "num_classes": classes, "in_chans": channels}
            return _sized(module.create_model, inner, "img_size", size, options)
        if channels != 3:
            raise InputError(f"torchvision's nets read 3 channels, and the images have {channels}; timm's read any number")
        return _sized(module.get_model, inner, "image_size", size, {"weights": None, "num_classes": classes})

    return make


def declare_torchvision_operators() -> None:
    """Let libraries import torchvision beside a torch of another build, where it raises for want of its own operators.

    For those that use none of these operators. Where torchvision is not installed, nothing is done.
    """
    try:
        importlib.import_module("torchvision")
    except ImportError:
        pass
    except RuntimeError:
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _sized(create: Callable[..., nn.Module], name: str, option: str, size: int, options: dict[str, Any]) -> nn.Module:
    """The net for images of that size: transformers must be told, and convolutional nets do not take the option."""
    try:
        return create(name, **{option: size}, **options)
    except TypeError as error:
        if option not in str(error):
            raise
        return create(name, **options)


def borrow(name: str, *, classes: int, size: int, channels: int, stem: Literal["auto", "small", "imagenet"]) -> Borrowed:
    """A net of another library, ready to train; its stem is changed only where `stem` is "small"."""
    make = maker(name)
    try:
        net = make(classes=classes, size=size, channels=channels)
        if stem != "auto":
            _check_stem(name, net)
        if stem == "small":
            _small_stem(net)
        return Borrowed(net, channels=channels, size=size)
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"{name} cannot be used on {channels} x {size} x {size} images: {reason}") from error


def _check_stem(name: str, net: nn.Module) -> None:
    convolution = getattr(net, "conv1", None)
    if not (is_resnet(net) and isinstance(convolution, nn.Conv2d) and convolution.stride == (2, 2)):
        raise InputError(f"net.stem does not apply to {name}: it is no ResNet with a 7 x 7 stem")


def _small_stem(net: nn.Module) -> None:
    """A 3 x 3 convolution that keeps the size, and no max-pool, as our own ResNets have for small images."""
    old = net.get_submodule("conv1")
    assert isinstance(old, nn.Conv2d)
    new = nn.Conv2d(old.in_channels, old.out_channels, 3, padding=1, bias=old.bias is not None)
    nn.init.kaiming_normal_(new.weight, mode="fan_out", nonlinearity="relu")
    net.set_submodule("conv1", new)
    net.set_submodule("maxpool", nn.Identity())
