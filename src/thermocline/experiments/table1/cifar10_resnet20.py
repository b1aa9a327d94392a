"""Table 1, CIFAR-10 / ResNet-20 [masarczyk2025softmax]: heat costs depth and OOD accuracy; nine directions are all there are.

6 runs of 164 epochs:  thermocline sweep table1/cifar10-resnet20 --data-dir DIR
"""

from thermocline.experiments import _recipes

RUNS = _recipes.cold_and_hot("cifar10", "resnet20", _recipes.RESNET)
PUBLISHED = {"effective_depth": (1.00, 0.75), "ood_drop": (0.10, 0.34), "solution_rank": (9, 9)}
