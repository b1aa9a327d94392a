"""Table 3, CIFAR-100 / VGG-19 [masarczyk2025softmax]: already collapsed at T = 1, so that heat changes little but the rank."""

from thermocline.experiments import _claims, _recipes
from thermocline.spec import Net

RUNS = _recipes.cold_and_hot("cifar100", Net("vgg19_bn", init="torch"), _recipes.VGG)
CLAIMS = _claims.table_row(effective_depth=(0.58, 0.58), ood_drop=(0.58, 0.53), solution_rank=(73, 45))
COST = _claims.Cost("160 epochs a run, 18 minutes for six side by side on one H200", gpu=True)
