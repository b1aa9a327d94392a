"""Is the effect there with augmentation, which by itself moves the OOD drop? Random crops, cold and hot, on built-in data."""

from thermocline.experiments import _claims, _runes

WAYS = ("none", "crop")
RUNS = [run for way in WAYS for run in _runes.runs({"train.augment": way})]
CLAIMS = [
    claim for way in WAYS for claim in _claims.effect(*_runes.arms(f"augment {way}", {"train.augment": way}), ood=_runes.OOD)
]
COST = _runes.COST
