"""The command line as a user meets it, in a process of its own; what takes seconds to import is imported once for all."""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import forkserver
from pathlib import Path
from unittest import mock

from rich.console import Console, RenderableType

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["thermocline.cli", "thermocline.run", "thermocline.report", "thermocline.reproduce"])


def thermocline(*words: str, cwd: Path, code: int = 0) -> str:
    """Run it; return everything printed, after checking the exit code and that no traceback was shown."""
    with mock.patch.dict(os.environ, COLUMNS="160", NO_COLOR="1"):
        forkserver.ensure_running()  # the first time; commands have its environment
    with tempfile.NamedTemporaryFile("r") as printed:
        process = _SERVER.Process(target=_command, args=(words, os.fspath(cwd), printed.name))
        process.start()
        process.join()
        said = printed.read()
    assert process.exitcode == code, said
    assert "Traceback" not in said
    return said


def printed(shown: RenderableType, width: int = 200) -> str:
    """What a terminal of that width shows of something that rich can print."""
    console = Console(width=width, no_color=True)
    with console.capture() as text:
        console.print(shown)
    return text.get()


def _command(words: Sequence[str], cwd: str, printed: str) -> None:
    os.chdir(cwd)
    with open(printed, "w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1) for stream in (1, 2))
    sys.argv = ["thermocline", *words]
    from thermocline.cli import main

    main()
