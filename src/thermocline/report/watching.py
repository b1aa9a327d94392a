"""A page that follows runs while they train: served to this machine alone, drawn anew when rows arrive. Standard library."""

from __future__ import annotations

import contextlib
import hashlib
import html
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from thermocline import record
from thermocline.report import page
from thermocline.spec import InputError

HOST = "127.0.0.1"
_FILES = ("spec.json", "rows.log", "rows.parquet")


class Watcher:
    """The page of some runs, drawn when it is asked for and their files have changed."""

    def __init__(self, paths: record.Paths) -> None:
        self.paths = [paths] if isinstance(paths, (str, Path)) else list(paths)  # pyright: ignore[reportArgumentType]
        self._lock = threading.Lock()
        self._version, self._page = "", b""

    def version(self) -> str:
        """What changes when there is more to show: sizes and times of the files that rows are in."""
        state = []
        for directory in record.find_runs(self.paths):
            for file in (directory / name for name in _FILES):
                with contextlib.suppress(FileNotFoundError):  # not there yet, or no longer
                    found = file.stat()
                    state.append((str(file), found.st_size, found.st_mtime_ns))
        return hashlib.sha256(repr(state).encode()).hexdigest()[:16]

    def page(self) -> bytes:
        """The page as the runs are now."""
        with self._lock:
            if (version := self.version()) != self._version or not self._page:
                self._page = self._draw(version)
                self._version = version
            return self._page

    def _draw(self, version: str) -> bytes:
        try:
            return page.html(page.gather(self.paths), live=version).encode()
        except (InputError, FileNotFoundError) as error:  # nothing to show yet, or gone meanwhile: say so, and look again
            words = html.escape(str(error))
            head = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="2"><title>thermocline</title>'
            return f"{head}<p>Waiting for rows: {words}</p>".encode()


def server(watcher: Watcher, port: int = 0) -> ThreadingHTTPServer:
    """A server of two addresses, the page and its version; nothing else can be asked of it, and no file is named by a URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page elsewhere whose name was made to point here comes with its own name.
            if self.headers.get("Host", "").rsplit(":", 1)[0] not in (HOST, "localhost"):
                self._answer(403, b"this page is for this machine alone", "text/plain")
            elif self.path == "/":
                self._answer(200, watcher.page(), "text/html")
            elif self.path == "/version":
                self._answer(200, watcher.version().encode(), "text/plain")
            else:
                self._answer(404, b"only the page is here", "text/plain")

        def _answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            for name, value in (
                ("Content-Type", f"{kind}; charset=utf-8"),
                ("Content-Length", str(len(body))),
                ("Cache-Control", "no-store"),
                ("X-Content-Type-Options", "nosniff"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """The terminal is for the address alone."""

    try:
        made = ThreadingHTTPServer((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        raise InputError(f"cannot serve on {HOST}:{port} ({error}); choose another --port") from None
    made.daemon_threads = True
    return made
