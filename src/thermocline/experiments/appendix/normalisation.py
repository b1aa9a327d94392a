"""Where a net normalises decides how hot it starts: a layer norm before the head undoes small features [masarczyk2025softmax].

On built-in data. Weights are multiplied by 500^(-1/8), which without a norm makes a T = 1 net as hot at the start as T = 500
would.
"""

from thermocline.experiments import _claims, _runes
from thermocline.experiments.appendix.init import SCALE

NONE, BEFORE = (
    _claims.Arm(label, {"net.logit_norm": way, "net.init_scale": SCALE})
    for label, way in (("no norm", "none"), ("norm before the head", "before"))
)
RUNS = [
    run
    for way in ("none", "before")
    for run in _runes.runs({"net.init_scale": SCALE, "net.logit_norm": way}, temperatures=(1,))
]
CLAIMS = [
    _claims.Claim(_claims.START_NORM, "rises", (NONE, BEFORE)),
    _claims.Claim(_claims.SOLUTION_RANK, "rises", (NONE, BEFORE)),
    _claims.Claim(_claims.EFFECTIVE_DEPTH, "rises", (NONE, BEFORE)),
]
COST = _runes.COST
