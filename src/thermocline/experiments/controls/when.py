"""When in training does heat act? The same temperatures in two orders: from T = 500 down to 1, and from 1 up to 500.

[masarczyk2025softmax] explains what heat does by how training starts: logits that are too small must grow first. If so, nets
that start hot and end cold should be like hot ones, and nets that start cold and end hot like cold ones. T follows a cosine, so
that both orders have the same temperatures, each for as long; a third way stays cold for half of training and then jumps.
(The jump down is no arm: logits grown at T = 500 are 500 times too large at T = 1, and training diverged in a trial.)
"""

from thermocline.experiments import _claims, _runes
from thermocline.experiments._claims import Arm, Claim, Curve
from thermocline.experiments.demo import BASE
from thermocline.spec import grid, replace

FEW, MANY = 1.0, 500.0
WAYS = {"hot to cold": ("cosine", MANY, FEW), "cold to hot": ("cosine", FEW, MANY), "cold, then hot": ("step", FEW, MANY)}


def _settings(schedule: str, start: float, end: float | None) -> dict[str, object]:
    return {"train.temperature_schedule": schedule, "train.temperature": start, "train.temperature_end": end}


COLD, HOT = (Arm(f"T = {t:g}", _settings("constant", t, None)) for t in (FEW, MANY))
COOLED, HEATED, LATE = (Arm(label, _settings(*way)) for label, way in WAYS.items())
RUNS = [*_runes.runs(), *(run for way in WAYS.values() for run in grid(replace(BASE, _settings(*way)), {"seed": range(3)}))]
CLAIMS = [
    *(Claim(_claims.TRAIN_ACCURACY, "at least", (arm,), bound=0.99) for arm in (COOLED, HEATED, LATE)),
    *(claim for arm in (COOLED, HEATED, LATE) for claim in _claims.effect(COLD, arm, ood=_runes.OOD)),
    # The same temperatures, in another order.
    Claim(_claims.EFFECTIVE_DEPTH, "rises", (COOLED, HEATED)),
    Claim(_claims.drop_on(_runes.OOD), "falls", (COOLED, HEATED)),
    Claim(_claims.SOLUTION_RANK, "rises", (COOLED, HEATED)),
    Claim(_claims.TEST_ACCURACY, "rises", (COOLED, HEATED)),
]
CURVES = [Curve("rank of the logits by training step", _claims.SOLUTION_RANK, "step", (COLD, HOT, COOLED, HEATED, LATE))]
COST = _runes.COST
