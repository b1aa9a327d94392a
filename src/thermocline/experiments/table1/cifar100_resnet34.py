"""Table 1, CIFAR-100 / ResNet-34 [masarczyk2025softmax]: heat lowers rank, effective depth and OOD accuracy."""

from thermocline.experiments import _claims, _recipes
from thermocline.spec import Net

RUNS = _recipes.cold_and_hot("cifar100", Net("resnet34"), _recipes.RESNET34)
CLAIMS = _claims.table_row(effective_depth=(1.00, 0.68), ood_drop=(0.16, 0.51), solution_rank=(99, 72))
COST = _claims.Cost("164 epochs a run, 26 minutes for six side by side on one H200", gpu=True)
