"""Table 2, ViT-B, CIFAR-10 -> CIFAR-100 [masarczyk2025softmax]: heat makes NECO a better detector."""

from thermocline.experiments import _claims

RUNS = []
WHY = "it fine-tunes a ViT-B from ImageNet-21k weights; thermocline trains from scratch"
CLAIMS = _claims.detection("cifar100", auroc=(0.9809, 0.9833), fpr=(0.0951, 0.0887))
COST = _claims.Cost("weights that are not here", gpu=True)
