"""Is mild heat more than a learning rate? For a CPU: a narrow ResNet-20 on SVHN, T = 10, and T = 1 at three learning rates.

The question of controls/learning-rate of a net with normalisation, and of controls/where-svhn-warm, where heat helps at one
rate. What T = 10 does to a cold net is asked at each rate of the cold one, and then what a higher and a lower rate do to it.
Probed for CIFAR-10. Written down before these runs; of two of the four arms, those at a rate of 0.1, probes, ranks and
accuracies were known from controls/where-small.
"""

from collections.abc import Iterator

from thermocline import spec
from thermocline.experiments import _claims
from thermocline.experiments._claims import Arm, Claim
from thermocline.experiments.controls import where_small
from thermocline.experiments.controls.learning_rate import arm, runs

MEASURES = (
    "accuracy", "loss", "logit_norm", "solution_rank", "rank", "probe_accuracy", "effective_depth", "ood_drop", "auroc",
    "neco_oracle", "neco_by_dim",
)  # fmt: skip
BASE = spec.replace(where_small.BASE, {"measures": MEASURES, "probes": ("ridge",)})
COLD = {rate: arm(1.0, rate) for rate in (0.1, 0.03, 0.3)}
HOT = arm(10.0, 0.1)
RUNS = runs(BASE, (*COLD.values(), HOT))


def claims(one: Arm, other: Arm) -> Iterator[Claim]:
    """What heat is said to do, and that it costs no accuracy, of any two arms."""
    yield Claim(_claims.EFFECTIVE_DEPTH, "falls", (one, other))
    yield from (Claim(drop("cifar10"), "rises", (one, other)) for drop in (_claims.drop_on, _claims.early_drop_on))
    yield Claim(_claims.TEST_ACCURACY, "rises", (one, other))
    yield Claim(_claims.detected("cifar10", "neco,dim=0.9"), "rises", (one, other))


CLAIMS = [
    *(claim for cold in COLD.values() for claim in claims(cold, HOT)),
    *(claim for rate in (0.03, 0.3) for claim in claims(COLD[0.1], COLD[rate])),
]
COST = _claims.Cost("about ten minutes a run on one CPU core")
