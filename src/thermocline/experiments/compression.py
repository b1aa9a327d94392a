"""Hot nets can lose over 30 % of their dimensions within 1 % of their accuracy [masarczyk2025softmax, abstract].

Layers: those after the effective depth, with its probe as head. Dimensions: principal directions of the last features; as many
are kept as 99 % of the training accuracy needs, and the test accuracy with those stands beside it.
"""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18

DIMENSIONS = _claims.Quantity("share of dimensions needed", "compression", where=("part=share", "keep=0.99"))
AFTERWARDS = _claims.Quantity("test accuracy with those", "compression", "test", ("part=accuracy",), shown=".1%")
RUNS = cifar100_resnet18.RUNS
CLAIMS = [
    _claims.Claim(_claims.EFFECTIVE_DEPTH, "at most", (_claims.HOT,), bound=0.70),
    _claims.Claim(_claims.EFFECTIVE_DEPTH, "falls", _claims.COLD_HOT),
    _claims.Claim(DIMENSIONS, "at most", (_claims.HOT,), bound=0.70),
    _claims.Claim(DIMENSIONS, "falls", _claims.COLD_HOT),
    _claims.Claim(AFTERWARDS, "stays", _claims.COLD_HOT, margin=0.05),
]
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
