"""Hot nets can lose over 30 % of their dimensions within 1 % of their accuracy [masarczyk2025softmax, abstract].

Dimensions are principal directions of the last features. As many are kept as 99 % of the training accuracy needs, and the
effect on the test accuracy of the same net is judged beside it; and as 99 % of the test accuracy needs, in hindsight, which
these runs are older than (controls/compression has it in small). Layers after the effective depth could be removed too; no
share of them is claimed here, since the paper's own effective depth of this net, 0.83, leaves 17 %.
"""

from thermocline.experiments import _claims
from thermocline.experiments._claims import Arm, Claim
from thermocline.experiments.table1 import cifar100_resnet18

SHARE, RIGHT = ("part=share", "keep=0.99"), ("part=accuracy", "keep=0.99")
DIMENSIONS = _claims.Quantity("share of dimensions needed", "compression", "train", SHARE)
ON_TEST = _claims.Quantity("share of dimensions needed on test images", "compression", "test", SHARE)
AFTER = _claims.Quantity(
    "test accuracy with those, over that before", "compression", "test", RIGHT, shown=".1%", over=_claims.TEST_ACCURACY
)


def claims(cold: Arm, hot: Arm) -> list[Claim]:
    """What the abstract says of a hot net, whether a cold one cannot do as much, and that fewer layers are needed."""
    return [
        Claim(_claims.EFFECTIVE_DEPTH, "falls", (cold, hot)),
        Claim(DIMENSIONS, "at most", (hot,), bound=0.70),
        Claim(AFTER, "at least", (hot,), bound=0.99),
        Claim(DIMENSIONS, "falls", (cold, hot)),
        Claim(ON_TEST, "at most", (hot,), bound=0.70),
        Claim(ON_TEST, "falls", (cold, hot)),
    ]


RUNS = cifar100_resnet18.RUNS
CLAIMS = claims(*_claims.COLD_HOT)
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
