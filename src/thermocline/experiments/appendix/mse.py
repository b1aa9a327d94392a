"""The effect is the softmax's, not the cross-entropy's: it is there with a squared error too [masarczyk2025softmax].

On built-in data.
"""

from thermocline.experiments import _claims, _runes

HOT = _claims.temperature(10)
RUNS = _runes.runs({"train.loss": "mse"}, temperatures=(1, 10))
CLAIMS = [
    *(_claims.Claim(_claims.TRAIN_ACCURACY, "at least", (arm,), bound=0.9) for arm in (_runes.COLD, HOT)),
    *_claims.effect(_runes.COLD, HOT, ood=_runes.OOD),
]
COST = _runes.COST
