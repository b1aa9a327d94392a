"""How temperature looks: one ordered scale of colour, dash and shape, in light and in dark. Standard library only.

Charts name colours as CSS variables (`var(--t0)`), so that one drawing serves light, dark and print; files on disk get
the light values written out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Cold to hot, rising in luminance as well as in hue, so that the order survives every kind of colour blindness.
_RAMP = {
    "light": ((31, 82, 184), (112, 66, 178), (176, 48, 140), (209, 62, 70), (214, 101, 10)),
    "dark": ((108, 164, 255), (170, 140, 255), (232, 121, 196), (255, 128, 116), (255, 172, 82)),
}
_DASHES = ([1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [12, 4], [1, 3])
_SHAPES = (
    ("circle", "M5,0A5,5,0,1,1,-5,0A5,5,0,1,1,5,0Z"),
    ("square", "M-4.4,-4.4H4.4V4.4H-4.4Z"),
    ("triangle-up", "M0,-5.4L5.4,4.4H-5.4Z"),
    ("diamond", "M0,-6L5,0L0,6L-5,0Z"),
    ("triangle-down", "M0,5.4L5.4,-4.4H-5.4Z"),
    ("cross", "M-5,-1.8H-1.8V-5H1.8V-1.8H5V1.8H1.8V5H-1.8V1.8H-5Z"),
)
INK = {
    "light": {"ink": "#1b1f24", "muted": "#5c6570", "line": "#c9ced6", "grid": "#e9ecf0", "paper": "#ffffff"},
    "dark": {"ink": "#e6e9ee", "muted": "#a0a9b5", "line": "#454d58", "grid": "#2b323b", "paper": "#171b21"},
}
PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
FILE_FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"


@dataclass(frozen=True)
class Temperatures:
    """Every temperature on the page, ascending: each keeps its look through all figures."""

    values: tuple[float, ...]

    def labels(self) -> list[str]:
        return [f"T = {value:g}" for value in self.values]

    def colour(self, temperature: float) -> str:
        return f"var(--t{self.values.index(temperature)})"

    def colours(self) -> list[str]:
        return [self.colour(value) for value in self.values]

    def dashes(self) -> list[list[int]]:
        return [_DASHES[i % len(_DASHES)] for i in range(len(self.values))]

    def shapes(self) -> list[str]:
        return [_SHAPES[i % len(_SHAPES)][0] for i in range(len(self.values))]

    def swatch(self, temperature: float) -> dict[str, str]:
        """The same look for the legend that is written in HTML."""
        i = self.values.index(temperature)
        dash = " ".join(map(str, _DASHES[i % len(_DASHES)]))
        return {"label": f"T = {temperature:g}", "colour": f"var(--t{i})", "dash": dash, "path": _SHAPES[i % len(_SHAPES)][1]}

    def variables(self, scheme: str) -> dict[str, str]:
        """CSS variables of a colour scheme, "light" or "dark"."""
        count = len(self.values)
        hues = {f"t{i}": _mix(_RAMP[scheme], i / (count - 1) if count > 1 else 0.0) for i in range(count)}
        return {**INK[scheme], **hues}

    def written_out(self, text: str) -> str:
        """Text with every CSS variable replaced by its light value."""
        known = self.variables("light")
        return re.sub(r"var\(--(\w+)\)", lambda match: known[match[1]], text)


def temperatures(values: Iterable[float]) -> Temperatures:
    return Temperatures(tuple(sorted(set(values))))


def config(*, font: str, legend: bool) -> dict[str, object]:
    """The Vega-Lite configuration of every chart."""
    text = {"labelFont": font, "titleFont": font, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 500}
    axis = {
        **text, "labelColor": "var(--muted)", "titleColor": "var(--muted)", "gridColor": "var(--grid)",
        "domainColor": "var(--line)", "tickColor": "var(--line)", "titlePadding": 8, "labelPadding": 4, "tickSize": 4,
    }  # fmt: skip
    return {
        "background": "transparent" if not legend else "var(--paper)",
        "font": font,
        "view": {"stroke": None},
        "axis": axis,
        "axisX": {"grid": False, "labelFlush": False},
        "axisY": {"domain": False, "ticks": False},
        "title": {
            "font": font, "fontSize": 13, "fontWeight": 600, "anchor": "start", "color": "var(--ink)", "offset": 10,
        },
        "legend": {
            **text, "disable": not legend, "labelColor": "var(--ink)", "titleColor": "var(--muted)", "orient": "bottom",
            "symbolSize": 90, "symbolStrokeWidth": 0, "labelLimit": 300,
        },
        "text": {"font": font, "fontSize": 11},
    }  # fmt: skip


def _mix(ramp: tuple[tuple[int, int, int], ...], at: float) -> str:
    """The colour a fraction of the way along a ramp.

    >>> _mix(((0, 0, 0), (255, 255, 255)), 1.0)
    '#ffffff'
    """
    place = at * (len(ramp) - 1)
    left = min(int(place), len(ramp) - 2)
    mixed = (round(a + (b - a) * (place - left)) for a, b in zip(ramp[left], ramp[left + 1]))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)
