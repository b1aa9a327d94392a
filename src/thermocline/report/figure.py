"""What a figure is: a title, a sentence, panels, and where a panel is missing, how to get it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thermocline.report.marks import Panel


@dataclass(frozen=True)
class Figure:
    """What one figure shows, the measures behind it, and its panels; `missing` names what could not be drawn.

    `settings` are what its charts start with where that is not the page's own, `choices` what the reader may choose from, and
    `controls` a sentence on what can be moved on a page, which a file cannot.
    """

    key: str
    title: str
    sentence: str
    measures: tuple[str, ...]
    panels: list[Panel] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    columns: int = 3
    settings: Mapping[str, Any] = field(default_factory=dict)
    choices: Sequence[str] = ()
    controls: str = ""


def figure(key: str, title: str, sentence: str, measures: Sequence[str], panels: Sequence[Panel | str], **more: Any) -> Figure:
    """A figure of these panels, a string standing for one that could not be drawn."""
    drawn = [panel for panel in panels if isinstance(panel, Panel)]
    return Figure(key, title, sentence, tuple(measures), drawn, [name for name in panels if isinstance(name, str)], **more)
