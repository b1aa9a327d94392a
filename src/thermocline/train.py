"""The one training loop, as a generator: it yields where it is asked to, and the caller measures between yields.

Nothing random is kept between steps: the order of an epoch is a function of (seed, epoch) and the augmentation of
a step of (seed, step). So weights, momentum and the step number are all there is to resume from.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor, nn

from thermocline import nets, spec
from thermocline.data import Split
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
        # lr is set at every step from the schedule; "factor" keeps each group's share of it.
        groups = [
            {"params": body_parameters, "factor": 1.0, "weight_decay": train.weight_decay},
            {"params": head_parameters, "factor": train.head_lr, "weight_decay": train.weight_decay * train.head_weight_decay},
        ]
        self.step, self.net = 0, net
        self.optimizer = torch.optim.SGD(groups, lr=train.lr, momentum=train.momentum, nesterov=train.nesterov)

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
    net: nn.Module, split: Split, train: spec.Train, *, seed: int, state: State | None = None, at: Collection[int] = ()
) -> Iterator[tuple[int, nn.Module]]:
    """Train, yielding (step, net) at the spec's snapshot steps and at those of `at`; first at the step it starts from.

    Pass a restored `State` to continue a run. The last step is always among the yields.
    """
    state = state or State(net, train)
    watch = _Watch(train, classes=split.classes, start=state.step)
    per_epoch, total = steps_per_epoch(train, len(split)), total_steps(train, len(split))
    stops = {*at, *snapshot_steps(train, total)}
    yield state.step, net
    order = _epoch_order(len(split), seed, state.step // per_epoch)
    while state.step < total:
        epoch, position = divmod(state.step, per_epoch)
        if position == 0:
            order = _epoch_order(len(split), seed, epoch)
        chosen = order[position * train.batch : (position + 1) * train.batch]
        watch.add(_step(net, split, train, chosen, seed=seed, state=state))
        if state.step in stops or state.step % CHECK_EVERY == 0:
            watch.check(state.step)
        if state.step in stops:
            yield state.step, net


def _step(net: nn.Module, split: Split, train: spec.Train, chosen: Tensor, *, seed: int, state: State) -> Tensor:
    """One optimiser step on the chosen samples; returns the loss before it, on the device."""
    generator = _generator(seed, "augment", state.step, split.device) if train.augment != "none" else None
    weight = next(net.parameters())
    batch = split.take(chosen, dtype=weight.dtype, augment=train.augment, generator=generator)
    net.train()
    with torch.autocast(split.device.type, torch.bfloat16, enabled=train.precision == "bfloat16"):
        logits = net(batch.images)
    loss = tempered_cross_entropy(logits, batch.labels, temperature=train.temperature)
    state.optimizer.zero_grad()
    loss.backward()
    if train.clip is not None:
        nn.utils.clip_grad_norm_(net.parameters(), train.clip)
    for group in state.optimizer.param_groups:
        group["lr"] = group["factor"] * learning_rate(train, state.step, steps_per_epoch(train, len(split)))
    state.optimizer.step()
    state.step += 1
    return loss.detach()


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


def _epoch_order(samples: int, seed: int, epoch: int) -> Tensor:
    """The order of samples in an epoch."""
    return torch.randperm(samples, generator=_generator(seed, "order", epoch, "cpu"))


def _generator(seed: int, purpose: str, index: int, device: torch.device | str) -> torch.Generator:
    """An independent stream for each purpose and index."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{index}".encode(), digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "big") >> 1)
