"""A training step as operations on the device alone, which a GPU can record once and replay."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from thermocline import softmax, spec
from thermocline.data import Split, draw
from thermocline.team import ALONE, Team
from thermocline.train import schedule
from thermocline.train.ahead import Ahead
from thermocline.train.state import State
from thermocline.train.together import share_statistics, sum_gradients

LOSSES = {
    "cross_entropy": softmax.tempered_cross_entropy,
    "mse": softmax.tempered_mse,
    "logitnorm": softmax.logit_norm_cross_entropy,
}
EAGER = 4  # steps before one is recorded: cuDNN and the optimiser have then made up their minds


class Step:
    """One optimiser step: what changes from step to step is read from tables on the device."""

    def __init__(self, split: Split, train: spec.Train, *, seed: int, state: State, team: Team = ALONE) -> None:
        self.split, self.train, self.seed, self.state, self.net, self.team = split, train, seed, state, state.net, team
        self.per_epoch, self.epoch = schedule.steps_per_epoch(train, len(split)), -1
        size, device = min(train.batch, len(split)), split.device
        self.order = torch.empty(self.per_epoch, size, dtype=torch.int64, device=device)
        self.draws = torch.empty(self.per_epoch, size, 3, dtype=torch.int64, device=device)
        self.factors = [group["factor"] for group in state.optimizer.param_groups]
        self.rates = torch.empty(len(self.factors), self.per_epoch, dtype=state.rate.dtype, device=device)
        self.temperatures = torch.empty(self.per_epoch, dtype=state.temperature.dtype, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.hits = torch.zeros((), dtype=torch.int64, device=device)  # samples this process got right so far
        self.share = team.share(size)
        self.ahead = None if split.resident else Ahead(split, len(range(size)[self.share]))
        share_statistics(self.net, team)

    def prepare(self) -> None:
        """Fill the tables when a new epoch begins, or when training resumes within one, and have the step's images there."""
        epoch, position = divmod(self.state.step, self.per_epoch)
        if epoch != self.epoch:
            self._begin(epoch, position)
        if self.ahead is not None:
            self.ahead.bring(position)

    def _begin(self, epoch: int, position: int) -> None:
        samples, image = self.order.numel(), (self.split.images.shape[2], self.split.images.shape[3])
        order = torch.randperm(len(self.split), generator=_generator(self.seed, "order", epoch))[:samples]
        draws = draw(self.train.augment, samples, size=image, generator=_generator(self.seed, "augment", epoch))
        _replace(self.order, order.view_as(self.order))
        _replace(self.draws, draws.view_as(self.draws))
        factors = torch.tensor(self.factors, dtype=torch.float64)
        _replace(self.rates, torch.outer(factors, self._plan(schedule.learning_rate, epoch)))
        _replace(self.temperatures, self._plan(schedule.temperature, epoch))
        self.position.fill_(position)
        self.epoch = epoch
        if self.ahead is not None:
            self.ahead.follow(order.view_as(self.order)[:, self.share])
        if self.state.step == 0 and self.train.temperature_target is not None:
            self._settle()

    def _plan(self, plan: Callable[[spec.Train, int, int], float], epoch: int) -> Tensor:
        """What a schedule says for every step of an epoch."""
        steps = range(epoch * self.per_epoch, (epoch + 1) * self.per_epoch)
        return torch.tensor([plan(self.train, step, self.per_epoch) for step in steps], dtype=torch.float64)

    def _settle(self) -> None:
        """Before the first step, the temperature that its logits call for."""
        with torch.no_grad():
            logits = self.net.eval()(self.split.take(self.order[0], dtype=self.state.temperature.dtype).images)
            self.state.temperature.copy_(self._temperature(logits[self.share]))

    def __call__(self) -> Tensor:
        """Take it; returns the loss before, on the device."""
        loss, temperature, hits = self.forward(self.net)
        self.state.optimizer.zero_grad()
        loss.backward()
        sum_gradients(self.state.parameters(), self.team)
        self.advance(temperature, hits)
        self.follow()
        return self.team.sum(loss.detach())

    def forward(self, net: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """This process's part of the loss, the temperature, and how many samples it gets right."""
        train, share, dtype = self.train, self.share, self.state.temperature.dtype
        chosen, draws = self.order[self.position][0, share], self.draws[self.position][0, share]
        images = None if self.ahead is None else self.ahead.images
        batch = self.split.take(chosen, dtype=dtype, augment=train.augment, draws=draws, images=images)
        half = train.precision == "bfloat16"
        with torch.autocast(self.split.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
            logits = net(batch.images)
        temperature = self._temperature(logits)
        loss = LOSSES[train.loss](logits, batch.labels, temperature=temperature, label_smoothing=train.label_smoothing)
        hits = (logits.detach().argmax(1) == batch.labels).sum()
        return loss * (len(chosen) / self.order.shape[1]), temperature.detach(), hits

    def advance(self, temperature: Tensor, hits: Tensor) -> None:
        """Set the rates of this step, note what it found, and move on to the next in the tables."""
        for rate, table in zip(self.state.rates, self.rates):
            torch.index_select(table, 0, self.position, out=rate)
        self.state.temperature.copy_(temperature)
        self.hits += hits
        self.position += 1

    def follow(self) -> None:
        """Let the optimiser follow the gradients."""
        if self.train.clip is not None:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.train.clip)
        self.state.optimizer.step()
        if (learned := self.state.log_temperature) is not None:
            self.state.temperature.copy_(learned.detach().exp())

    def _temperature(self, logits: Tensor) -> Tensor:
        """That of this step: learned, or what brings these logits to the target, or as planned.

        What brings them to the target moves with them, and the gradient is to see it: growing them then gains nothing.
        """
        if self.state.log_temperature is not None:
            return self.state.log_temperature.exp()
        if self.train.temperature_target is None:
            return self.temperatures[self.position][0]
        held = {"hold-norm": softmax.temperature_for_norm, "hold-entropy": softmax.temperature_for_entropy}
        return held[self.train.temperature_schedule](self.team.gather(logits), self.train.temperature_target)


class Replayed:
    """A step that becomes a CUDA graph once it has run a few times."""

    def __init__(self, run: Callable[[], Tensor], state: State) -> None:
        self.run, self.state, self.left, self.stream = run, state, EAGER, torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.loss = torch.empty(0)

    def __call__(self) -> Tensor:
        """Take it; returns the loss before, on the device."""
        if self.left:
            self.left -= 1
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                loss = self.run()
            torch.cuda.current_stream().wait_stream(self.stream)
            return loss
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            self.state.optimizer.zero_grad()  # so that gradients are allocated anew, where the graph will write them
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.loss = self.run()
        self.graph.replay()
        return self.loss.clone()


def _replace(table: Tensor, by: Tensor) -> None:
    """Copy to the device without waiting for it: steps that are queued there read the old table, later ones the new."""
    by = by.to(table.dtype)
    table.copy_(by.pin_memory() if table.is_cuda else by, non_blocking=True)


def fitting_batch(step: Step) -> int | None:
    """The largest half, quarter, ... of a batch that does not run out of memory; None where even one image does."""
    size = step.order.shape[1] // 2
    while size:
        torch.cuda.empty_cache()
        try:
            batch = step.split.take(step.order[0, :size], dtype=step.state.temperature.dtype)
            step.net(batch.images).float().logsumexp(1).sum().backward()
            return size
        except torch.OutOfMemoryError:
            size //= 2
        finally:
            step.state.optimizer.zero_grad()
    return None


@contextlib.contextmanager
def deterministic(*, timed: bool = False) -> Iterator[None]:
    """cuDNN kernels that add in one order, so that a resumed run goes on to the same bits; no effect on a CPU.

    With `timed` the fastest of all of them is found by trying, which may choose another kernel in another process.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark, cudnn.benchmark_limit
    cudnn.deterministic, cudnn.benchmark, cudnn.benchmark_limit = True, timed, 0  # 0: as many as there are
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark, cudnn.benchmark_limit = before


def _generator(seed: int, purpose: str, index: int) -> torch.Generator:
    """An independent stream for each purpose and index."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{index}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
