"""Do depth and transfer depend on the probe? Three others beside the ridge regression of our tables, on built-in data.

The probes of [masarczyk2023tunnel] were trained with Adam on activations as they are, and so are the first logistic ones
here. Late activations of hot nets are large, but the steps of Adam stay the same; so the second logistic ones are fitted to
standardised activations. The penalty of our ridge regressions, 1e-3 of the mean variance, hides what varies little; that of
the weak ones is 1e-8. All probes read the same nets.
"""

from dataclasses import replace

from thermocline.experiments import _claims, _runes
from thermocline.experiments._claims import Arm, Claim, Quantity
from thermocline.spec import Probe

OTHERS: dict[str, Probe] = {"weak ridge": "ridge-weak", "logistic": "logistic", "standardised": "logistic-standard"}
NAMED: dict[str, Probe] = {"ridge": "ridge", **OTHERS}
RUNS = _runes.runs({"probes": tuple(NAMED.values())})


def read(arm: Arm, probe: str) -> Arm:
    """The runs of an arm, by one of the probes that read them."""
    return replace(arm, label=f"{arm.label}, {probe}", where=(f"probe={NAMED[probe]}",))


def _claims_of(quantity: Quantity, says: _claims.Relation, arms: tuple[Arm, Arm]) -> list[Claim]:
    hot = [Claim(quantity, says, (read(arms[0], probe), read(arms[1], probe))) for probe in OTHERS]
    pairs = [*(("ridge", probe) for probe in OTHERS), ("logistic", "standardised")]
    same = [(read(arm, one), read(arm, other)) for one, other in pairs for arm in arms]
    return hot + [Claim(quantity, "stays", pair, margin=0.0625) for pair in same]


def claims(arms: tuple[Arm, Arm], *, ood: str) -> list[Claim]:
    """What heat does by other probes, and that they find the same, to half a layer of eight or 0.06."""
    return [
        *_claims_of(_claims.EFFECTIVE_DEPTH, "falls", arms),
        *_claims_of(_claims.drop_on(ood), "rises", arms),
        *_claims_of(_claims.early_drop_on(ood), "rises", arms),
    ]


CLAIMS = claims((_runes.COLD, _runes.HOT), ood=_runes.OOD)
COST = _claims.Cost("three minutes a run on one CPU core")
