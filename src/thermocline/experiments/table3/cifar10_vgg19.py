"""Table 3, CIFAR-10 / VGG-19 [masarczyk2025softmax]: collapsed at T = 1 already, so that heat changes little."""

from thermocline.experiments import _claims, _recipes

RUNS = _recipes.cold_and_hot("cifar10", "vgg19", _recipes.VGG)
CLAIMS = _claims.table_row(effective_depth=(0.47, 0.53), ood_drop=(0.64, 0.64), solution_rank=(9, 9))
COST = _claims.Cost("160 epochs a run", gpu=True)
