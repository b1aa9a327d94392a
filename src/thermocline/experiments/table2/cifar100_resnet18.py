"""Table 2, ResNet-18, CIFAR-100 -> CIFAR-10 [masarczyk2025softmax]: heat makes NECO a better detector."""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18

RUNS = cifar100_resnet18.RUNS
CLAIMS = _claims.detection("cifar10", auroc=(0.6366, 0.7704), fpr=(0.9044, 0.8013))
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
