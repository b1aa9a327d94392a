"""Table 1, ImageNet-100 / ResNet-50 [masarczyk2025softmax]: heat costs rank, depth and OOD accuracy.

6 runs of 90 epochs:  thermocline sweep table1/imagenet100-resnet50 --data-dir DIR
"""

from thermocline.experiments import _recipes

RUNS = _recipes.cold_and_hot("imagenet100", "resnet50", _recipes.IMAGENET)
PUBLISHED = {"effective_depth": (1.00, 0.78), "ood_drop": (0.05, 0.50), "solution_rank": (99, 27)}
