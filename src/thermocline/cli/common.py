"""What the verbs share: consoles, common options and downloads."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import thermocline
from thermocline.spec import InputError

out, err = Console(highlight=False), Console(stderr=True, highlight=False)
LEADS = os.environ.get("RANK", "0") == "0"  # whether this process speaks and writes; torchrun starts several

_FLAGS = {  # options that are settings too
    "data": "data.name", "net": "net.name", "ood": "data.ood", "temperature": "train.temperature", "epochs": "train.epochs",
    "seed": "seed",
}  # fmt: skip
Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu or cuda.")]
DataDir = Annotated[str | None, typer.Option(help="Folder of local copies of named data sets (see: thermocline list data).")]
Download = Annotated[bool, typer.Option("--download", help="Fetch cifar10, cifar100 or svhn into --data-dir if missing.")]
Jobs = Annotated[int, typer.Option(help="Runs side by side; on one GPU large nets gain only under NVIDIA MPS.", min=1)]
Temperature = Annotated[float, typer.Option(help="Softmax temperature the model was trained at.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        out.print(f"thermocline {thermocline.__version__}")
        raise typer.Exit


def version(
    shown: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What there is beside the verbs."""


def say(what: str, where: Path) -> None:
    out.print(f"{what}: [bold]{escape(str(where))}[/]", soft_wrap=True)


def require_unused(folder: Path) -> None:
    """Raise where a scan cannot be kept in a folder, before there is one."""
    from thermocline import record

    if record.begun(folder):
        raise InputError(f"{folder} holds an earlier scan or run; choose another directory with --out")
    if file := next((place for place in (folder, *folder.parents) if place.is_file()), None):
        raise InputError(f"{file} is a file, and --out a folder: choose another")
    record.check_place(folder)
    record.require_idle(folder)
    require_writable(folder)


def require_writable(folder: Path) -> None:
    """Raise where nothing can be written in a folder, or in the one it is to be made in; leaves nothing behind."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise InputError(f"nothing can be written in {there} ({error.strerror}): choose another place with --out") from None


def fetch(names: set[str], data_dir: str | None, wanted: bool) -> None:
    """Download those named sets that can be and are not there, if that was asked for."""
    if not wanted:
        return
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError("--download is for one process: fetch the data first, then start torchrun without it")
    if data_dir is None:
        raise InputError("--download needs to know where to: give --data-dir DIR")
    from thermocline import data

    for name in sorted(names & data.DOWNLOADS.keys()):
        data.download(name, data_dir)


def given(context: typer.Context) -> set[str]:
    """The options that were written out, by the names of their parameters."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def require_known(words: list[str]) -> None:
    """Raise where `sweep` is given an option of `train` that is a setting: it may mean one value of it, or several."""
    for word in words if words[:1] == ["sweep"] else ():
        name = word.removeprefix("--").partition("=")[0]
        if word.startswith("--") and name in ("temperature", "epochs", "seed"):
            path = _FLAGS[name]
            raise InputError(f"sweep has no --{name}: write --over {path}=a,b,c to try several, --set {path}=a for one")


def require_once(context: typer.Context, set_: Iterable[str], over: Iterable[str] = ()) -> None:
    """Raise where a setting is given twice: only one of the two would count."""
    found = {_FLAGS[name]: f"--{name}" for name in _FLAGS if name in given(context)}
    for option, texts in (("--over", over), ("--set", set_)):
        for path in (text.partition("=")[0].strip() for text in texts):
            if path in found and found[path] != option:
                raise InputError(f"{found[path]} and {option} both name {path}; leave one of them out")
            if path in found and option == "--set":
                raise InputError(f"--set names {path} twice; leave one of them out")
            found[path] = option


def points(over: Iterable[str]) -> list[tuple[str, ...]]:
    """Every combination of the values that `--over` gives to settings, as assignments.

    >>> points(["train.temperature=1,10", "seed=0"])
    [('train.temperature=1', 'seed=0'), ('train.temperature=10', 'seed=0')]
    """
    axes: dict[str, list[str]] = {}
    for text in over:
        path, equals, values = text.partition("=")
        if not (equals and values):
            raise InputError(f"--over {text!r} names no values; write path=a,b,c, e.g. train.temperature=1,10,100")
        if path.strip() in axes:
            raise InputError(f"--over names {path.strip()} twice; write all of its values at once, {path.strip()}=a,b,c")
        axes[path.strip()] = [f"{path}={value}" for value in dict.fromkeys(values.split(","))]
    return list(itertools.product(*axes.values()))
