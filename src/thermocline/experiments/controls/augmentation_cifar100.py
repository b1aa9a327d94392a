"""Is the effect there with augmentation, which by itself moves the OOD drop? Crops and flips, ResNet-18 on CIFAR-100."""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18
from thermocline.spec import replace

WAYS = ("none", "crop+flip")
RUNS = [replace(run, {"train.augment": way}) for way in WAYS for run in cifar100_resnet18.RUNS]
CLAIMS = [
    claim
    for way in WAYS
    for claim in _claims.effect(*_claims.with_settings(f"augment {way}", {"train.augment": way}), ood="svhn")
]
COST = _claims.Cost("164 epochs a run, about 4 minutes on one H200; half are those of table1/cifar100-resnet18", gpu=True)
