"""Table 1 in small: an MLP on built-in data, on a CPU. Heat lowers rank, depth and OOD accuracy [masarczyk2025softmax].

Its recipe was found by trying several on these data, at seed 0: it shows that the effect can be had, and how large it then
is.
"""

from thermocline.experiments import _claims, _runes

RUNS = _runes.runs()
CLAIMS = [
    *_claims.effect(_runes.COLD, _runes.HOT, ood=_runes.OOD),
    _claims.Claim(_claims.early_drop_on(_runes.OOD), "rises", (_runes.COLD, _runes.HOT), found=True),
]
COST = _runes.COST
