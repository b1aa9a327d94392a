"""Table 3, CIFAR-10 / VGG-19 [masarczyk2025softmax]: collapsed at T = 1 already.

6 runs of 160 epochs:  thermocline sweep table3/cifar10-vgg19 --data-dir DIR
"""

from thermocline.experiments import _recipes

RUNS = _recipes.cold_and_hot("cifar10", "vgg19", _recipes.VGG)
PUBLISHED = {"effective_depth": (0.47, 0.53), "ood_drop": (0.64, 0.64), "solution_rank": (9, 9)}
