"""Fetching well-known sets from where they are published, only when asked: checked, resumable, never half there."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from thermocline.data import copies
from thermocline.data.source import located
from thermocline.spec import Failure, InputError, unknown

DOWNLOADS: dict[str, str] = {
    "cifar10": "170 MB from www.cs.toronto.edu",
    "cifar100": "169 MB from www.cs.toronto.edu",
    "svhn": "246 MB from ufldl.stanford.edu",
}
_BLOCK = 1 << 20
_SECONDS = 60  # of silence before the connection counts as broken


class Remote(NamedTuple):
    """A published file, its MD5 as torchvision lists it, and the folder to unpack from it, if it is an archive."""

    url: str
    md5: str
    folder: str = ""


_CIFAR, _SVHN = "https://www.cs.toronto.edu/~kriz", "http://ufldl.stanford.edu/housenumbers"
REMOTE: dict[str, tuple[Remote, ...]] = {
    "cifar10": (Remote(f"{_CIFAR}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", "cifar-10-batches-py"),),
    "cifar100": (Remote(f"{_CIFAR}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python"),),
    "svhn": (
        Remote(f"{_SVHN}/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        Remote(f"{_SVHN}/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
    ),
}


def download(name: str, data_dir: str | os.PathLike[str]) -> None:
    """Fetch a set into the data directory, unless it is there; what an earlier call left unfinished is gone on with."""
    if name not in REMOTE:
        raise unknown("data set to download", name, REMOTE)
    root = located(data_dir)
    if _there(name, root):
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        for remote in REMOTE[name]:
            _fetch(remote, root)
    except OSError as error:  # of the disk; those of the network are told where they happen
        raise Failure(f"{name} could not be written to {root}: {error.strerror or error}") from None


def _there(name: str, root: Path) -> bool:
    try:
        found = copies.find(name, root)
        if found is not None:
            found.check()
    except InputError:
        return False
    return found is not None


def _fetch(remote: Remote, root: Path) -> None:
    target = root / PurePosixPath(remote.url).name
    if not (target.is_file() and _md5(target) == remote.md5):
        part = target.with_name(f"{target.name}.part")
        _obtain(remote, part)
        part.replace(target)
    if remote.folder:
        _unpack(target, root / remote.folder)


def _obtain(remote: Remote, part: Path) -> None:
    """The whole file, checked, under a name that says it may not be."""

    def whole() -> bool:
        return part.is_file() and _md5(part) == remote.md5

    while not whole():
        begun = part.is_file()
        _receive(remote.url, part)
        if whole():
            return
        part.unlink(missing_ok=True)
        if not begun:  # else the fault may lie in what an earlier call left: once more, from the start
            raise Failure(f"{remote.url} is not the file that was published: its MD5 is not {remote.md5}; it was deleted")


def _receive(url: str, part: Path) -> None:
    """Append what is missing, or write all where the server cannot continue."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "thermocline", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_SECONDS) as response:
            done = have if response.status == 206 else 0
            length = response.headers.get("Content-Length")
            total = done + int(length) if length else None
            with part.open("ab" if done else "wb") as file, _progress() as shown:
                task = shown.add_task(part.stem, total=total, completed=done)
                while block := response.read(_BLOCK):
                    done += file.write(block)
                    shown.update(task, completed=done)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416:
            raise Failure(f"{url} could not be downloaded: the server says {error.code} {error.reason}") from None
        part.unlink()  # there is nothing after what we have, and that is not the file
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Failure(f"downloading {url} failed: {reason}; the same again goes on from there") from None
    else:
        if total is not None and done < total:
            raise Failure(f"downloading {url} broke off after {done} of {total} bytes; the same again goes on from there")


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _md5(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _unpack(archive: Path, folder: Path) -> None:
    """The plain files directly in the archive's folder of that name; each appears under its name when it is whole."""
    part = folder.with_name(f"{folder.name}.part")
    part.mkdir(exist_ok=True)
    folder.mkdir(exist_ok=True)
    try:
        with tarfile.open(archive) as packed:
            for member in packed:
                inside = PurePosixPath(member.name)
                if member.isfile() and inside.parent == PurePosixPath(folder.name):
                    with packed.extractfile(member) as source, (part / inside.name).open("wb") as copy:  # pyright: ignore[reportOptionalContextManager]
                        shutil.copyfileobj(source, copy)
                    (part / inside.name).replace(folder / inside.name)
    except tarfile.TarError as error:
        raise Failure(f"{archive} could not be unpacked: {error}") from None
    part.rmdir()
