"""A model of the user's own, named as MODULE:CALLABLE: made, given its weights, and shown images as it expects them."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thermocline import spec
from thermocline.cli.progress import read_images
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
Size = Annotated[
    int | None,
    typer.Option(
        help="Pixels a side at which a MODULE:CALLABLE sees images (default: the data set's own; of a folder, the commonest "
        "shorter side of its images, at most 224).",
    ),
]
Weights = Annotated[
    Path | None, typer.Option(help="Weights of a MODULE:CALLABLE: a .safetensors file, or a state_dict that torch.save wrote.")
]


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
    way: str, data: str, ood: Iterable[str], *, size: int | None, device: Any, data_dir: str | None
) -> tuple[tuple[Split, Split, dict[str, tuple[Split | None, Split]]], str]:
    """Training, test and other images as a model sees them, and a line or more about how that is."""
    from thermocline import data as sets

    ood = tuple(ood)
    sets.require_other(data, ood)
    for name in ood:  # before the training images, which may take long
        sets.check_other(name, data_dir=data_dir)
    with whole_images():
        own = read_images(data, sets.reading(spec.Data(data, size=size), device=device, data_dir=data_dir))
    train, test = (split.seen(way) for split in own)
    others = {name: read_images(name, sets.reading_other(name, like=train, device=device, data_dir=data_dir)) for name in ood}
    said = [f"images were shown as {way}: {sets.INPUTS[way]}; {sides(train)}"]
    said += [f"{name} has no labelled training images: detection only" for name, pair in others.items() if pair[0] is None]
    return (train, test, others), "\n".join(said)


def sides(images: Split) -> str:
    """How a model saw its images, whose files may be of any size."""
    return f"{images.size} x {images.size} pixels, {'grey' if images.channels == 1 else 'RGB'}"


@contextlib.contextmanager
def whole_images() -> Iterator[None]:
    """Refuse to cut images of a model's own data, all of one shape that is not square: it may have seen them whole."""
    from thermocline.data import AllCut

    with warnings.catch_warnings():
        warnings.simplefilter("error", AllCut)
        try:
            yield
        except AllCut as cut:
            more = "which a model trained on them whole never saw: in Python, thermocline.scan takes images of any shape"
            raise InputError(f"{cut}, {more}; if it was trained on the middle, cut the files themselves") from None


def callable_of(words: str) -> Any:
    """What MODULE:CALLABLE names, looked for in the current folder too."""
    from torch import nn

    module, colon, name = words.partition(":")
    if not (colon and module and name):
        raise InputError(f"{words!r} is not MODULE:CALLABLE, e.g. mynets:resnet for resnet() in mynets.py")
    if module.endswith(".py") or "/" in module:
        path = Path(module.removesuffix(".py"))
        below = not path.is_absolute() and ".." not in path.parts
        meant, where = (".".join(path.parts), "") if below else (path.name, ", in its folder")
        raise InputError(f"{words!r} names a file: write {meant}:{name}, as Python imports it{where}")
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except Exception as error:  # the user's code raises anything
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise InputError(f"there is no module {error.name!r} here or among the installed ones") from None
        raise InputError(f"importing {module} fails{_at(error)}: {_told(error)}") from None
    if not hasattr(found, name):
        raise spec.unknown(f"name in {module}", name, [word for word in vars(found) if not word.startswith("_")])
    make = getattr(found, name)
    if not callable(make) or isinstance(make, nn.Module):
        raise InputError(f"{words} is a {type(make).__name__}: name a class or a function that gives the model when called")
    return make


def module_of(make: Any, words: str, weights: Path | None) -> Any:
    """The model that a callable makes, with weights from a file if one is named."""
    from torch import nn

    try:
        net = make()
    except Exception as error:  # as above
        more = ": it is called without arguments; name a function that fills them in" if _lacks_arguments(error) else ""
        raise InputError(f"{words}() fails{_at(error)}: {_told(error)}{more}") from None
    if not isinstance(net, nn.Module):
        raise InputError(f"{words}() gives a {type(net).__name__}, not a torch.nn.Module")
    if weights is not None:
        _fill(net, words, weights)
    return net


def try_out(net: Any, words: str, images: Split) -> None:
    """Show a model its first few images, and say in one line what it does not like about them."""
    import torch

    from thermocline.measure import evaluating, source, subject

    arguments, _ = next(source.samples(images, net, size=8))
    with evaluating(net), torch.no_grad():
        try:
            output = net(arguments[0])
        except Exception as error:  # as above
            what = f"images of {images.name}, {tuple(arguments[0].shape)} {str(arguments[0].dtype).removeprefix('torch.')}"
            more = "; these images are grey: if it takes RGB, give them three channels" if images.channels == 1 else ""
            raise InputError(f"{words} does not take {what}{_at(error)}: {_told(error)}{more}") from None
    if wrong := subject.no_logits(subject.logits_in(output)):
        raise InputError(f"{words} returns {wrong}: let {words} give a module that returns the logits alone")


def _fill(net: Any, words: str, file: Path) -> None:
    """Give a model the weights of a file, every one of them."""
    found, own = _read(file), net.state_dict()
    for prefix in ("module.", "_orig_mod.", "model.", "net."):  # of a model trained in parallel, compiled, or held by another
        if not found.keys() <= own.keys() and all(name.startswith(prefix) for name in found):
            found = {name.removeprefix(prefix): tensor for name, tensor in found.items()}
    wrong = {
        "it lacks": [name for name in own if name not in found],
        "it has too many": [name for name in found if name not in own],
        "of another shape": [name for name in own if name in found and found[name].shape != own[name].shape],
    }
    if any(wrong.values()):
        told = "; ".join(f"{what}: {_some(names)}" for what, names in wrong.items() if names)
        raise InputError(f"{file} does not fit {words}. {told}")
    net.load_state_dict(found)


def _read(file: Path) -> dict[str, Any]:
    """The tensors of a .safetensors file, or of a checkpoint of torch's, which is read without executing code."""
    import torch
    from safetensors.torch import load_file

    how = "save the weights alone, with torch.save(model.state_dict(), FILE) or safetensors.torch.save_model(model, FILE)"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, of old or foreign pickles: they load, or the line below is said
            found = load_file(file) if file.suffix == ".safetensors" else torch.load(file, "cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"there is no file {file}") from None
    except MemoryError:
        raise
    except Exception:  # a damaged file raises anything
        raise InputError(f"{file} does not load as weights: it is damaged, or holds more than tensors; {how}") from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not found or not all(isinstance(one, torch.Tensor) for one in found.values()):
        has = _some([str(key) for key in found]) if isinstance(found, Mapping) else f"a {type(found).__name__}"
        raise InputError(f"{file} holds no weights, but {has or 'nothing'}; {how}")
    return dict(found)


def _some(names: list[str]) -> str:
    """The first few of a list.

    >>> _some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _told(error: Exception) -> str:
    """An error as its last line of a traceback has it."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _at(error: BaseException) -> str:
    """Where in the user's own files an error arose, as far as that is known."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)[1:] if "importlib" not in frame.filename]
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(Path.cwd())]
    return f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def _lacks_arguments(error: Exception) -> bool:
    return isinstance(error, TypeError) and error.__traceback__ is not None and error.__traceback__.tb_next is None
