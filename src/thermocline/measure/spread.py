"""Some samples of a stream that stand for all of it."""

from __future__ import annotations

import torch
from torch import Tensor

from thermocline.measure import source
from thermocline.team import Team


class Spread:
    """At most `limit` samples of a stream, of all its parts and classes, the same ones however it is cut into batches.

    Those whose places mix to the least numbers are kept (`source.mixed`): neither a file sorted by class, nor one whose
    classes take turns, nor one of unknown length spoils the choice.

    >>> some = Spread(limit=4)
    >>> for start in range(0, 100, 10):
    ...     some.add(start, torch.arange(start, start + 10))
    >>> some.values
    (tensor([ 0,  9, 17, 76]),)
    """

    def __init__(self, *, limit: int) -> None:
        self.limit, self.total = limit, 0
        self._bound: int | None = None  # what a place must mix to less than, once there were too many
        # Places stay on the CPU: to choose by what is on a device is to wait for it.
        self._places: list[Tensor] = []
        self._parts: list[tuple[Tensor, ...]] = []

    def add(self, start: int, *values: Tensor) -> None:
        """Take in samples `start`, `start + 1`, ... of the stream."""
        places = torch.arange(start, start + len(values[0]))
        self.total += len(places)
        chosen = places if self._bound is None else places[source.mixed(places) < self._bound]
        index = (chosen - start).to(values[0].device)
        self._places.append(chosen)
        self._parts.append(tuple(value[index] for value in values))
        if sum(map(len, self._places)) > 1.25 * self.limit:  # seldom: all that is kept is copied
            self._thin()

    def join(self, team: Team) -> None:
        """Take in what the other processes of a team kept of their parts of the stream."""
        self._thin()
        (places,), (values,) = self._places, self._parts
        self._places = [team.gather(places.to(values[0].device)).cpu()]
        self._parts = [tuple(team.gather(value) for value in values)]
        self.total = int(team.sum(torch.tensor([self.total], device=values[0].device)))
        self._thin()

    def _thin(self) -> None:
        """Put the parts together, in the order of the stream, without what is too many."""
        places, values = torch.cat(self._places), tuple(torch.cat(parts) for parts in zip(*self._parts))
        numbers, order = source.mixed(places).sort()
        if len(places) > self.limit:
            self._bound = int(numbers[self.limit])
        kept = order[: self.limit]
        kept = kept[places[kept].argsort()]
        if not torch.equal(kept, torch.arange(len(places))):
            places, values = places[kept], tuple(value[kept.to(value.device)] for value in values)
        self._places, self._parts = [places], [values]

    @property
    def thinned(self) -> dict[str, int]:
        """How many samples were kept, as a parameter of what is measured on them; nothing where all were."""
        return {"samples": self.limit} if self.total > self.limit else {}

    @property
    def values(self) -> tuple[Tensor, ...]:
        """What was kept, one tensor for each value given."""
        if len(self._places) > 1 or len(self._places[0]) > self.limit:
            self._thin()
        return self._parts[0]
