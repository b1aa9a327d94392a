"""Hot nets collapse within classes, but not to the simplex of c - 1 directions [masarczyk2025softmax, papyan2020collapse].

On CIFAR-100, with a ResNet-18 and a ResNet-34. That these are judged by ratios was settled after the rows of the first
existed, and before two of the three seeds of the second did. The angles of the head's rows were found on these rows.
"""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18, cifar100_resnet34

NETS = ("resnet18", "resnet34")
SAYS: dict[str, _claims.Relation] = {
    "nc1": "falls", "nc2_equiangular": "rises", "nc2_equiangular_weights": "rises", "nc2_equinorm": "rises", "nc3": "rises",
}  # fmt: skip
RUNS = [*cifar100_resnet18.RUNS, *cifar100_resnet34.RUNS]
CLAIMS = [
    _claims.Claim(_claims.NC[part], says, _claims.with_settings(net, {"net.name": net}), found=part.endswith("weights"))
    for net in NETS
    for part, says in SAYS.items()
]
COST = _claims.Cost("the runs of table1/cifar100-resnet18 and of table1/cifar100-resnet34", gpu=True)
