"""Table 2, ViT-B, CIFAR-100 -> CIFAR-10 [masarczyk2025softmax]: heat makes NECO a better detector."""

from thermocline.experiments import _claims

RUNS = []
WHY = "it fine-tunes a ViT-B from ImageNet-21k weights; thermocline trains from scratch"
CLAIMS = _claims.detection("cifar10", auroc=(0.9238, 0.9396), fpr=(0.4001, 0.3092))
COST = _claims.Cost("weights that are not here", gpu=True)
