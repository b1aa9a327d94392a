"""Do depth and transfer depend on the probe? As controls/probes, with a ResNet-20 on CIFAR-10, whose other data are SVHN."""

from thermocline.experiments import _claims
from thermocline.experiments.controls import probes
from thermocline.experiments.table1 import cifar10_resnet20
from thermocline.spec import replace

READ = ("accuracy", "probe_accuracy", "effective_depth", "ood_drop")
CHANGES = {"probes": tuple(probes.NAMED.values()), "measures": READ, "data.ood": ("svhn",), "train.snapshots": 1}
RUNS = [replace(run, CHANGES) for run in cifar10_resnet20.RUNS]
CLAIMS = probes.claims(_claims.COLD_HOT, ood="svhn")
COST = _claims.Cost("164 epochs a run", gpu=True)
