"""What does mild heat do to a net of SVHN? ResNet-18 at T = 1 and at T = 10, where nets fit their data.

The runs are those of controls/where-svhn and controls/where-svhn-parted, and all that is asked here was found on their rows:
the claims of controls/where, those of table 1 as directions, and the detectors of controls/strong-baseline.
"""

from dataclasses import replace

from thermocline.experiments import _claims
from thermocline.experiments._claims import Claim
from thermocline.experiments.controls import strong_baseline, where, where_svhn, where_svhn_parted

OTHERS = where_svhn.OTHERS
ARMS = (_claims.COLD, _claims.temperature(10))
RUNS = [
    run
    for run in (*where_svhn.RUNS, *where_svhn_parted.RUNS)
    if any(run.train.temperature == arm.settings["train.temperature"] for arm in ARMS)
]
ASKED = [
    Claim(_claims.TEST_ACCURACY, "rises", ARMS),
    Claim(_claims.EFFECTIVE_DEPTH, "falls", ARMS),
    *(Claim(drop(name), "rises", ARMS) for drop in (_claims.drop_on, _claims.early_drop_on) for name in OTHERS),
    *where.claims(ARMS, OTHERS),
    *(
        Claim(_claims.detected(name, detector), "rises", ARMS)
        for name in OTHERS
        for detector in strong_baseline.DETECTORS
    ),
    *(Claim(_claims.at_best(name), "rises", ARMS) for name in OTHERS),
]  # fmt: skip
CLAIMS = [replace(claim, found=True) for claim in ASKED]
CURVES = [where.curve(ARMS, name, f"{name}/test") for name in OTHERS]
COST = _claims.Cost("the runs of controls/where-svhn and controls/where-svhn-parted", gpu=True)
