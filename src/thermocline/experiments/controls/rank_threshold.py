"""Does the rank deficit depend on how rank is counted? By tolerance, number of samples, class balance, and without any.

All ranks are those of the logits of training images. The convention of table 1 counts eigenvalues of their covariance above
1e-3 of the largest. Eigenvalues are squares of singular values, so this is 0.03 of the largest singular value, to which the
other tolerances refer.
"""

from thermocline.experiments import _claims
from thermocline.experiments._claims import Claim, Quantity
from thermocline.experiments.table1 import cifar100_resnet18

RTOLS = ("0.1", "0.01", "0.001", "0.0001", "1e-05", "1e-06")
RUNS = cifar100_resnet18.RUNS
CLAIMS = [
    Claim(_claims.SOLUTION_RANK, "falls", _claims.COLD_HOT),
    *(
        Claim(
            Quantity(
                f"rank by singular values above {rtol}", "solution_rank", where=("of=features", f"rtol={rtol}"), shown=".1f"
            ),
            "falls",
            _claims.COLD_HOT,
            margin=1.0,
        )
        for rtol in RTOLS
    ),
    *(
        Claim(
            Quantity(f"rank, {label}", "rank_by_samples", where=("of=covariance", "rtol=0.001", word), shown=".1f"),
            "falls",
            _claims.COLD_HOT,
            margin=1.0,
        )
        for label, word in (("500 samples", "n=500"), ("8000 samples", "n=8000"), ("a long tail of classes", "balance=tail100"))
    ),
    Claim(Quantity("entropy rank", "entropy_rank", by="last layer", shown=".1f"), "falls", _claims.COLD_HOT),
    Claim(Quantity("stable rank", "stable_rank", by="last layer", shown=".1f"), "falls", _claims.COLD_HOT),
    Claim(
        Quantity("functional rank", "functional_rank", where=("keep=0.99",), shown=".1f"), "falls", _claims.COLD_HOT, margin=1.0
    ),
]
COST = _claims.Cost("the runs of table1/cifar100-resnet18", gpu=True)
