"""Do depth and transfer depend on the probe? As controls/probes, with a ResNet-20 on CIFAR-10, whose other data are SVHN.

Since these nets are not those of table1/cifar10-resnet20, what controls/where says of that one is asked of them too, by each
probe. The rows were there when it was asked, so it counts as found on them.
"""

import dataclasses

from thermocline.experiments import _claims
from thermocline.experiments.controls import probes, where
from thermocline.experiments.table1 import cifar10_resnet20
from thermocline.spec import replace

READ = ("accuracy", "probe_accuracy", "effective_depth", "ood_drop")
CHANGES = {"probes": tuple(probes.NAMED.values()), "measures": READ, "data.ood": ("svhn",), "train.snapshots": 1}
RUNS = [replace(run, CHANGES) for run in cifar10_resnet20.RUNS]
ARMS = {name: (probes.read(_claims.COLD, name), probes.read(_claims.HOT, name)) for name in probes.NAMED}
CLAIMS = [
    *probes.claims(_claims.COLD_HOT, ood="svhn"),
    *(dataclasses.replace(claim, found=True) for arms in ARMS.values() for claim in where.claims(arms, ("svhn",))),
]
CURVES = where.curves(ARMS, ("svhn",))
COST = _claims.Cost("164 epochs a run, 5 minutes for six side by side on one H200", gpu=True)
