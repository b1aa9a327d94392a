"""Does weight decay cause the effect, or hide it? Decay 0, 1e-4 and 5e-4, cold and hot, ResNet-18 on CIFAR-100."""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18
from thermocline.spec import replace

DECAYS = (1e-4, 0.0, 5e-4)
RUNS = [replace(run, {"train.weight_decay": decay}) for decay in DECAYS for run in cifar100_resnet18.RUNS]
CLAIMS = [
    claim
    for decay in DECAYS
    for claim in _claims.effect(*_claims.with_settings(f"decay {decay:g}", {"train.weight_decay": decay}), ood="svhn")
]
COST = _claims.Cost("164 epochs a run, about 4 minutes on one H200; a third are those of table1/cifar100-resnet18", gpu=True)
