"""Table 1, CIFAR-100 / ResNet-34 [masarczyk2025softmax]: heat costs rank, depth and OOD accuracy.

6 runs of 164 epochs:  thermocline sweep table1/cifar100-resnet34 --data-dir DIR
"""

from thermocline.experiments import _recipes

RUNS = _recipes.cold_and_hot("cifar100", "resnet34", _recipes.RESNET)
PUBLISHED = {"effective_depth": (1.00, 0.68), "ood_drop": (0.16, 0.51), "solution_rank": (99, 72)}
