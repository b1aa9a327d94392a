"""Table 1, ImageNet-100 / ResNet-34 [masarczyk2025softmax]: heat costs rank, depth and OOD accuracy.

6 runs of 90 epochs:  thermocline sweep table1/imagenet100-resnet34 --data-dir DIR
"""

from thermocline.experiments import _recipes

RUNS = _recipes.cold_and_hot("imagenet100", "resnet34", _recipes.IMAGENET)
PUBLISHED = {"effective_depth": (1.00, 0.85), "ood_drop": (0.06, 0.52), "solution_rank": (99, 42)}
