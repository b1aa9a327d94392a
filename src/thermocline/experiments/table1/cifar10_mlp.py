"""Table 1, CIFAR-10 / MLP [masarczyk2025softmax]: heat lowers effective depth and OOD accuracy; the rank stays 9."""

from thermocline.experiments import _claims, _recipes
from thermocline.spec import Net

RUNS = _recipes.cold_and_hot("cifar10", Net("mlp"), _recipes.MLP, figures=True)
CLAIMS = _claims.table_row(effective_depth=(0.75, 0.38), ood_drop=(0.67, 0.78), solution_rank=(9, 9), found=True)
COST = _claims.Cost("500 epochs a run, 5 minutes for six side by side on one H200", gpu=True)
