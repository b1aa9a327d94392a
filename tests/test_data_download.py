"""A download is whole and checked, or not there; what was cut off is gone on with."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from thermocline import data
from thermocline.data import fetching
from thermocline.data.fetching import Remote
from thermocline.spec import Failure, InputError


class Server(ThreadingHTTPServer):
    """Serves `files`, cutting the connection after `cut` bytes of a body, with or without knowing byte ranges."""

    files: dict[str, bytes]
    cut: int | None = None
    ranges = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}
        self.asked: list[tuple[str, str | None]] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name, wanted = self.path[1:], self.headers["Range"]
        self.server.asked.append((name, wanted))
        if name not in self.server.files:
            self.send_error(404)
            return
        body = self.server.files[name]
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start:][: self.server.cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with Server() as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def archive(extra: dict[str, bytes] | None = None) -> bytes:
    """A small cifar-100-python.tar.gz."""
    images = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)
    content = pickle.dumps({"data": images, "fine_labels": [0, 1, 0, 1]})
    files = {"cifar-100-python/train": content, "cifar-100-python/test": content, **(extra or {})}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as packed:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            packed.addfile(member, io.BytesIO(body))
    return stream.getvalue()


def publish(server: Server, monkeypatch: pytest.MonkeyPatch, body: bytes, *, md5: str | None = None) -> None:
    server.files["set.tar.gz"] = body
    remote = Remote(server.url("set.tar.gz"), md5 or hashlib.md5(body).hexdigest(), "cifar-100-python")
    monkeypatch.setitem(fetching.REMOTE, "cifar100", (remote,))


def test_a_set_is_fetched_unpacked_and_read_once(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    publish(server, monkeypatch, archive())
    root = tmp_path / "new" / "place"
    data.download("cifar100", root)
    assert data.load("cifar100", data_dir=root)[0].labels.tolist() == [0, 1, 0, 1]
    assert sorted(path.name for path in root.iterdir()) == ["cifar-100-python", "set.tar.gz"]
    data.download("cifar100", root)
    assert server.asked == [("set.tar.gz", None)]


def test_files_are_fetched_as_they_are(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    remotes = []
    for name in ("train_32x32.mat", "test_32x32.mat"):
        server.files[name] = name.encode() * 1000
        remotes.append(Remote(server.url(name), hashlib.md5(server.files[name]).hexdigest()))
    monkeypatch.setitem(fetching.REMOTE, "svhn", tuple(remotes))
    data.download("svhn", tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == server.files
    data.check("svhn", data_dir=tmp_path)


def test_a_download_cut_off_is_gone_on_with(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    body = archive()
    publish(server, monkeypatch, body)
    server.cut = len(body) // 3
    for _ in range(2):
        with pytest.raises(Failure, match="broke off after .* the same again goes on from there"):
            data.download("cifar100", tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["set.tar.gz.part"]
        with pytest.raises(InputError, match="has no cifar100"):
            data.check("cifar100", data_dir=tmp_path)
    server.cut = None
    data.download("cifar100", tmp_path)
    assert [wanted for _, wanted in server.asked] == [None, f"bytes={len(body) // 3}-", f"bytes={2 * (len(body) // 3)}-"]
    assert len(data.load("cifar100", data_dir=tmp_path)[0]) == 4


def test_a_server_without_ranges_sends_it_all_again(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    publish(server, monkeypatch, archive())
    server.ranges = False
    (tmp_path / "set.tar.gz.part").write_bytes(archive()[:50])
    data.download("cifar100", tmp_path)
    assert (tmp_path / "set.tar.gz").read_bytes() == server.files["set.tar.gz"]


@pytest.mark.parametrize("left", [b"something else", b"x" * 100_000])
def test_a_bad_beginning_is_fetched_anew(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: bytes) -> None:
    publish(server, monkeypatch, archive())
    (tmp_path / "set.tar.gz.part").write_bytes(left)
    data.download("cifar100", tmp_path)
    assert server.asked == [("set.tar.gz", f"bytes={len(left)}-"), ("set.tar.gz", None)]
    assert (tmp_path / "set.tar.gz").read_bytes() == server.files["set.tar.gz"]


def test_a_whole_part_is_not_fetched_again(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    publish(server, monkeypatch, archive())
    (tmp_path / "set.tar.gz.part").write_bytes(server.files["set.tar.gz"])
    data.download("cifar100", tmp_path)
    assert not server.asked
    data.check("cifar100", data_dir=tmp_path)


def test_a_corrupted_download_leaves_nothing(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    body = archive()
    good = hashlib.md5(body).hexdigest()
    publish(server, monkeypatch, body[:-1] + bytes([body[-1] ^ 1]), md5=good)
    with pytest.raises(Failure, match=f"its MD5 is not {good}; it was deleted"):
        data.download("cifar100", tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_unpacking_that_was_cut_off_is_done_again(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    publish(server, monkeypatch, archive())
    data.download("cifar100", tmp_path)
    (tmp_path / "cifar-100-python" / "test").unlink()
    (tmp_path / "cifar-100-python.part").mkdir()
    (tmp_path / "cifar-100-python.part" / "test").write_bytes(b"half")
    data.download("cifar100", tmp_path)
    assert len(server.asked) == 1
    assert len(data.load("cifar100", data_dir=tmp_path)[1]) == 4
    assert not (tmp_path / "cifar-100-python.part").exists()


def test_an_archive_writes_nowhere_else(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    strays = {"../stray": b"1", "/stray": b"2", "cifar-100-python/../stray": b"3", "stray": b"4", "cifar-100-python/a/b": b"5"}
    publish(server, monkeypatch, archive(strays))
    data.download("cifar100", tmp_path / "here")
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"here/set.tar.gz", "here/cifar-100-python/train", "here/cifar-100-python/test"}


def test_what_fails_is_told_in_one_line(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown data set to download 'cifar11'; did you mean 'cifar10'"):
        data.download("cifar11", tmp_path)
    publish(server, monkeypatch, archive())
    server.files.clear()
    with pytest.raises(Failure, match="the server says 404"):
        data.download("cifar100", tmp_path)
    monkeypatch.setitem(fetching.REMOTE, "cifar10", (Remote("http://127.0.0.1:1/set", "0" * 32),))
    with pytest.raises(Failure, match="refused"):
        data.download("cifar10", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(Failure, match="could not be written"):
        data.download("cifar10", tmp_path / "file")


def test_what_can_be_downloaded_is_listed_and_published_in_torchvisions_layout() -> None:
    assert set(data.DOWNLOADS) == set(fetching.REMOTE) <= set(data.NAMES)
    for remotes in fetching.REMOTE.values():
        assert all(len(remote.md5) == 32 for remote in remotes)
