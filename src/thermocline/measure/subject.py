"""The net under study, and how it is run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import torch
from rich.progress import track
from torch import Tensor, nn
from torch.utils.data import DataLoader

from thermocline.measure import source
from thermocline.nets import Tap
from thermocline.spec import InputError
from thermocline.team import ALONE, Team

BATCH = 1000  # samples a forward pass while measuring


class Subject(NamedTuple):
    """The net to look at: where to tap it, at which temperature its probabilities are meant, how to read its output."""

    net: nn.Module
    taps: tuple[Tap, ...]
    temperature: float
    logits: Callable[[Any], Tensor]
    probes: tuple[str, ...] = ("ridge",)
    progress: bool = False
    team: Team = ALONE

    def show(self, split: str, data: Any) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
        """The batches of a split, drawn as a progress bar with an ETA where that was asked for."""
        part = self.share(data)
        order = None if self.team.size == 1 else torch.arange(part.start, part.stop)
        batches = source.batches(data, self.net, size=BATCH, order=order)
        if not self.progress:
            return batches
        known = source.count(data)
        total = -(-known // BATCH) if known and not isinstance(data, DataLoader) else len(data) if known else None
        return iter(track(batches, f"measuring on {split}", total))

    def share(self, data: Any) -> slice:
        """Which samples this process of a team looks at; all where it is alone."""
        if self.team.size == 1:
            return slice(0, None)
        count = source.count(data) if source.indexable(data) else None
        if count is None or count < self.team.size:
            raise InputError(f"{self.team.size} processes share data that can be read in any order and has a sample for each")
        return self.team.share(count)

    def run(self, arguments: tuple[Tensor, ...]) -> Tensor:
        """The logits of a batch."""
        output = self.logits(self.net(*arguments))
        if not isinstance(output, Tensor) or output.ndim != 2:
            kind = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            raise InputError(f"the net returns {kind}, not (samples, classes) logits: pass logits=lambda output: ...")
        return output


@contextlib.contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Evaluation mode, and float32 that is float32; afterwards each module, and torch, in the mode it had.

    A GPU rounds what convolutions of float32 read to TF32, 10 bits: small singular values would be those of the rounding.
    """
    modes = {module: module.training for module in net.modules()}
    matmul, cudnn = torch.backends.cuda.matmul, cast(Any, torch.backends.cudnn)
    before = matmul.allow_tf32, cudnn.allow_tf32
    net.eval()
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
        for module, mode in modes.items():
            module.training = mode
