"""Figure 7 [masarczyk2025softmax]: other data end up closer to orthogonal to the class means of a hot net."""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18

RUNS = cifar100_resnet18.RUNS
CLAIMS = [
    _claims.Claim(
        _claims.Quantity(f"OrthoDev, {name}", "orthodev", f"{name}/test", ("centered=false",)), "falls", _claims.COLD_HOT
    )
    for name in ("svhn", "cifar10")
]
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
