"""Do nets that all fit their data still differ? Trained to 100 % at every T, with NC1 to NC4 at every T, on built-in data."""

from thermocline.experiments import _claims, _runes

HEAT = (1, 10, 100, 500)
ARMS = [_claims.temperature(value) for value in HEAT]
RUNS = _runes.runs(temperatures=HEAT)
CLAIMS = [
    *(_claims.Claim(_claims.TRAIN_ACCURACY, "at least", (arm,), bound=0.999) for arm in ARMS),
    *(_claims.Claim(_claims.SOLUTION_RANK, "falls", (ARMS[0], arm)) for arm in ARMS[1:]),
    *(_claims.Claim(_claims.NC["nc1"], "falls", (ARMS[0], arm)) for arm in ARMS[1:]),
    *(
        _claims.Claim(_claims.NC[part], "rises", (ARMS[0], arm))
        for part in ("nc2_equinorm", "nc2_equiangular", "nc3", "nc4")
        for arm in ARMS[1:]
    ),
]
COST = _runes.COST
