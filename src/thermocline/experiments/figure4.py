"""Figure 4 [masarczyk2025softmax]: the rank of a layer's inputs bounds that of its gradient, and both are low in hot nets."""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18

RULE = ("of=covariance", "rtol=0.001")
GRADIENT = _claims.Quantity("gradient rank, mean over layers", "gradient_rank", where=RULE, by="layers", shown=".1f")
BOUND = _claims.Quantity("share of layers within the bound", "gradient_rank", where=RULE, by="gradient bound", shown=".2f")
RUNS = cifar100_resnet18.RUNS
CLAIMS = [
    _claims.Claim(GRADIENT, "falls", _claims.COLD_HOT),
    *(_claims.Claim(BOUND, "at least", (arm,), bound=1.0) for arm in _claims.COLD_HOT),
]
CURVES = [_claims.Curve("gradient rank by layer", GRADIENT, "depth", _claims.COLD_HOT)]
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
