"""What a benchmark is: one question, our way to the answer, and the way people write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Answers = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """Two ways to one answer. `inputs(scale)` is deterministic, so that both sides see the same tensors."""

    group: str
    description: str
    theirs_is: str
    inputs: Callable[[float], Any]
    ours: Callable[[Any], Answers]
    theirs: Callable[[Any], Answers]
    compare: Callable[[Answers, Answers], tuple[bool, str]]


def sized(full: int, scale: float, *, least: int) -> int:
    """A published size, scaled down.

    >>> sized(10_000, 0.1, least=20), sized(10_000, 0.0, least=20)
    (1000, 20)
    """
    return max(round(full * scale), least)


def within(tolerances: Mapping[str, float]) -> Callable[[Answers, Answers], tuple[bool, str]]:
    """Agreement of every named answer within its own absolute tolerance; the text says how far apart they are.

    >>> within({"rank": 0})({"rank": np.array([3])}, {"rank": np.array([3])})
    (True, 'rank equal')
    """

    def compare(ours: Answers, theirs: Answers) -> tuple[bool, str]:
        gaps = {name: float(np.abs(np.subtract(ours[name], theirs[name], dtype=float)).max()) for name in tolerances}
        words = [f"{name} within {gap:.1g}" if gap else f"{name} equal" for name, gap in gaps.items()]
        # Not `gap > tolerance`: a NaN must not pass.
        return all(gaps[name] <= tolerances[name] for name in tolerances), ", ".join(words)

    return compare
