"""Table 1, CIFAR-100 / ResNet-18 [masarczyk2025softmax]: heat lowers rank, effective depth and OOD accuracy."""

from thermocline.experiments import _claims, _recipes
from thermocline.spec import Net

RUNS = _recipes.cold_and_hot("cifar100", Net("resnet18"), _recipes.RESNET, figures=True)
CLAIMS = _claims.table_row(effective_depth=(1.00, 0.83), ood_drop=(0.19, 0.50), solution_rank=(99, 59), found=True)
COST = _claims.Cost("164 epochs a run, 18 minutes for six side by side on one H200", gpu=True)
