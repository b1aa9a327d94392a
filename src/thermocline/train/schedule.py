"""What changes over a run by plan: how many steps there are, where to look, learning rate and temperature."""

from __future__ import annotations

import math

from thermocline import spec


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
        "cosine": _fall(done),
    }[train.schedule]
    return train.lr * rise * fall


def temperature(train: spec.Train, step: int, per_epoch: int) -> float:
    """The planned temperature of a step: from `temperature` to `temperature_end`, or constant where it is not planned.

    A step down is "hot then cold"; exponential is linear in log T; the last step of a run is at the end.

    >>> plan = spec.Train(epochs=5, temperature=100.0, temperature_schedule="exponential", temperature_end=1.0)
    >>> [round(temperature(plan, step, 1), 2) for step in range(5)]
    [100.0, 31.62, 10.0, 3.16, 1.0]
    """
    start, end = train.temperature, train.temperature_end
    if end is None:
        return start
    total = train.epochs * per_epoch
    done = step / max(total - 1, 1)
    return {
        "linear": start + (end - start) * done,
        "cosine": end + (start - end) * _fall(done),
        "exponential": start * (end / start) ** done,
        "step": start if step / total < train.temperature_at else end,
    }[train.temperature_schedule]


def _fall(done: float) -> float:
    return (1 + math.cos(math.pi * done)) / 2
