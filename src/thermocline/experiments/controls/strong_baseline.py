"""Does heat help detection beside a well trained net? NECO's own recipe [benammar2024neco], cold and hot, all detectors.

Its authors report 95.5 % (CIFAR-10) and 78.6 % (CIFAR-100) at T = 1, and NECO at 86.61 / 57.81 and 70.26 / 85.70
(AUROC / FPR95, CIFAR-10 -> CIFAR-100 and back): what table 2 of [masarczyk2025softmax] calls the baseline is far below that.
12 runs of 200 epochs:  thermocline sweep controls/strong-baseline --data-dir DIR
"""

from thermocline.spec import Data, Net, Run, Train, grid

RECIPE = Train(
    epochs=200, batch=128, lr=0.1, weight_decay=5e-4, schedule="cosine", augment="crop+flip", precision="bfloat16",
    compile=True, snapshots=4,
)  # fmt: skip
RUNS = [
    run
    for name, other in (("cifar10", "cifar100"), ("cifar100", "cifar10"))
    for run in grid(
        Run(Data(name, ood=(other, "svhn")), Net("resnet18"), RECIPE), {"seed": range(3), "train.temperature": [1, 100]}
    )
]
PUBLISHED = {"accuracy": {"cifar10": 0.955, "cifar100": 0.786}}
