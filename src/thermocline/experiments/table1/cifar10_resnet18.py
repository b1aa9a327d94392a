"""Table 1, CIFAR-10 / ResNet-18 [masarczyk2025softmax]: heat costs depth and OOD accuracy; nine directions are all there are.

6 runs of 164 epochs:  thermocline sweep table1/cifar10-resnet18 --data-dir DIR
"""

from thermocline.experiments import _recipes

RUNS = _recipes.cold_and_hot("cifar10", "resnet18", _recipes.RESNET)
PUBLISHED = {"effective_depth": (1.00, 0.67), "ood_drop": (0.29, 0.54), "solution_rank": (9, 9)}
