"""Where pages and figures are written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from thermocline import record
from thermocline.reproduce import catalogue, figure, markdown
from thermocline.reproduce.sources import Shelf
from thermocline.reproduce.study import Study, study


def write(studies: Sequence[Study], shelf: Shelf) -> Path:
    """The page and figure of each study that has runs, or had, and the page of all experiments; returns its place."""
    results = shelf.results
    for one in studies:
        folder = results / one.experiment.name
        if not one.found.begun and not (folder / "README.md").exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        drawn = figure.svg(one)
        if drawn is not None:
            record.write(folder / "figure.svg", drawn.encode())
        else:
            (folder / "figure.svg").unlink(missing_ok=True)
        whole = Path(os.path.relpath(overview_place(results), folder)).as_posix()
        text = markdown.page(one, figure=drawn is not None, notes=notes(folder), whole=whole)
        record.write(folder / "README.md", text.encode())
    page = overview_place(results)
    known = {one.experiment.name: one for one in studies}
    everything = [known.get(name) or study(catalogue.load(name), shelf) for name in catalogue.names()]
    there = Path(os.path.relpath(results, page.parent)).as_posix()
    record.write(page, markdown.overview(everything, notes=notes(results), results=there).encode())
    return page


def notes(folder: Path) -> str:
    """What people wrote about the rows of a folder, if anything."""
    file = folder / "notes.md"
    return file.read_text(encoding="utf-8") if file.exists() else ""


def overview_place(results: Path) -> Path:
    """docs/reproduction.md beside the results, or where there are no docs, a file among them."""
    docs = results.absolute().parent / "docs"
    results.mkdir(parents=True, exist_ok=True)
    return results.parent / "docs" / "reproduction.md" if docs.is_dir() else results / "reproduction.md"
