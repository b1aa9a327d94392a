"""When does the low rank last? With a layer norm before the head, only the head can make logits grow [ba2016layer].

Hot logits of a VGG-19 or an MLP have a low rank to the end of training; those of a ResNet-18, whose last features come from
a normalised branch with a learned gain and a shortcut, have it only early on. Here one MLP is trained without a norm and
with one, on built-in data, at the hottest of T = 20, 100 and 500 at which both fitted their training images in a trial (seed
99). A rank stays if it changes by less than a tenth of the 99 directions that classes can have.
"""

from thermocline.experiments import _claims, _runes
from thermocline.experiments._claims import Claim, Curve

HOT, MARGIN = 20, 9.9
WAYS = {"no norm": "none", "norm before the head": "before"}
RUNS = [run for way in WAYS.values() for run in _runes.runs({"net.logit_norm": way}, temperatures=(1, HOT))]


PLAIN, NORMED = (
    _claims.with_settings(label, {"net.logit_norm": way}, (_runes.COLD, _claims.temperature(HOT)))
    for label, way in WAYS.items()
)
CLAIMS = [
    Claim(_claims.LOWEST_RANK, "falls", PLAIN),
    Claim(_claims.SOLUTION_RANK, "falls", PLAIN),
    Claim(_claims.LOWEST_RANK, "falls", NORMED),
    Claim(_claims.SOLUTION_RANK, "stays", NORMED, margin=MARGIN),
    *(Claim(_claims.EFFECTIVE_DEPTH, "falls", arms) for arms in (PLAIN, NORMED)),
    *(Claim(_claims.drop_on(_runes.OOD), "rises", arms) for arms in (PLAIN, NORMED)),
]
CURVES = [Curve("rank of the logits by training step", _claims.SOLUTION_RANK, "step", (*PLAIN, *NORMED))]
COST = _runes.COST
