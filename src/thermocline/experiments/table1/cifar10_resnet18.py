"""Table 1, CIFAR-10 / ResNet-18 [masarczyk2025softmax]: heat lowers effective depth and OOD accuracy; the rank stays 9."""

from thermocline.experiments import _claims, _recipes
from thermocline.spec import Net

RUNS = _recipes.cold_and_hot("cifar10", Net("resnet18"), _recipes.RESNET)
CLAIMS = _claims.table_row(effective_depth=(1.00, 0.67), ood_drop=(0.29, 0.54), solution_rank=(9, 9), found=True)
COST = _claims.Cost("164 epochs a run, 15 minutes for six side by side on one H200", gpu=True)
