"""Processes that work as one: each takes its share of the samples, and sums over all of them make the shares whole.

`torchrun` starts them and tells each its place. All hold the same net and the same data, so that a sum of gradients, of
moments or of counts is all that ever travels.
"""

from __future__ import annotations

import atexit
import datetime
import os
from typing import Any

import torch
from torch import Tensor, distributed


class _Sum(torch.autograd.Function):
    """y = sum_r x_r. What every process makes of y counts, so the gradient of x_r is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _Sum.forward(ctx, grads[0])


def lacking() -> str:
    """What torchrun would have set and is not there, though WORLD_SIZE says that there are several processes; else nothing."""
    meeting = () if distributed.is_initialized() else ("MASTER_ADDR", "MASTER_PORT")
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", *meeting)
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    return next((name for name in names if several and name not in os.environ), "")


class Team:
    """This process among `size` of them, as the one of number `rank`; alone unless told otherwise."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @classmethod
    def join(cls, device: torch.device) -> tuple[Team, torch.device]:
        """The team that `torchrun` started this process in, and the device that is its own; outside of one, alone."""
        rank, size = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
        if size == 1:
            return cls(), device
        local, here = (int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
        cards = torch.cuda.device_count() if device.type == "cuda" else 0
        if cards:
            device = torch.device("cuda", local % cards)
            torch.cuda.set_device(device)
        if not distributed.is_initialized():
            # NCCL wants a card for each process; where they share one, sums go through the CPU.
            # The others wait while the one that leads measures, which may take longer than the ten minutes NCCL grants.
            backend, patience = "nccl" if cards >= here else "gloo", datetime.timedelta(hours=3)
            distributed.init_process_group(backend, timeout=patience)
            atexit.register(distributed.destroy_process_group)
        return cls(rank, size), device

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """Which of so many samples are this process's: one after the other, and as even as can be.

        >>> [Team(rank, 3).share(8) for rank in range(3)]
        [slice(0, 2, None), slice(2, 5, None), slice(5, 8, None)]
        """
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def sum(self, x: Tensor) -> Tensor:
        """The sum of a tensor over all processes, through which gradients flow.

        >>> Team().sum(torch.ones(2))
        tensor([1., 1.])
        """
        return x if self.size == 1 else _Sum.apply(x)  # pyright: ignore[reportReturnType]

    def gather(self, x: Tensor) -> Tensor:
        """What every process has, one after the other; gradients flow."""
        if self.size == 1:
            return x
        lengths = torch.zeros(self.size, dtype=torch.int64, device=x.device)
        lengths[self.rank] = len(x)
        ends = self.sum(lengths).cumsum(0).tolist()
        before, after = ends[self.rank] - len(x), ends[-1] - ends[self.rank]
        return self.sum(torch.cat([x.new_zeros(before, *x.shape[1:]), x, x.new_zeros(after, *x.shape[1:])]))

    def tell(self, value: Any) -> Any:
        """The value that the leading process has."""
        if self.size == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box)
        return box[0]


ALONE = Team()
