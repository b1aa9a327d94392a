"""What separates the classes that a hot net left at one point? ResNet-18 on SVHN, T = 100, one thing changed at a time.

In each of three seeds of controls/where-svhn digits 0, 6, 8 and 9 ended where the logits are zero, at 80 % of training
images. Decay is known to merge rare classes [fang2021minority], and T acts as a head with T^2 times the decay; training may
also have been too short, or too hot. Features and rows of the head that are both zero give each other no gradient: if that
is why, more epochs do not help. Written down before any of its own runs was made.
"""

from thermocline.experiments import _claims
from thermocline.experiments._claims import Arm, Claim, Curve
from thermocline.experiments.controls import where_svhn
from thermocline.spec import replace

HOT = {"train.temperature": 100.0, "train.weight_decay": 1e-4, "train.epochs": 164}
CHANGES = {
    "no decay": {"train.weight_decay": 0.0},
    "five times the epochs": {"train.epochs": 820},
    "T = 10": {"train.temperature": 10.0},
}
MERGED, *PARTED = [Arm("T = 100", HOT), *(Arm(name, HOT | change) for name, change in CHANGES.items())]
_HOT = [run for run in where_svhn.RUNS if run.train.temperature == HOT["train.temperature"]]
RUNS = [*_HOT, *(replace(run, {**change, "probes": ("ridge",)}) for change in CHANGES.values() for run in _HOT)]
CLAIMS = [
    Claim(quantity, "rises", (MERGED, arm), margin=margin)
    for arm in PARTED
    for quantity, margin in ((_claims.TRAIN_ACCURACY, 0.01), (_claims.SOLUTION_RANK, 0.5))
]
CURVES = [Curve("training accuracy by step", _claims.TRAIN_ACCURACY, "step", (MERGED, *PARTED))]
COST = _claims.Cost("nine runs on 10,000 images, three of them of 820 epochs; the others are controls/where-svhn's", gpu=True)
