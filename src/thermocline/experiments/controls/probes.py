"""Do depth and transfer depend on the probe? Logistic regression beside the ridge regression of our tables, on built-in data.

Those of [masarczyk2023tunnel] were trained with Adam, as the logistic ones here are; the same nets are read by both.
"""

from dataclasses import replace

from thermocline.experiments import _claims, _runes
from thermocline.experiments._claims import Arm, Claim, Quantity

RUNS = _runes.runs({"probes": ("ridge", "logistic")})


def _read(arm: Arm, probe: str) -> Arm:
    return replace(arm, label=f"{arm.label}, {probe}", where=(f"probe={probe}",))


def _claims_of(quantity: Quantity, says: _claims.Relation) -> list[Claim]:
    """What heat does by logistic probes, and that both kinds find the same, to half a layer of eight or 0.06."""
    hot = [Claim(quantity, says, (_read(_runes.COLD, "logistic"), _read(_runes.HOT, "logistic")))]
    same = [(_read(arm, "ridge"), _read(arm, "logistic")) for arm in (_runes.COLD, _runes.HOT)]
    return hot + [Claim(quantity, "stays", pair, margin=0.0625) for pair in same]


CLAIMS = [
    *_claims_of(_claims.EFFECTIVE_DEPTH, "falls"),
    *_claims_of(_claims.drop_on(_runes.OOD), "rises"),
    *_claims_of(_claims.early_drop_on(_runes.OOD), "rises"),
]
COST = _claims.Cost("two minutes a run on one CPU core")
