"""Small initial weights are a high temperature by another name: the same effects at T = 1 [masarczyk2025softmax].

On built-in data: all weights of the 8-layer MLP are multiplied by 500^(-1/8), which makes its logits as small as T = 500
does.
"""

from thermocline.experiments import _claims, _runes

SCALE = 500 ** (-1 / 8)
OWN, SMALL = (_claims.Arm(f"weights x {scale:.2g}", {"net.init_scale": scale}) for scale in (1.0, SCALE))
RUNS = [*_runes.runs(temperatures=(1,)), *_runes.runs({"net.init_scale": SCALE}, temperatures=(1,))]
CLAIMS = [
    _claims.Claim(_claims.START_NORM, "falls", (OWN, SMALL)),
    *_claims.effect(OWN, SMALL, ood=_runes.OOD),
]
COST = _runes.COST
