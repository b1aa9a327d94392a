"""A model of the user's own, named as MODULE:CALLABLE: made, given its weights, and shown images as it expects them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thermocline import spec
from thermocline.spec import InputError

if TYPE_CHECKING:
    from thermocline.data import Split

Inputs = Annotated[
    str | None,
    typer.Option(
        help="How a MODULE:CALLABLE sees images: standardised (by the mean and std of the data it was trained on, as nets "
        "trained by thermocline do), unit (pixels in [0, 1]) or imagenet (by ImageNet's mean and std)."
    ),
]
Weights = Annotated[Path | None, typer.Option(help="Weights of a MODULE:CALLABLE, a .safetensors file.")]


def chosen_inputs(inputs: str | None, words: str) -> str:
    """How a model sees images, which only its user knows."""
    from thermocline.data import INPUTS

    if inputs is None:
        ways = "; ".join(f"{name}: {meaning}" for name, meaning in INPUTS.items())
        raise InputError(f"say with --inputs how {words} sees images. {ways}")
    if inputs not in INPUTS:
        raise spec.unknown("--inputs", inputs, INPUTS)
    return inputs


def images_for(
    way: str, data: str, ood: Iterable[str], *, device: Any, data_dir: str | None
) -> tuple[tuple[Split, Split, dict[str, tuple[Split | None, Split]]], str]:
    """Training, test and other images as a model sees them, and a line or more about how that is."""
    from thermocline import data as sets

    train, test = (split.seen(way) for split in sets.load(data, device=device, data_dir=data_dir))
    others = {name: sets.load_other(name, like=train, device=device, data_dir=data_dir) for name in ood}
    said = [f"images were shown as {way}: {sets.INPUTS[way]}"]
    said += [f"{name} has no labelled training images: detection only" for name, pair in others.items() if pair[0] is None]
    return (train, test, others), "\n".join(said)


def callable_of(words: str) -> Any:
    """What MODULE:CALLABLE names, looked for in the current folder too."""
    module, colon, name = words.partition(":")
    if not (colon and module and name):
        raise InputError(f"{words!r} is not MODULE:CALLABLE, e.g. mynets:resnet for resnet() in mynets.py")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise InputError(f"there is no module {error.name!r} here or among the installed ones") from None
    except AttributeError:
        names = [word for word in vars(importlib.import_module(module)) if not word.startswith("_")]
        raise spec.unknown(f"name in {module}", name, names) from None
    if not callable(found):
        raise InputError(f"{words} is a {type(found).__name__}, not something to call for a model")
    return found


def module_of(make: Any, words: str, weights: Path | None) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from torch import nn

    net = make()
    if not isinstance(net, nn.Module):
        raise InputError(f"{words}() gives a {type(net).__name__}, not a torch.nn.Module")
    if weights is not None:
        try:
            net.load_state_dict(load_file(weights))
        except (OSError, SafetensorError, RuntimeError) as error:
            raise InputError(f"{weights} does not load into {words}: {str(error).splitlines()[0]}") from None
    return net
