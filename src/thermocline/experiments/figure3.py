"""Figure 3, MLP on CIFAR-10 [masarczyk2025softmax]: hot weights turn towards their inputs, and few directions take over."""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar10_mlp

ALIGNMENT = _claims.Quantity("alignment, mean over layers", "alignment", where=("part=max", "top=15"), by="layers")
RANK = _claims.Quantity("rank, mean over layers", "rank", where=("of=covariance", "rtol=0.001"), by="layers", shown=".1f")
STABLE = _claims.Quantity("stable rank, mean over layers", "stable_rank", by="layers", shown=".3g")
RUNS = cifar10_mlp.RUNS
CLAIMS = [
    _claims.Claim(ALIGNMENT, "rises", _claims.COLD_HOT),
    _claims.Claim(RANK, "falls", _claims.COLD_HOT),
    _claims.Claim(STABLE, "falls", _claims.COLD_HOT),
]
CURVES = [
    _claims.Curve("alignment by training step", ALIGNMENT, "step", _claims.COLD_HOT),
    _claims.Curve("alignment by layer", ALIGNMENT, "depth", _claims.COLD_HOT),
    _claims.Curve("rank by layer", RANK, "depth", _claims.COLD_HOT),
]
COST = _claims.Cost("the runs of table1/cifar10-mlp", gpu=True)
