"""Hot nets collapse within classes, but not to the simplex of c - 1 directions [masarczyk2025softmax, papyan2020collapse]."""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18

RUNS = cifar100_resnet18.RUNS
CLAIMS = [
    _claims.Claim(_claims.NC["nc1"], "falls", _claims.COLD_HOT),
    _claims.Claim(_claims.NC["nc2_equiangular"], "rises", _claims.COLD_HOT),
    _claims.Claim(_claims.NC["nc2_equinorm"], "rises", _claims.COLD_HOT),
    _claims.Claim(_claims.NC["nc3"], "rises", _claims.COLD_HOT),
]
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
