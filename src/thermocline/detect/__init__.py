"""Out-of-distribution detectors. HIGHER scores mean MORE IN-DISTRIBUTION; pytorch-ood's mean the opposite (see `outside`).

Every detector is `.fit(features, logits, labels)` on in-distribution training data, then `.score(features, logits)`, a
float64 a sample. Each may be a tensor, an array or a list, and what a detector does not read may be left out: `KNN(k=50)
.fit(features)`, `MSP().score(logits=logits)`. What is NaN scores NaN, and cannot be fitted to. Work is done some rows at a
time, on the device of the inputs, which is also where what was learned stays. A head is read as it is at `fit`: training on
changes no score.
"""

from thermocline.detect.alignment import NCI
from thermocline.detect.confidence import GEN, MSP, Energy, Entropy, KLMatching, MaxLogit
from thermocline.detect.gaussian import Mahalanobis, RelativeMahalanobis
from thermocline.detect.inputs import Detector
from thermocline.detect.intervals import Interval, auroc_interval, bootstrap
from thermocline.detect.keeping import DETECTORS, State, restore, state
from thermocline.detect.metrics import Roc, aupr, auroc, fpr_at_tpr, roc
from thermocline.detect.neighbours import KNN, NNGuide
from thermocline.detect.outside import from_pytorch_ood, to_pytorch_ood
from thermocline.detect.shaping import ASH, ReAct
from thermocline.detect.streaming import ScoreStream
from thermocline.detect.subspace import NECO, Residual, ViM, neco_by_dim, neco_oracle

__all__ = [
    "ASH", "DETECTORS", "GEN", "KNN", "MSP", "NCI", "NECO", "Detector", "Energy", "Entropy", "Interval", "KLMatching",
    "Mahalanobis", "MaxLogit", "NNGuide", "ReAct", "RelativeMahalanobis", "Residual", "Roc", "ScoreStream", "State", "ViM",
    "aupr", "auroc", "auroc_interval", "bootstrap", "fpr_at_tpr", "from_pytorch_ood", "neco_by_dim",
    "neco_oracle", "restore", "roc", "state", "to_pytorch_ood",
]  # fmt: skip
