"""The one training loop, as a generator: it yields where it is asked to, and the caller measures between yields.

Nothing random is kept between steps: the order and the augmentation of an epoch are functions of (seed, epoch). So
weights, momentum and the step number are all there is to resume from.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor, nn

from thermocline import nets, spec
from thermocline.data import Split, draw
from thermocline.softmax import tempered_cross_entropy

CHECK_EVERY = 100  # steps between looks at the loss: looking makes a GPU wait


class Diverged(spec.Failure):
    """Training blew up; the message says where and what to try."""


class State:
    """Where training stands: the step and the optimiser, beside the net they belong to."""

    def __init__(self, net: nn.Module, train: spec.Train) -> None:
        head = nets.taps(net)[-1].path + "."
        body_parameters = [p for name, p in net.named_parameters() if not name.startswith(head)]
        head_parameters = [p for name, p in net.named_parameters() if name.startswith(head)]
        # lr is a number on the device, set at every step from the schedule; "factor" keeps each group's share of it.
        weight = body_parameters[0]
        self.rate = torch.tensor(train.lr, dtype=weight.dtype, device=weight.device)
        groups = [
            {"params": body_parameters, "factor": 1.0, "weight_decay": train.weight_decay},
            {"params": head_parameters, "factor": train.head_lr, "weight_decay": train.weight_decay * train.head_weight_decay},
        ]
        self.step, self.net = 0, net
        self.optimizer = torch.optim.SGD(groups, lr=self.rate, momentum=train.momentum, nesterov=train.nesterov, fused=True)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate.clone()

    def tensors(self) -> dict[str, Tensor]:
        """Everything a resumed run needs besides the step: weights, buffers, momentum."""
        momentum = {}
        for name, parameter in self.net.named_parameters():
            buffer = self.optimizer.state[parameter].get("momentum_buffer")
            if buffer is not None:
                momentum[f"momentum.{name}"] = buffer
        return {**{f"net.{name}": value for name, value in self.net.state_dict().items()}, **momentum}

    def restore(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `tensors` returned at that step."""
        weights = {name.removeprefix("net."): value for name, value in tensors.items() if name.startswith("net.")}
        self.net.load_state_dict(weights)
        for name, parameter in self.net.named_parameters():
            if (buffer := tensors.get(f"momentum.{name}")) is not None:
                self.optimizer.state[parameter]["momentum_buffer"] = buffer.to(parameter.device, parameter.dtype)
        self.step = step


def fit(
    net: nn.Module,
    split: Split,
    train: spec.Train,
    *,
    seed: int,
    state: State | None = None,
    at: Collection[int] = (),
    graph: bool | None = None,
) -> Iterator[tuple[int, nn.Module]]:
    """Train, yielding (step, net) at the spec's snapshot steps and at those of `at`; first at the step it starts from.

    Pass a restored `State` to continue a run. The last step is always among the yields. On a GPU the step is recorded as a
    CUDA graph and replayed, unless `graph=False`: the same kernels, without the wait for Python between them.
    """
    state = state or State(net, train)
    stepper = _Stepper(net, split, train, seed=seed, state=state)
    watch = _Watch(train, classes=split.classes, start=state.step)
    total = total_steps(train, len(split))
    stops = {*at, *snapshot_steps(train, total)}
    run = _Replayed(stepper) if (split.device.type == "cuda" if graph is None else graph) else stepper
    yield state.step, net
    while state.step < total:
        stepper.prepare(state.step)
        net.train()
        with _deterministic():
            watch.add(run())
        state.step += 1
        if state.step in stops or state.step % CHECK_EVERY == 0:
            watch.check(state.step)
        if state.step in stops:
            yield state.step, net


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    """cuDNN kernels that add in one order, so that a resumed run goes on to the same bits; no effect on a CPU."""
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before


class _Stepper:
    """A training step as operations on the device alone: what changes from step to step is read from tables there."""

    def __init__(self, net: nn.Module, split: Split, train: spec.Train, *, seed: int, state: State) -> None:
        self.net, self.split, self.train, self.seed, self.optimizer = net, split, train, seed, state.optimizer
        self.per_epoch, self.epoch = steps_per_epoch(train, len(split)), -1
        size, device = min(train.batch, len(split)), split.device
        self.order = torch.empty(self.per_epoch, size, dtype=torch.int64, device=device)
        self.draws = torch.empty(self.per_epoch, size, 3, dtype=torch.int64, device=device)
        self.rates = torch.empty(self.per_epoch, dtype=state.rate.dtype, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)

    def prepare(self, step: int) -> None:
        """Fill the tables when a new epoch begins, or when training resumes within one."""
        epoch, position = divmod(step, self.per_epoch)
        if epoch == self.epoch:
            return
        samples, image = self.order.numel(), (self.split.images.shape[2], self.split.images.shape[3])
        order = torch.randperm(len(self.split), generator=_generator(self.seed, "order", epoch))[:samples]
        draws = draw(self.train.augment, samples, size=image, generator=_generator(self.seed, "augment", epoch))
        steps = range(epoch * self.per_epoch, (epoch + 1) * self.per_epoch)
        self.order.copy_(order.view_as(self.order))
        self.draws.copy_(draws.view_as(self.draws))
        rates = [learning_rate(self.train, one, self.per_epoch) for one in steps]
        self.rates.copy_(torch.tensor(rates, dtype=torch.float64))
        self.position.fill_(position)
        self.epoch = epoch

    def __call__(self) -> Tensor:
        """One optimiser step; returns the loss before it, on the device."""
        train, dtype = self.train, next(self.net.parameters()).dtype
        chosen, draws = self.order[self.position][0], self.draws[self.position][0]
        batch = self.split.take(chosen, dtype=dtype, augment=train.augment, draws=draws)
        half = train.precision == "bfloat16"
        with torch.autocast(self.split.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
            logits = self.net(batch.images)
        loss = tempered_cross_entropy(logits, batch.labels, temperature=train.temperature)
        self.optimizer.zero_grad()
        loss.backward()
        if train.clip is not None:
            nn.utils.clip_grad_norm_(self.net.parameters(), train.clip)
        for group in self.optimizer.param_groups:
            group["lr"].copy_(self.rates[self.position][0] * group["factor"])
        self.optimizer.step()
        self.position += 1
        return loss.detach()


class _Replayed:
    """A step that becomes a CUDA graph once it has run a few times, when cuDNN and the optimiser have made up their minds."""

    def __init__(self, step: _Stepper, *, warm_up: int = 3) -> None:
        self.step, self.left, self.stream = step, warm_up, torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.loss = torch.empty(0)

    def __call__(self) -> Tensor:
        """One optimiser step; returns the loss before it, on the device."""
        if self.left:
            self.left -= 1
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                loss = self.step()
            torch.cuda.current_stream().wait_stream(self.stream)
            return loss
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            self.step.optimizer.zero_grad()  # so that gradients are allocated anew, where the graph will write them
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.loss = self.step()
        self.graph.replay()
        return self.loss.clone()


def steps_per_epoch(train: spec.Train, samples: int) -> int:
    """Whole batches only, so that every step has one shape; what is left over differs from epoch to epoch."""
    return max(samples // train.batch, 1)


def total_steps(train: spec.Train, samples: int) -> int:
    """Steps of a whole run."""
    return train.epochs * steps_per_epoch(train, samples)


def snapshot_steps(train: spec.Train, total: int) -> list[int]:
    """Step 0, the last step, and those between at squares: symmetry breaks early, so look closer there.

    >>> snapshot_steps(spec.Train(snapshots=4), 160)
    [0, 10, 40, 90, 160]
    """
    return sorted({round(total * (i / train.snapshots) ** 2) for i in range(train.snapshots + 1)})


def learning_rate(train: spec.Train, step: int, per_epoch: int) -> float:
    """The schedule: a linear warm-up times a constant, a staircase or a half cosine [loshchilov2017sgdr, Eq. 5].

    >>> [round(learning_rate(spec.Train(epochs=4, lr=1.0), step, 1), 3) for step in range(5)]
    [1.0, 0.854, 0.5, 0.146, 0.0]
    """
    total, warm = train.epochs * per_epoch, train.warmup * per_epoch
    rise = min((step + 1) / warm, 1.0) if warm else 1.0
    done = step / total
    fall = {
        "constant": 1.0,
        "step": train.decay ** sum(done >= milestone for milestone in train.milestones),
        "cosine": (1 + math.cos(math.pi * done)) / 2,
    }[train.schedule]
    return train.lr * rise * fall


class _Watch:
    """Notices a loss that is not finite, or that has left where it started far behind."""

    def __init__(self, train: spec.Train, *, classes: int, start: int) -> None:
        self.train, self.seen, self.losses = train, start, []
        self.chance = math.log(classes)

    def add(self, loss: Tensor) -> None:
        self.losses.append(loss)

    def check(self, step: int) -> None:
        losses = torch.stack(self.losses).cpu().tolist()
        for offset, loss in enumerate(losses, start=1):
            if not math.isfinite(loss):
                raise Diverged(hint(self.train, f"loss became {loss} at step {self.seen + offset}"))
        mean = sum(losses) / len(losses)
        if mean > 20 * max(self.chance, 1.0):
            raise Diverged(hint(self.train, f"loss grew to {mean:.4g} by step {step}, where guessing has {self.chance:.4g}"))
        self.seen, self.losses = step, []


def hint(train: spec.Train, what: str) -> str:
    """What happened, and what to try against it."""
    clip = "" if train.clip else ", clip gradients (train.clip=1)"
    return f"{what}; try a smaller train.lr (now {train.lr:g}), a longer train.warmup{clip}"


def _generator(seed: int, purpose: str, index: int) -> torch.Generator:
    """An independent stream for each purpose and index."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{index}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
