"""Table 1, CIFAR-10 / MLP [masarczyk2025softmax]: heat costs depth and OOD accuracy; nine directions are all there are.

6 runs of 1000 epochs:  thermocline sweep table1/cifar10-mlp --data-dir DIR
"""

from thermocline.experiments import _recipes

RUNS = _recipes.cold_and_hot("cifar10", "mlp", _recipes.MLP)
PUBLISHED = {"effective_depth": (0.75, 0.38), "ood_drop": (0.67, 0.78), "solution_rank": (9, 9)}
