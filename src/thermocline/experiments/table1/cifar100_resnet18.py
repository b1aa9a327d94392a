"""Table 1, CIFAR-100 / ResNet-18 [masarczyk2025softmax]: heat costs rank, depth and OOD accuracy.

6 runs of 164 epochs:  thermocline sweep table1/cifar100-resnet18 --jobs 6 --data-dir DIR
"""

from thermocline.spec import Data, Net, Run, Train, grid

BASE = Run(
    Data("cifar100", ood=("svhn", "cifar10")),
    Net("resnet18"),
    Train(epochs=164, batch=128, lr=0.1, weight_decay=1e-4, schedule="step", precision="bfloat16", snapshots=8),
)
RUNS = grid(BASE, {"seed": range(3), "train.temperature": [1, 100]})
PUBLISHED = {"effective_depth": (1.00, 0.83), "ood_drop": (0.19, 0.50), "solution_rank": (99, 59)}
