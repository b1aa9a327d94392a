"""Does heat help detection in a well trained net? NECO's own recipe [benammar2024neco], cold and hot, eight detectors.

Its authors report 95.5 % (CIFAR-10) and 78.6 % (CIFAR-100) at T = 1, and NECO at 86.61 / 57.81 and 70.26 / 85.70 (AUROC /
FPR95, CIFAR-10 -> CIFAR-100 and back): what table 2 of [masarczyk2025softmax] calls the baseline is far below that. Every
detector is at its authors' settings. NECO is also at its oracle, the number of axes that is best for the very images
reported on, as its authors chose it. For each detector the claim tested is that heat helps. Hot is T = 10: at T = 100 a net
got 4 % of its training images right in the 12 epochs of a trial. What the same nets show of table 1, at equal accuracy, was
found on their rows.
"""

from thermocline.experiments import _claims
from thermocline.experiments._claims import Arm, Claim
from thermocline.spec import Data, Net, Run, Train, grid

RECIPE = Train(
    epochs=200, batch=128, lr=0.1, weight_decay=5e-4, schedule="cosine", augment="crop+flip", precision="bfloat16",
    compile=True, snapshots=4,
)  # fmt: skip
HOT = 10
PAIRS = {"cifar10": "cifar100", "cifar100": "cifar10"}
RUNS = [
    run
    for name, other in PAIRS.items()
    for run in grid(
        Run(Data(name, ood=(other, "svhn")), Net("resnet18"), RECIPE), {"seed": range(3), "train.temperature": [1, HOT]}
    )
]
DETECTORS = ("neco,dim=0.9", "msp", "maxlogit", "energy", "knn", "mahalanobis", "vim", "react")


def _arm(name: str, temperature: float) -> Arm:
    return Arm(f"{name}, T = {temperature:g}", {"data.name": name, "train.temperature": float(temperature)})


def _seen(cold: Arm, hot: Arm) -> list[Claim]:
    return [
        Claim(_claims.TEST_ACCURACY, "stays", (cold, hot), margin=0.01, found=True),
        Claim(_claims.EFFECTIVE_DEPTH, "falls", (cold, hot), found=True),
        *(Claim(drop("svhn"), "rises", (cold, hot), found=True) for drop in (_claims.drop_on, _claims.early_drop_on)),
    ]


CLAIMS = [
    *(
        Claim(_claims.TEST_ACCURACY, "at least", (_arm(name, 1),), (known,), bound=known - 0.01)
        for name, known in (("cifar10", 0.955), ("cifar100", 0.786))
    ),
    *(
        Claim(_claims.detected(other, detector), "rises", (_arm(name, 1), _arm(name, HOT)))
        for name, other in PAIRS.items()
        for detector in DETECTORS
    ),
    *(
        Claim(auroc, "rises", (_arm(name, 1), _arm(name, HOT)))
        for name, other in PAIRS.items()
        for auroc in (_claims.at_best(other), _claims.at_dim(other, 100))
    ),
    *(claim for name in PAIRS for claim in _seen(_arm(name, 1), _arm(name, HOT))),
    Claim(_claims.SOLUTION_RANK, "falls", (_arm("cifar100", 1), _arm("cifar100", HOT)), found=True),
]
COST = _claims.Cost("200 epochs a run, about 4 minutes on one H200", gpu=True)
