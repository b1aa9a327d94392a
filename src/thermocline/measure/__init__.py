"""Any net and any data to rows, in as few passes as possible.

A measure is a cited function from `Seen` (what the passes left behind) to rows, and a line in `MEASURES` that says
what it needs. The engine joins the needs of the measures asked for and shows every image to the net once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import nn

from thermocline import spec
from thermocline.data import Split
from thermocline.measure.capture import capture
from thermocline.measure.catalogue import MEASURES
from thermocline.measure.passes import look
from thermocline.record import Row

__all__ = ["MEASURES", "capture", "measure", "select"]


def measure(
    net: nn.Module,
    train: Split,
    test: Split,
    ood: Mapping[str, tuple[Split, Split]],
    *,
    temperature: float,
    measures: Iterable[str] = ("all",),
    final: bool = True,
) -> list[Row]:
    """The rows of the measures asked for. With `final=False` only those cheap enough to follow training."""
    chosen = [MEASURES[name] for name in select(measures)]
    chosen = [one for one in chosen if final or one.throughout]
    needs = frozenset().union(*(one.needs for one in chosen))
    seen = look(net, train, test, ood if "ood" in needs else {}, needs, temperature=temperature, final=final)
    return [row for one in chosen for row in one.function(seen)]


def select(measures: Iterable[str]) -> list[str]:
    """The registered names behind a spec's `measures`, in the registry's order."""
    wanted = list(measures)
    for name in wanted:
        if name != "all" and name not in MEASURES:
            raise spec.unknown("measure", name, ["all", *MEASURES])
    return [name for name in MEASURES if "all" in wanted or name in wanted]
