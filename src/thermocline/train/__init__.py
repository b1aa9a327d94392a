"""The one training loop, as a generator: it yields where it is asked to, and the caller measures between yields.

Nothing random is kept between steps: the order and the augmentation of an epoch are functions of (seed, epoch). So
weights, what the optimiser remembers, the temperature, the step number and what a run is judged by are all there is to resume
from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

import torch
from torch import Tensor, nn

from thermocline import spec
from thermocline.data import Split
from thermocline.team import ALONE, Team
from thermocline.train.compiled import Compiled
from thermocline.train.schedule import learning_rate, snapshot_steps, steps_per_epoch, temperature, total_steps
from thermocline.train.state import State, require_reachable
from thermocline.train.step import Replayed, Step, deterministic, fitting_batch

__all__ = [
    "Diverged", "State", "check", "fit", "hint", "learning_rate", "snapshot_steps", "steps_per_epoch", "temperature",
    "total_steps",
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
    team: Team = ALONE,
) -> Iterator[tuple[int, nn.Module]]:
    """Train, yielding (step, net) at the spec's snapshot steps and at those of `at`; first at the step it starts from.

    Pass a restored `State` to continue a run. The last step is always among the yields. On a GPU the step is recorded as a
    CUDA graph and replayed, unless `graph=False`: the same kernels, without the wait for Python between them. Of a team each
    process takes its share of every batch, and all end with the same weights; their steps are not recorded.
    """
    check(train, split.classes, team)
    state = state or State(net, train)
    step = Step(split, train, seed=seed, state=state, team=team)
    run = _way(step, graph)
    watch = _Watch(step)
    total = total_steps(train, len(split))
    stops = {*at, *snapshot_steps(train, total)}
    if state.step < total:
        step.prepare()
    yield state.step, net
    while state.step < total:
        step.prepare()
        net.train()
        with deterministic(timed=train.compile):
            watch.add(_within_memory(run, step))
        state.step += 1
        if state.step in stops or state.step % CHECK_EVERY == 0:
            watch.check(state.step)
        if state.step in stops:
            yield state.step, net


def check(train: spec.Train, classes: int, team: Team = ALONE) -> None:
    """Raise where so many classes cannot be trained on by this recipe, or not by this team."""
    require_reachable(train, classes)
    if train.batch < team.size:
        raise spec.InputError(
            f"train.batch={train.batch} is too small for {team.size} processes: each takes one image at least"
        )


def _way(step: Step, graph: bool | None) -> Callable[[], Tensor]:
    """How steps are taken: as they are written, compiled, and either of them recorded."""
    alone = step.team.size == 1 and step.split.device.type == "cuda"
    run = Compiled(step) if step.train.compile and alone else step
    return Replayed(run, step.state) if (alone if graph is None else graph) else run


def _within_memory(run: Callable[[], Tensor], step: Step) -> Tensor:
    try:
        return run()
    except torch.OutOfMemoryError:
        size = step.order.shape[1]
        if step.team.size > 1:  # the others are at other places, so nothing can be tried out
            raise spec.Failure(
                f"out of memory at train.batch={size}, over {step.team.size} processes; try a smaller one"
            ) from None
    fits = fitting_batch(step)  # outside the handler, which would keep what the step had allocated alive
    advice = f"train.batch={fits} fits" if fits else "not even one image fits: try a smaller net.width or data.size"
    raise spec.Failure(f"out of memory at train.batch={size}; {advice}")


class _Watch:
    """Notices a loss that is not finite, that has left where it started far behind, or a net that does not begin to learn."""

    def __init__(self, step: Step) -> None:
        self.step, self.train, self.state, self.losses = step, step.train, step.state, list[Tensor]()
        train, self.guessing = step.train, step.split.guessing
        patience = max(train.epochs // 4, 5) if train.patience is None else train.patience
        # Steps and hits are counted from the first step, whatever was interrupted: a resumed run is judged as any other.
        self.judgement = patience * step.per_epoch
        self.seen, self.before = self.state.step, -self.state.right

    def add(self, loss: Tensor) -> None:
        self.losses.append(loss)

    def check(self, now: int) -> None:
        counted = self.step.team.sum(self.step.hits).double()  # float32 has no room for large counts
        *losses, hits = torch.stack([*self.losses, counted]).cpu().tolist()  # in one transfer: a GPU waits for each
        for offset, loss in enumerate(losses, start=1):
            if not math.isfinite(loss):
                step = self.seen + offset
                raise Diverged(hint(self.train, f"loss became {loss} at step {step}", trained=step > 1))
        mean = sum(losses) / len(losses)
        self.state.limit = self.state.limit or 20 * max(losses[0], math.log(self.step.split.classes), 1.0)
        if mean > self.state.limit:
            raise Diverged(hint(self.train, f"loss grew to {mean:.4g} by step {now}, 20 times where it started"))
        self._judge(now, int(hits))
        self.seen, self.losses = now, []

    def _judge(self, now: int, hits: int) -> None:
        """Once, after `patience` epochs: over the last of them or so, is more right than guessing would get?"""
        state = self.state
        state.right = hits - self.before
        if self.seen < self.judgement <= now:
            samples = (now - state.since) * self.step.order.shape[1]
            right = state.right / samples
            noise = 3 * math.sqrt(self.guessing * (1 - self.guessing) / samples)
            if right < self.guessing + noise:
                raise Diverged(_stalled(self.train, now, right, self.guessing))
        if now < self.judgement and now - state.since >= self.step.per_epoch:
            state.since, state.right, self.before = now, 0, hits


def hint(train: spec.Train, what: str, *, trained: bool = True) -> str:
    """What happened, and what to try against it; of a net as it was made (`trained=False`), no rate is to blame."""
    if not trained:
        warmer = f"a higher train.temperature (now {train.temperature:g})"
        return f"{what}, before anything was trained; try a smaller net.init_scale or net.logit_norm_init, or {warmer}"
    clip = "" if train.clip else ", clip gradients (train.clip=1)"
    return f"{what}; try a smaller train.lr (now {train.lr:g}), a longer train.warmup{clip}"


def _stalled(train: spec.Train, step: int, right: float, guessing: float) -> str:
    decay = f"less train.weight_decay (now {train.weight_decay:g}; train.norm_weight_decay=0 spares what logits grow by), "
    return (
        f"by step {step} the net gets {right:.1%} of its training images right, where guessing gets {guessing:.1%}: it has not "
        f"begun to learn; try a larger train.lr (now {train.lr:g}), {_colder(train)}, "
        f"{decay if train.weight_decay else ''}or more train.patience"
    )


def _colder(train: spec.Train) -> str:
    """What makes the softmax sharper: T, or the target that it follows."""
    if train.temperature_target is None:
        return f"a lower train.temperature (now {train.temperature:g})"
    way = "larger" if train.temperature_schedule == "hold-norm" else "lower"
    return f"a {way} train.temperature_target (now {train.temperature_target:g})"
