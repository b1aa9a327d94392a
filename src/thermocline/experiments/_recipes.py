"""The recipes of [masarczyk2023tunnel]. Those of [masarczyk2025softmax] are in an appendix we do not have."""

from dataclasses import replace

from thermocline.spec import Data, Net, Run, Train, grid

RESNET = Train(
    epochs=164, batch=128, lr=0.1, weight_decay=1e-4, schedule="step", precision="bfloat16", compile=True, snapshots=4
)  # fmt: skip
RESNET34 = replace(RESNET, snapshots=1)  # before and after training: 34 layers take long to measure
VGG = replace(RESNET, epochs=160, snapshots=2)
MLP = Train(epochs=500, batch=128, lr=0.05, momentum=0.0, schedule="constant", precision="bfloat16")
IMAGENET = Train(
    epochs=90, batch=256, lr=0.1, weight_decay=1e-4, schedule="step", milestones=(1 / 3, 2 / 3), augment="crop+flip",
    precision="bfloat16", snapshots=4,
)  # fmt: skip
OTHERS = {
    "cifar10": ("svhn", "cifar100"), "cifar100": ("svhn", "cifar10"), "svhn": ("cifar10", "cifar100"),
    "imagenet100": ("cifar10",), "imagenet": ("cifar10",),
}  # fmt: skip


def cold_and_hot(data: str, net: Net, recipe: Train, *, figures: bool = False) -> list[Run]:
    """Three seeds at T = 1 and at T = 100, whose logits start a hundred times smaller.

    Runs that `figures` show by training step are looked at more often, and alignment and OrthoDev are followed in them.
    """
    train = replace(recipe, snapshots=8) if figures else recipe
    base = Run(Data(data, ood=OTHERS[data]), net, train, follow=("alignment", "orthodev") if figures else ())
    return grid(base, {"seed": range(3), "train.temperature": [1, 100]})
