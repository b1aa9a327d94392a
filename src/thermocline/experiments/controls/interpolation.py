"""Do nets that all fit their data still differ? Trained to 100 % at every T, with NC1 to NC4 at every T, on built-in data."""

from thermocline.experiments import _claims, _runes

HEAT = (1, 10, 100, 500)
ARMS = [_claims.temperature(value) for value in HEAT]
RUNS = _runes.runs(temperatures=HEAT)
CLAIMS = [
    *(_claims.Claim(_claims.TRAIN_ACCURACY, "at least", (arm,), bound=0.999) for arm in ARMS),
    *(_claims.Claim(_claims.SOLUTION_RANK, "falls", (ARMS[0], arm)) for arm in ARMS[1:]),
    *(
        _claims.Claim(_claims.NC[part], says, (ARMS[0], arm))
        for part, says in (("nc1", "falls"), ("nc2_equiangular", "rises"), ("nc3", "rises"))
        for arm in ARMS[1:]
    ),
]
COST = _runes.COST
