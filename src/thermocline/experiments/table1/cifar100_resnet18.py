"""Table 1, CIFAR-100 / ResNet-18 [masarczyk2025softmax]: heat costs rank, depth and OOD accuracy.

6 runs of 164 epochs:  thermocline sweep table1/cifar100-resnet18 --data-dir DIR
"""

from thermocline.experiments import _recipes

RUNS = _recipes.cold_and_hot("cifar100", "resnet18", _recipes.RESNET)
PUBLISHED = {"effective_depth": (1.00, 0.83), "ood_drop": (0.19, 0.50), "solution_rank": (99, 59)}
