"""Table 3, CIFAR-10 / VGG-19 [masarczyk2025softmax]: already collapsed at T = 1, so that heat changes little."""

from thermocline.experiments import _claims, _recipes
from thermocline.spec import Net

RUNS = _recipes.cold_and_hot("cifar10", Net("vgg19_bn", init="torch"), _recipes.VGG)
CLAIMS = _claims.table_row(effective_depth=(0.47, 0.53), ood_drop=(0.64, 0.64), solution_rank=(9, 9))
COST = _claims.Cost("160 epochs a run, 15 minutes for five side by side on one H200", gpu=True)
