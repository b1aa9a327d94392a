"""A stream of features, checked and re-cut to batches, and the probes that learn from it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from thermocline.moments import Array, reals
from thermocline.probes.bank import Bank, Settings, precision

K = TypeVar("K", bound=Hashable)
_NOTHING = contextlib.nullcontext()


class Learner(Generic[K]):
    """The probes of every tap at every grid point, in banks of one dtype and device; the first batch says which."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.widths: dict[K, int] = {}
        self.banks: list[Bank[K]] = []

    def read(self, stream: Iterable[tuple[Mapping[K, Array], Array]], where: str, act: Callable[[int], None]) -> None:
        """One pass: load batch after batch, and `act` on each, given its rows.

        Labels are judged at the end, since to look at a value is to wait for the device.
        """
        for bank in self.banks:
            bank.begin()
        total, held, batch = 0, 0, self.settings.batch
        for given, names in stream:
            features, labels = {tap: reals(x, f"tap {tap!r}") for tap, x in given.items()}, _tensor(names)
            self._check(features, labels, where)
            start, rows = 0, len(labels)
            total += rows
            with _plain(next(iter(features.values())).device):
                while start < rows:
                    self.banks = self.banks or _banks(features, self.settings)
                    stop = min(start + batch - held, rows)
                    for bank in self.banks:
                        bank.load(features, labels, start, stop, held)
                    held, start = held + stop - start, stop
                    if held == batch:
                        act(held)
                        held = 0
        if not total:
            raise ValueError(f"{where} has no samples; every call must begin a new pass over the data")
        with _plain(self.banks[0].device):
            if held:
                act(held)
        self._check_labels(where)

    def step(self, rows: int) -> None:
        """One Adam step of every probe."""
        for bank in self.banks:
            bank.step(rows)

    def score(self, rows: int) -> None:
        """Count what every probe gets right."""
        for bank in self.banks:
            bank.score(rows)

    def check(self, where: str) -> None:
        """Raise unless all features so far were finite: one that was not is still in the optimiser's second moments."""
        self._require({tap: flag for bank in self.banks for tap, flag in bank.sound().items()}, where)

    def accuracy(self, where: str) -> dict[K, list[float]]:
        """The share of the samples scored that each probe got right, by tap and grid point."""
        self._require({tap: flag for bank in self.banks for tap, flag in bank.scorable().items()}, where)
        shares = {tap: share for bank in self.banks for tap, share in bank.accuracy().items()}
        return {tap: shares[tap] for tap in self.widths}

    def probe(self, tap: K, index: int) -> tuple[Tensor, Tensor]:
        """The weight and the bias of one tap at one grid point."""
        return next(bank for bank in self.banks if tap in bank.layout.columns).probe(tap, index)

    def _check(self, features: Mapping[K, Tensor], labels: Tensor, where: str) -> None:
        """What shapes can tell: every batch has the taps and widths of the first."""
        self.widths = self.widths or {tap: x.shape[-1] if x.ndim else 0 for tap, x in features.items()}
        widths, rows = self.widths, len(labels) if labels.ndim else 0
        if not widths:
            raise ValueError(f"a batch in {where} has no taps")
        if widths.keys() != features.keys():
            tap = next(iter(widths.keys() ^ features.keys()))
            raise ValueError(
                f"tap {tap!r} is {'in' if tap in features else 'not in'} a batch of {where}, unlike the first batch"
            )
        if labels.ndim != 1 or labels.is_floating_point():
            raise ValueError(f"labels must be a vector of class indices, got {labels.dtype} of shape {tuple(labels.shape)}")
        for tap, x in features.items():
            if x.shape != (rows, widths[tap]) or not widths[tap]:
                wanted = f"({rows} labels, width {widths[tap] or 'above 0'})"
                raise ValueError(f"tap {tap!r}: expected features of shape {wanted} in {where}, got {tuple(x.shape)}")

    def _check_labels(self, where: str) -> None:
        low, high = int(self.banks[0].low), int(self.banks[0].high)
        if low < 0 or high >= self.settings.classes:
            raise ValueError(f"labels must lie in 0..{self.settings.classes - 1}, got {low}..{high} in {where}")

    def _require(self, flags: Mapping[K, bool], where: str) -> None:
        for tap in self.widths:
            if not flags[tap]:
                raise ValueError(f"tap {tap!r}: features in {where} are NaN, infinite or too large to square in their dtype")


def _tensor(labels: Array) -> Tensor:
    if isinstance(labels, Tensor):
        return labels
    if np.ma.is_masked(labels):
        raise ValueError("every sample needs a label, and some are masked: leave those samples out")
    array = np.asarray(labels)  # copied, as it may run backwards, and files may have the other byte order
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))


def _banks(features: Mapping[K, Tensor], settings: Settings) -> list[Bank[K]]:
    alike: dict[tuple[torch.dtype, torch.device], dict[K, Tensor]] = {}
    for tap, x in features.items():
        alike.setdefault((precision(x), x.device), {})[tap] = x
    return [Bank(some, settings) for some in alike.values()]


@contextlib.contextmanager
def _plain(device: torch.device) -> Iterator[None]:
    """Full precision and no autograd, whatever mode a generator of features is paused in: modes leak through a yield."""
    casting = torch.is_autocast_enabled(device.type)  # to switch off what is off takes as long as all the rest
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False) if casting else _NOTHING:
        yield
