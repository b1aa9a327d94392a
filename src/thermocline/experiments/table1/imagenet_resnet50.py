"""Table 1, ImageNet-1k / ResNet-50 [masarczyk2025softmax]: heat costs rank, depth and OOD accuracy.

6 runs of 90 epochs:  thermocline sweep table1/imagenet-resnet50 --data-dir DIR
"""

from thermocline.experiments import _recipes

RUNS = _recipes.cold_and_hot("imagenet", "resnet50", _recipes.IMAGENET)
PUBLISHED = {"effective_depth": (1.00, 0.78), "ood_drop": (0.05, 0.22), "solution_rank": (947, 128)}
