"""Figure 7 [masarczyk2025softmax]: other data end up closer to orthogonal to the class means of a hot net."""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18

RUNS = cifar100_resnet18.RUNS
DEVIATIONS = [
    _claims.Quantity(f"OrthoDev, {name}", "orthodev", f"{name}/test", ("centered=false",)) for name in ("svhn", "cifar10")
]
CLAIMS = [_claims.Claim(quantity, "falls", _claims.COLD_HOT) for quantity in DEVIATIONS]
CURVES = [_claims.Curve(f"{quantity.name} by training step", quantity, "step", _claims.COLD_HOT) for quantity in DEVIATIONS]
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
