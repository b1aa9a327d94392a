"""Figure 1, CIFAR-100 -> SVHN [masarczyk2025softmax]: hot nets need fewer layers, and their late layers lose other data."""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18

PROBE = _claims.Quantity("probe accuracy", "probe_accuracy", "test", by="last layer", shown=".1%")
OTHER = _claims.Quantity(
    "probe accuracy on svhn at the last layer", "probe_accuracy", "svhn/test", by="last layer", shown=".1%"
)
RUNS = cifar100_resnet18.RUNS
CLAIMS = [
    _claims.Claim(_claims.EFFECTIVE_DEPTH, "falls", _claims.COLD_HOT),
    _claims.Claim(_claims.drop_on("svhn"), "rises", _claims.COLD_HOT),
    _claims.Claim(OTHER, "falls", _claims.COLD_HOT),
]
CURVES = [
    _claims.Curve("cifar100 (in distribution)", PROBE, "depth", _claims.COLD_HOT),
    _claims.Curve("svhn (OOD)", OTHER, "depth", _claims.COLD_HOT),
]
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
