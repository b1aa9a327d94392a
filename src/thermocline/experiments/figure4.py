"""Figure 4 [masarczyk2025softmax]: the rank of a layer's inputs bounds that of its gradient, and both are low in hot nets.

The bound is linear algebra, dL/dW = (dL/dZ) A^T; what can fail is that both are low. Measured on the MLP of built-in data,
and on the ResNet-18 of table 1, whose gradients need not behave like the MLP's.
"""

from thermocline.experiments import _claims, _runes
from thermocline.experiments.table1 import cifar100_resnet18, runes_mlp

RULE = ("of=covariance", "rtol=0.001")
ARMS = {
    "MLP": _runes.arms("runes MLP", {"data.name": "runes"}),
    "ResNet-18": _claims.with_settings("CIFAR-100 ResNet-18", {"data.name": "cifar100"}),
}
GRADIENT = _claims.Quantity("gradient rank, mean over layers", "gradient_rank", where=RULE, by="layers", shown=".1f")
RANK = _claims.Quantity("rank of outputs, mean over layers", "rank", where=RULE, by="layers", shown=".1f")
RUNS = [*runes_mlp.RUNS, *cifar100_resnet18.RUNS]
CLAIMS = [_claims.Claim(quantity, "falls", arms) for arms in ARMS.values() for quantity in (GRADIENT, RANK)]
CURVES = [
    _claims.Curve(f"{quantity.measure} by layer, {net}", quantity, "depth", arms)
    for net, arms in ARMS.items()
    for quantity in (GRADIENT, RANK)
]
COST = _claims.Cost("the runs of table1/runes-mlp and of table1/cifar100-resnet18", gpu=True)
