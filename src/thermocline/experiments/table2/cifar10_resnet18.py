"""Table 2, ResNet-18, CIFAR-10 -> CIFAR-100 [masarczyk2025softmax]: heat makes NECO a better detector."""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar10_resnet18

RUNS = cifar10_resnet18.RUNS
CLAIMS = _claims.detection("cifar100", auroc=(0.7775, 0.8753), fpr=(0.7329, 0.5587))
COST = _claims.Cost("the runs of table1/cifar10-resnet18", gpu=True)
