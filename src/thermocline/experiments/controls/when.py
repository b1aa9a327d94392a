"""When in training does heat act? The same temperatures in two orders: from T = 500 down to 1, and from 1 up to 500.

[masarczyk2025softmax] explains the effect of heat by how training starts: logits that are too small must grow first. If so,
nets that start hot and end cold should be like hot ones, and nets that start cold and end hot like cold ones. T follows a
cosine while the learning rate falls, so that both orders have the same temperatures, each for as long. A third way stays
cold for half of training and then jumps. (The jump down is not an arm: logits grown at T = 500 are 500 times too large at T
= 1, and training diverged in a trial.) The learning rate moves the OOD drop too, so cold and cold to hot are also run at
half of it.
"""

from dataclasses import replace

from thermocline import spec
from thermocline.experiments import _claims, _runes
from thermocline.experiments._claims import Arm, Claim, Curve, Quantity
from thermocline.experiments.demo import BASE
from thermocline.spec import Run, grid

MOST = 500.0


def orders(most: float, lr: float) -> tuple[Arm, ...]:
    """At one learning rate: cold and hot throughout; hot to cold, cold to hot, and cold for half of training, then hot."""
    ways = {
        "T = 1": ("constant", 1.0, None), f"T = {most:g}": ("constant", most, None),
        "hot to cold": ("cosine", most, 1.0), "cold to hot": ("cosine", 1.0, most), "cold, then hot": ("step", 1.0, most),
    }  # fmt: skip
    names = ("train.temperature_schedule", "train.temperature", "train.temperature_end")
    return tuple(Arm(label, dict(zip(names, way, strict=True)) | {"train.lr": lr}) for label, way in ways.items())


def runs(base: Run, arms: tuple[Arm, ...]) -> list[Run]:
    return [run for arm in arms for run in grid(spec.replace(base, arm.settings), {"seed": range(3)})]


def claims(arms: tuple[Arm, ...], ood: str) -> list[Claim]:
    """What heat does, asked of each order, and what the order does where the temperatures are the same."""
    cold, _, cooled, heated, late = arms
    return [
        *(Claim(_claims.TRAIN_ACCURACY, "at least", (arm,), bound=0.99) for arm in (cooled, heated, late)),
        *(claim for arm in (cooled, heated, late) for claim in _claims.effect(cold, arm, ood=ood)),
        Claim(_claims.EFFECTIVE_DEPTH, "rises", (cooled, heated)),
        Claim(_claims.drop_on(ood), "falls", (cooled, heated)),
        Claim(_claims.SOLUTION_RANK, "rises", (cooled, heated)),
        Claim(_claims.TEST_ACCURACY, "rises", (cooled, heated)),
    ]


def curves(arms: tuple[Arm, ...], ood: str) -> list[Curve]:
    probe = Quantity("probe accuracy", "probe_accuracy", f"{ood}/test", by="last layer", shown=".1%")
    return [
        Curve("rank of the logits by training step", _claims.SOLUTION_RANK, "step", arms),
        Curve(f"probes of {ood} by layer", probe, "depth", arms),
    ]


ARMS = orders(MOST, BASE.train.lr)
SLOW = tuple(replace(arm, label=f"{arm.label}, half the lr") for arm in orders(MOST, BASE.train.lr / 2)[::3])
RUNS = runs(BASE, (*ARMS, *SLOW))
CLAIMS = [
    *claims(ARMS, _runes.OOD),
    *(Claim(_claims.TRAIN_ACCURACY, "at least", (arm,), bound=0.99) for arm in SLOW),
    *_claims.effect(*SLOW, ood=_runes.OOD),
]
CURVES = curves(ARMS, _runes.OOD)
COST = _runes.COST
