"""When in training does heat act? T from 100 down to 1 and from 1 up to 100, on the ResNet-18 of table 1 and CIFAR-100.

The same question as controls/when, which has built-in data. Written down before any of its own runs was made.
"""

from thermocline.experiments import _claims
from thermocline.experiments.controls.when import claims, curves, orders, runs
from thermocline.experiments.table1.cifar100_resnet18 import RUNS as PRINTED

ARMS = orders(100.0, PRINTED[0].train.lr)
RUNS = runs(PRINTED[0], ARMS)
CLAIMS = claims(ARMS, "svhn")
CURVES = curves(ARMS, "svhn")
COST = _claims.Cost("164 epochs a run, about 4 minutes on one H200", gpu=True)
