"""Hot nets can lose over 30 % of their dimensions within 1 % of their accuracy [masarczyk2025softmax, abstract].

Dimensions are principal directions of the last features. As many are kept as 99 % of the training accuracy needs, and the
effect on the test accuracy of the same net is judged beside it. Layers after the effective depth could be removed too; no
share of them is claimed here, since the paper's own effective depth of this net, 0.83, leaves 17 %.
"""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18

DIMENSIONS = _claims.Quantity("share of dimensions needed", "compression", where=("part=share", "keep=0.99"))
AFTER = _claims.Quantity(
    "test accuracy with those, over that before", "compression", "test", ("part=accuracy", "keep=0.99"), shown=".1%",
    over=_claims.TEST_ACCURACY,
)  # fmt: skip
RUNS = cifar100_resnet18.RUNS
CLAIMS = [
    _claims.Claim(_claims.EFFECTIVE_DEPTH, "falls", _claims.COLD_HOT),
    _claims.Claim(DIMENSIONS, "at most", (_claims.HOT,), bound=0.70),
    _claims.Claim(AFTER, "at least", (_claims.HOT,), bound=0.99),
    _claims.Claim(DIMENSIONS, "falls", _claims.COLD_HOT),
]
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
