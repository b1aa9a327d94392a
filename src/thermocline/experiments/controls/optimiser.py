"""Is the effect there with Adam, and with label smoothing? Cold and hot, on built-in data."""

from thermocline.experiments import _claims, _runes

WAYS = {
    "SGD": {"train.optimizer": "sgd", "train.lr": 0.12, "train.label_smoothing": 0.0},
    "Adam": {"train.optimizer": "adam", "train.lr": 1e-3, "train.label_smoothing": 0.0},
    "SGD, labels smoothed": {"train.optimizer": "sgd", "train.lr": 0.12, "train.label_smoothing": 0.1},
}
RUNS = [run for way in WAYS.values() for run in _runes.runs(way)]
CLAIMS = [claim for name, way in WAYS.items() for claim in _claims.effect(*_runes.arms(name, way), ood=_runes.OOD)]
COST = _runes.COST
