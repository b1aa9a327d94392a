"""Any net and any data to rows, in as few passes as possible.

A measure is a cited function from `Seen` (what the passes left behind) to rows, and a line in `MEASURES` that says
what it needs. The engine joins the needs of the measures asked for and shows every sample to the net once;
only gradients show it some 2,000 of them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from thermocline import nets, spec
from thermocline.measure import source
from thermocline.measure.capture import capture
from thermocline.measure.catalogue import MEASURES
from thermocline.measure.passes import look
from thermocline.measure.subject import Subject, evaluating, out_of_memory
from thermocline.nets import Tap
from thermocline.record import Row
from thermocline.team import ALONE, Team

__all__ = [
    "MEASURES", "Subject", "capture", "check_name", "check_sets", "evaluating", "measure", "out_of_memory", "select",
    "source",
]  # fmt: skip


def measure(
    net: nn.Module,
    train: Any,
    test: Any,
    ood: Mapping[str, Any],
    *,
    temperature: float,
    taps: Sequence[Tap] = (),
    measures: Iterable[str] = ("all",),
    follow: Iterable[str] = (),
    probes: tuple[str, ...] = ("ridge",),
    final: bool = True,
    logits: Callable[[Any], Tensor] = lambda output: output,
    progress: bool = False,
    team: Team = ALONE,
) -> list[Row]:
    """The rows of the measures asked for. With `final=False` only those cheap enough to follow training, and those in `follow`.

    Data is a Split, (inputs, labels) tensors, a Dataset or a DataLoader; `test` may be None, for measures of training data
    alone. `taps` default to those the net declares. Of a team each process looks at its share; the one that leads has the rows.
    """
    followed = {name for name in MEASURES if final or MEASURES[name].throughout} | set(select(follow))
    chosen = [MEASURES[name] for name in select(measures) if name in followed]
    pairs = check_sets(ood)
    needs = frozenset().union(*(one.needs for one in chosen))
    subject = Subject(net, tuple(taps) or nets.taps(net), temperature, logits, probes, progress, team)
    # The measures too read weights, and one that is computed may change by being read in training mode, as spectral norm's.
    with evaluating(net):
        seen = look(subject, train, test, pairs if "ood" in needs else {}, needs, final=final)
        return [row for one in chosen for row in one.function(seen)] if team.leads else []


def check_sets(ood: Any) -> dict[str, tuple[Any, Any]]:
    """Other data as pairs (train, test), of a test set alone (None, test); raise unless rows can have their names.

    >>> inputs, labels = np.zeros((3, 2)), np.arange(3)
    >>> sets = {"a": inputs, "b": (inputs, labels), "c": (inputs, [0, 1, 2]), "d": ((inputs, labels),) * 2}
    >>> [train is None for train, _ in check_sets(sets).values()]
    [True, True, True, False]
    """
    pairs = {}
    if not isinstance(ood, Mapping):
        raise spec.InputError(f"ood maps names to data, as ood={{'other': images}}; got a {type(ood).__name__}")
    for name, given in ood.items():
        check_name(name)
        whole = isinstance(given, (tuple, list))
        if given is None or isinstance(given, (str, int, float)) or (whole and len(given) != 2):
            kind = f"{type(given).__name__} of {len(given)}" if isinstance(given, (tuple, list)) else type(given).__name__
            raise spec.InputError(
                f"ood[{name!r}] must be a pair (train, test) of labelled data, or a test set alone: (inputs, labels), inputs, "
                f"a Dataset, a DataLoader or a Split; got a {kind}"
            )
        pairs[name] = (None, given) if not whole or _labels(given[1]) else (given[0], given[1])
    return pairs


def check_name(name: str) -> None:
    """Raise unless rows can tell other data of that name from what else they have.

    Their sets are NAME/train and NAME/test, beside the train and test of the net's own data; what is before the last slash says
    whose they are, which of "test" is itself.
    """
    if name in ("", "test"):
        raise spec.InputError(f"other data cannot be called {name!r}: choose a name that says what they are")


def _labels(second: Any) -> bool:
    """Whether the second of two is the labels of the first, not a test set."""
    if isinstance(second, (tuple, list)):
        return all(isinstance(label, (int, np.integer)) for label in second)
    return isinstance(second, (Tensor, np.ndarray)) and second.ndim == 1


def select(measures: Iterable[str]) -> list[str]:
    """The registered names behind a spec's `measures`, in the registry's order."""
    wanted = [measures] if isinstance(measures, str) else list(measures)
    for name in wanted:
        if name != "all" and name not in MEASURES:
            raise spec.unknown("measure", name, ["all", *MEASURES])
    return [name for name in MEASURES if "all" in wanted or name in wanted]
