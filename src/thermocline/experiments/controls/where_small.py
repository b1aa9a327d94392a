"""Where in a net does heat cost transfer? As controls/where-svhn, for a CPU: a narrow ResNet-20 on SVHN, at T = 1 and 10.

Probed for CIFAR-10 by three probes. Written down before these runs, but after one trial, at seed 99, which had shown all
nine claims.
"""

from thermocline.experiments import _claims
from thermocline.experiments._claims import COLD, temperature
from thermocline.experiments.controls import probes
from thermocline.experiments.controls.where import claims, curves
from thermocline.experiments.controls.where_svhn import NAMED
from thermocline.spec import Data, Net, Run, Train, grid

BASE = Run(
    Data("svhn", ood=("cifar10",)),
    Net("resnet20", width=8),
    Train(epochs=22, weight_decay=1e-4, schedule="step", snapshots=2),
    measures=("accuracy", "logit_norm", "probe_accuracy", "rank"),
    probes=tuple(NAMED.values()),
)
ARMS = {name: (probes.read(COLD, name), probes.read(temperature(10), name)) for name in NAMED}
RUNS = grid(BASE, {"seed": range(3), "train.temperature": [1, 10]})
CLAIMS = [claim for arms in ARMS.values() for claim in claims(arms, ("cifar10",))]
CURVES = curves(ARMS, ("cifar10",))
COST = _claims.Cost("twelve minutes a run on one CPU core")
