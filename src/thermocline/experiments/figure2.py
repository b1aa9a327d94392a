"""Figure 2 [masarczyk2025softmax]: a hot net's logits start small for its softmax, and must grow far more."""

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar100_resnet18

SEEN = _claims.Quantity("||M|| / T at the start", "tempered_logit_norm", "train", by="start", shown=".3g")
GROWTH = _claims.Quantity("growth of ||M|| over training", "logit_norm", "train", by="growth", shown=".3g")
RUNS = cifar100_resnet18.RUNS
CLAIMS = [
    _claims.Claim(SEEN, "falls", _claims.COLD_HOT, exact=True),  # the same first logits, divided by T
    _claims.Claim(GROWTH, "rises", _claims.COLD_HOT),
    _claims.Claim(_claims.LOGIT_NORM, "rises", _claims.COLD_HOT),
]
CURVES = [_claims.Curve("||M|| / sqrt(n) by training step", _claims.LOGIT_NORM, "step", _claims.COLD_HOT, log=True)]
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
