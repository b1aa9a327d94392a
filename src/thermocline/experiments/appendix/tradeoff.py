"""Heat trades transfer to other data for their detection [masarczyk2025softmax, App. M].

The correlation over settings: thermocline tradeoff results/table1/cifar100-resnet18
"""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18

RUNS = cifar100_resnet18.RUNS
CLAIMS = [
    claim
    for name in ("svhn", "cifar10")
    for claim in (
        _claims.Claim(_claims.drop_on(name), "rises", _claims.COLD_HOT),
        _claims.Claim(_claims.detected(name, "neco,dim=0.9"), "rises", _claims.COLD_HOT),
    )
]
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
