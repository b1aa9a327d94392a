"""What a benchmark is: one question, our way to the answer, and the way people write it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Answers = Mapping[str, NDArray[Any]]
Done = Answers | Callable[[], Answers]
Way = Callable[[Any], Done]


@dataclass(frozen=True)
class Case:
    """Two ways to one answer. `inputs(scale)` is deterministic and on the CPU, so that both sides see the same tensors.

    `devices` are those on which both sides can run, `cpu_scale` the largest scale that ends within minutes on a CPU,
    and `warm_up` the scale of the run before the timed one: it imports, and starts what libraries start on first use.
    A way that returns a function has done its work: the clock stops, and the function then finds the answers in it.
    `ready` and `theirs_ready` are what each side may do with its inputs before the clock starts, where a user does it once for
    hours of work.
    `needs` are packages that theirs imports and an install of ours may lack.
    """

    group: str
    description: str
    theirs_is: str
    inputs: Callable[[float], Any]
    ours: Way
    theirs: Way
    compare: Callable[[Answers, Answers], tuple[bool, str]]
    devices: tuple[str, ...] = ("cpu", "cuda")
    cpu_scale: float = math.inf
    warm_up: float = 0.01
    ready: Callable[[Any], Any] = lambda inputs: inputs
    theirs_ready: Callable[[Any], Any] = lambda inputs: inputs
    needs: tuple[str, ...] = ()


def answered(done: Done) -> Answers:
    """The answers of a way that has come to its end.

    >>> answered(lambda: {"rank": np.array(3)})
    {'rank': array(3)}
    """
    return done() if callable(done) else done


def sized(full: int, scale: float, *, least: int) -> int:
    """A published size, scaled down.

    >>> sized(10_000, 0.1, least=20), sized(10_000, 0.0, least=20)
    (1000, 20)
    """
    return max(round(full * scale), least)


def within(
    tolerances: Mapping[str, float], *, relative: Collection[str] = ()
) -> Callable[[Answers, Answers], tuple[bool, str]]:
    """Agreement of every named answer within its own tolerance; the text says how far apart they are.

    A tolerance is absolute, or for the names in `relative` a fraction of theirs.

    >>> within({"rank": 0})({"rank": np.array([3])}, {"rank": np.array([3])})
    (True, 'rank equal')
    """

    def compare(ours: Answers, theirs: Answers) -> tuple[bool, str]:
        gaps = {}
        for name in tolerances:
            gap = np.abs(np.subtract(ours[name], theirs[name], dtype=float))
            gaps[name] = float((gap / np.abs(theirs[name]) if name in relative else gap).max())
        words = [f"{name} within {gap:.1g}" if gap else f"{name} equal" for name, gap in gaps.items()]
        # Not `gap > tolerance`: a NaN must not pass.
        return all(gaps[name] <= tolerances[name] for name in tolerances), ", ".join(words)

    return compare
