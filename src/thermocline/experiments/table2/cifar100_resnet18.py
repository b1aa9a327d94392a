"""Table 2, ResNet-18, CIFAR-100 -> CIFAR-10 [masarczyk2025softmax]: heat makes NECO a better detector.

How many dimensions the paper keeps is not known. Ours follow the rule that needs no test data, 90 % of the training
variance. Beside it stands the AUROC at the number that is best for the very images reported on, which is how NECO's authors
choose it.
"""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18

RUNS = cifar100_resnet18.RUNS
CLAIMS = _claims.detection("cifar10", auroc=(0.6366, 0.7704), fpr=(0.9044, 0.8013))
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
