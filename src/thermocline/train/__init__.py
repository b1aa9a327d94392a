"""The one training loop, as a generator: it yields where it is asked to, and the caller measures between yields.

Nothing random is kept between steps: the order and the augmentation of an epoch are functions of (seed, epoch). So
weights, what the optimiser remembers, the temperature and the step number are all there is to resume from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

import torch
from torch import Tensor, nn

from thermocline import spec
from thermocline.data import Split
from thermocline.train.schedule import learning_rate, snapshot_steps, steps_per_epoch, temperature, total_steps
from thermocline.train.state import State, require_reachable
from thermocline.train.step import Replayed, Step, deterministic, fitting_batch

__all__ = [
    "Diverged", "State", "fit", "hint", "learning_rate", "snapshot_steps", "steps_per_epoch", "temperature", "total_steps",
]  # fmt: skip

CHECK_EVERY = 100  # steps between looks at the loss: looking makes a GPU wait


class Diverged(spec.Failure):
    """Training blew up, or never began; the message says where and what to try."""


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
    require_reachable(train, split.classes)
    state = state or State(net, train)
    step = Step(split, train, seed=seed, state=state)
    run = Replayed(step) if (split.device.type == "cuda" if graph is None else graph) else step
    watch = _Watch(train, split, start=state.step)
    total = total_steps(train, len(split))
    stops = {*at, *snapshot_steps(train, total)}
    yield state.step, net
    while state.step < total:
        step.prepare()
        net.train()
        with deterministic():
            watch.add(_within_memory(run, step))
        state.step += 1
        if state.step in stops or state.step % CHECK_EVERY == 0:
            watch.check(state.step)
        if state.step in stops:
            yield state.step, net


def _within_memory(run: Callable[[], Tensor], step: Step) -> Tensor:
    try:
        return run()
    except torch.OutOfMemoryError:
        size = step.order.shape[1]
    fits = fitting_batch(step)  # outside the handler, which would keep what the step had allocated alive
    advice = f"train.batch={fits} fits" if fits else "not even one image fits: try a smaller net.width or data.size"
    raise spec.Failure(f"out of memory at train.batch={size}; {advice}")


class _Watch:
    """Notices a loss that is not finite, that has left where it started far behind, or that never leaves it."""

    def __init__(self, train: spec.Train, split: Split, *, start: int) -> None:
        self.train, self.seen, self.losses = train, start, list[Tensor]()
        # What a net that gives every class the same probability has.
        self.chance = 1 - 1 / split.classes if train.loss == "mse" else math.log(split.classes)
        patience = max(train.epochs // 4, 5) if train.patience is None else train.patience
        # Where the size of the logits is held, the loss may stay near chance however much is learned.
        held = train.temperature_target is not None or train.loss == "logitnorm"
        self.deadline = math.inf if held else start + patience * steps_per_epoch(train, len(split))

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
        if mean < 0.98 * self.chance:
            self.deadline = math.inf
        if step >= self.deadline:
            raise Diverged(_stalled(self.train, f"at step {step} the loss is {mean:.4g}, where guessing has {self.chance:.4g}"))
        self.seen, self.losses = step, []


def hint(train: spec.Train, what: str) -> str:
    """What happened, and what to try against it."""
    clip = "" if train.clip else ", clip gradients (train.clip=1)"
    return f"{what}; try a smaller train.lr (now {train.lr:g}), a longer train.warmup{clip}"


def _stalled(train: spec.Train, what: str) -> str:
    return (
        f"{what}: the net has not begun to learn; try a larger train.lr (now {train.lr:g}), a lower train.temperature "
        f"(now {train.temperature:g}), less train.weight_decay (now {train.weight_decay:g}), or more train.patience"
    )
