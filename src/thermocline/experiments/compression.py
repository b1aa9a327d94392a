"""Hot nets can lose over 30 % of their dimensions within 1 % of their accuracy [masarczyk2025softmax, abstract].

Dimensions are principal directions of the training images' last features; how many keep 99 % of the accuracy is asked of
training and of test images. These runs are older than the second (controls/compression has it in small). Layers after the
effective depth could be removed too; no share of them is claimed here, since the paper's own effective depth of this net,
0.83, leaves 17 %.
"""

from thermocline.experiments import _claims
from thermocline.experiments._claims import Arm, Claim
from thermocline.experiments.table1 import cifar100_resnet18

SHARE = ("part=share", "keep=0.99")
ON_TRAIN = _claims.Quantity("share of dimensions needed, training images", "compression", "train", SHARE)
ON_TEST = _claims.Quantity("share of dimensions needed, test images", "compression", "test", SHARE)


def claims(cold: Arm, hot: Arm) -> list[Claim]:
    """What the abstract says of a hot net, whether heat lowers what is needed, and that fewer layers are."""
    return [
        Claim(_claims.EFFECTIVE_DEPTH, "falls", (cold, hot)),
        *(Claim(share, "at most", (hot,), bound=0.70) for share in (ON_TRAIN, ON_TEST)),
        *(Claim(share, "falls", (cold, hot)) for share in (ON_TRAIN, ON_TEST)),
    ]


RUNS = cifar100_resnet18.RUNS
CLAIMS = claims(*_claims.COLD_HOT)
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
