"""Figure 5 [masarczyk2025softmax]: hot logits keep a low rank, which the softmax raises, while their norm grows.

That the rank is low at its lowest was found on early runs of two of these seeds.
"""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18

AFTER = _claims.Quantity("rank after the softmax", "softmax_rank", where=("of=covariance", "rtol=0.001"), shown=".1f")
RUNS = cifar100_resnet18.RUNS
CLAIMS = [
    _claims.Claim(_claims.SOLUTION_RANK, "falls", _claims.COLD_HOT),
    _claims.Claim(_claims.LOWEST_RANK, "falls", _claims.COLD_HOT, found=True),
    _claims.Claim(AFTER, "at least", (_claims.HOT,), bound=99.0),
]
CURVES = [
    _claims.Curve("rank of the logits by training step", _claims.SOLUTION_RANK, "step", _claims.COLD_HOT),
    _claims.Curve("rank after the softmax", AFTER, "step", _claims.COLD_HOT),
    _claims.Curve("||M|| / sqrt(n)", _claims.LOGIT_NORM, "step", _claims.COLD_HOT, log=True),
]
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
