"""Table 2, ResNet-34, CIFAR-100 -> CIFAR-10 [masarczyk2025softmax]: heat makes NECO a better detector."""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet34

RUNS = cifar100_resnet34.RUNS
CLAIMS = _claims.detection("cifar10", auroc=(0.6236, 0.7637), fpr=(0.9113, 0.7927))
COST = _claims.Cost("the runs of table1/cifar100-resnet34", gpu=True)
