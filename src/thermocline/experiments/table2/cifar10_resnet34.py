"""Table 2, ResNet-34, CIFAR-10 -> CIFAR-100 [masarczyk2025softmax]: heat makes NECO a better detector."""

from thermocline.experiments import _claims, _recipes
from thermocline.spec import Net

RUNS = _recipes.cold_and_hot("cifar10", Net("resnet34"), _recipes.RESNET34)
CLAIMS = _claims.detection("cifar100", auroc=(0.7396, 0.8618), fpr=(0.7360, 0.5723))
COST = _claims.Cost("164 epochs a run, 23 minutes for four side by side on one H200", gpu=True)
