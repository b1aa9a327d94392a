"""Is heat more than a learning rate? ResNet-18 on CIFAR-100, cold and hot, at a third and at three times the rate of table 1.

The question of controls/learning-rate, where nets without normalisation lose layers and transfer by a higher rate as by heat,
and only heat lowers the rank. Written down before any of its own runs was made; those at 0.1 are of table1/cifar100-resnet18.
"""

from thermocline.experiments import _claims
from thermocline.experiments.controls.learning_rate import arm, at_each, runs
from thermocline.experiments.table1.cifar100_resnet18 import RUNS as PRINTED

OTHERS = (0.03, 0.3)
COLD, HOT = ({rate: arm(temperature, rate) for rate in (0.1, *OTHERS)} for temperature in (1.0, 100.0))
RUNS = runs(PRINTED[0], (*COLD.values(), *HOT.values()))
CLAIMS = [
    *_claims.effect(COLD[0.1], HOT[0.1], ood="svhn"),
    *at_each([(COLD[rate], HOT[rate]) for rate in OTHERS], "svhn"),
    *(claim for rate in OTHERS for claim in _claims.effect(COLD[rate], HOT[0.1], ood="svhn")),
]
COST = _claims.Cost("164 epochs a run, about 4 minutes on one H200; a third are those of table1/cifar100-resnet18", gpu=True)
