"""Images that a GPU has no room for, on their way to it: those of the next step are gathered while this one is computed."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from thermocline.data import Split


class Ahead:
    """The images of one step in one place on the device, where a recorded step reads them.

    They are gathered in main memory by a thread, into one of two page-locked buffers: from the other the GPU may still be
    copying those of the step before.
    """

    def __init__(self, split: Split, size: int) -> None:
        self.source, shape, cuda = split.images, (size, *split.images.shape[1:]), split.device.type == "cuda"
        self.images: UInt8[Tensor, "b c h w"] = torch.empty(shape, dtype=torch.uint8, device=split.device)
        self.buffers = [torch.empty(shape, dtype=torch.uint8, pin_memory=cuda) for _ in range(2)]
        self.copied = [torch.cuda.Event() if cuda else None for _ in range(2)]  # an event counts as done until it is recorded
        self.order: Int[Tensor, "steps b"] = torch.empty(0, size, dtype=torch.int64)
        self.here: int | None = None
        self.waiting: dict[int, Future[Tensor]] = {}  # the next step's, by its place
        self.thread = ThreadPoolExecutor(1)

    def follow(self, order: Int[Tensor, "steps b"]) -> None:
        """Bring these samples, step by step, from now on."""
        self.order, self.here, self.waiting = order, None, {}

    def bring(self, position: int) -> None:
        """Put the images of this step in their place, after what is queued there, and begin to gather those of the next."""
        if position == self.here:
            return
        (self.waiting.get(position) or self._gather(position)).result()
        self.images.copy_(self.buffers[position % 2], non_blocking=True)
        if (copied := self.copied[position % 2]) is not None:
            copied.record(torch.cuda.current_stream(self.images.device))
        self.here, after = position, position + 1
        self.waiting = {after: self._gather(after)} if after < len(self.order) else {}

    def _gather(self, position: int) -> Future[Tensor]:
        buffer, copied = self.buffers[position % 2], self.copied[position % 2]
        if copied is not None:  # waited for here: a thread must not ask the GPU anything while a graph is recorded
            copied.synchronize()
        return self.thread.submit(torch.index_select, self.source, 0, self.order[position], out=buffer)
