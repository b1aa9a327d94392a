"""Does weight decay cause the effect, or hide it? Decay 0, 1e-4 and 5e-4, cold and hot, on built-in data."""

from thermocline.experiments import _claims, _runes

DECAYS = (0.0, 1e-4, 5e-4)
RUNS = [run for decay in DECAYS for run in _runes.runs({"train.weight_decay": decay})]
CLAIMS = [
    claim
    for decay in DECAYS
    for claim in _claims.effect(*_runes.arms(f"decay {decay:g}", {"train.weight_decay": decay}), ood=_runes.OOD)
]
COST = _runes.COST
