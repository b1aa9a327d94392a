"""Is heat more than a learning rate? Cold and hot nets on built-in data, at learning rates from 0.03 to 0.48.

At T = 500 all gradients below the head start 500 times smaller, so a hot net may be no more than one that learns slowly, and
a comparison at one learning rate is of a net that it suits with one that it may not suit. So the effect is asked for at each
rate at which both fit their data, and the hot net of table1/runes-mlp, at 0.12, is compared with cold ones at other rates.

Written down before these runs, but after one trial at seed 99, of accuracies alone: at T = 500 a net stays at chance at 0.03
and does not fit at 0.06, and at 0.48, where both fit, test accuracies are as good as equal (at 0.12 they are 8 points apart).
"""

from collections.abc import Iterator

from thermocline import spec
from thermocline.experiments import _claims, _runes
from thermocline.experiments._claims import Arm, Claim
from thermocline.experiments.demo import BASE
from thermocline.spec import Run, grid


def arm(temperature: float, rate: float) -> Arm:
    return Arm(f"T = {temperature:g}, lr {rate:g}", {"train.temperature": temperature, "train.lr": rate})


def runs(base: Run, arms: tuple[Arm, ...]) -> list[Run]:
    return [run for one in arms for run in grid(spec.replace(base, one.settings), {"seed": range(3)})]


def at_each(pairs: list[tuple[Arm, Arm]], ood: str) -> Iterator[Claim]:
    """What heat does where the learning rate is the same."""
    yield from (claim for cold, hot in pairs for claim in _claims.effect(cold, hot, ood=ood))
    yield from (Claim(_claims.early_drop_on(ood), "rises", pair) for pair in pairs)
    yield from (Claim(_claims.detected(ood, "neco,dim=0.9"), "rises", pair) for pair in pairs)


COLD = {rate: arm(1.0, rate) for rate in (0.03, 0.12, 0.24, 0.48)}
HOT = {rate: arm(500.0, rate) for rate in (0.12, 0.24, 0.48)}
RUNS = runs(BASE, (*COLD.values(), *HOT.values()))
PAIRS = [(COLD[rate], HOT[rate]) for rate in HOT]
CLAIMS = [
    *at_each(PAIRS, _runes.OOD),
    Claim(_claims.TEST_ACCURACY, "stays", PAIRS[-1], margin=0.02),
    *(claim for rate in (0.03, 0.24, 0.48) for claim in _claims.effect(COLD[rate], HOT[0.12], ood=_runes.OOD)),
]
COST = _runes.COST
