"""Depth is an implicit temperature where it shrinks the first logits, and the same heat costs a deeper net more
[masarczyk2025softmax].

On built-in data, MLPs of 4 and of 12 layers. By torch's default initialisation every layer shrinks what passes through it;
by He's none does, and there T = 1 and T = 500 are compared by depth. Written down before any of its runs was made.
"""

from thermocline.experiments import _claims, _runes
from thermocline.experiments._claims import Arm

DEPTHS = (4, 12)


def _by_depth(label: str, init: str, temperature: float) -> tuple[Arm, Arm]:
    settings = {"net.init": init, "train.temperature": float(temperature)}
    shallow, deep = (Arm(f"{depth} layers, {label}", {"net.depth": depth, **settings}) for depth in DEPTHS)
    return shallow, deep


TORCH, COLD, HOT = _by_depth("torch", "torch", 1), _by_depth("T = 1", "own", 1), _by_depth("T = 500", "own", 500)
RUNS = [
    run
    for init, temperatures in (("torch", (1,)), ("own", (1, 500)))
    for depth in DEPTHS
    for run in _runes.runs({"net.init": init, "net.depth": depth}, temperatures=temperatures)
]
CLAIMS = [
    _claims.Claim(_claims.START_NORM, "falls", TORCH),
    *(
        _claims.Claim(quantity, "falls", arms)
        for arms in (TORCH, COLD, HOT)
        for quantity in (_claims.SOLUTION_RANK, _claims.EFFECTIVE_DEPTH)
    ),
    *(_claims.Claim(_claims.drop_on(_runes.OOD), "rises", arms) for arms in (TORCH, COLD, HOT)),
]
COST = _runes.COST
