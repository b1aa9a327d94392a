"""What a figure is: a title, a sentence, panels, and where a panel is missing, how to get it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thermocline.report.marks import Panel  # which needs what draws


@dataclass(frozen=True)
class Figure:
    """What one figure shows, the measures behind it, and its panels; a string stands for one that could not be drawn.

    `settings` are what its charts start with where that is not the page's own, `choices` what the reader may choose from, and
    `controls` a sentence on what can be moved on a page, which a file cannot.
    """

    key: str
    title: str
    sentence: str
    measures: Sequence[str]
    wanted: Sequence[Panel | str]
    columns: int = 3
    settings: Mapping[str, Any] = field(default_factory=dict)
    choices: Sequence[str] = ()
    controls: str = ""

    @property
    def panels(self) -> list[Panel]:
        return [one for one in self.wanted if not isinstance(one, str)]

    def charts(self, number: int) -> dict[str, Panel]:
        """Its panels, by the ids that their charts have on a page, as a figure of the case with this number."""
        return {f"chart-{number}-{self.key}-{i}": panel for i, panel in enumerate(self.panels)}

    @property
    def missing(self) -> list[str]:
        return [one for one in self.wanted if isinstance(one, str)]
