"""Theorem 2.2 and Lemma 2.1 [velickovic2024softmax]: attention of bounded logits disperses as items are added.

In the head of max retrieval, on its own nets, the entropy of attention rises with the number of items, the largest weight
falls, and no weight exceeds exp(delta) / n, where delta is the spread of a row's logits.
"""

from thermocline.experiments import retrieval
from thermocline.experiments._claims import Arm, Claim, Curve, Quantity

COMPUTED = "retrieved"
TABLE = "retrieval"
RUNS = []
ENTROPY = Quantity("entropy, nats", "retrieval_entropy")
LARGEST = Quantity("largest weight", "retrieval_largest", shown=".3f")
ROOM = Quantity("least room below the bound", "retrieval_room", shown=".3g")
AT = {n: Arm(f"n = {n}", where=(f"n={n}",)) for n in retrieval.LENGTHS}
FEW, MANY = AT[16], AT[16_384]
CLAIMS = [
    Claim(ENTROPY, "rises", (FEW, MANY)),
    Claim(LARGEST, "falls", (FEW, MANY)),
    *(Claim(ROOM, "at least", (arm,), bound=0.0, exact=True) for arm in AT.values()),
]
CURVES = [
    Curve("entropy by number of items", ENTROPY, "n", (Arm("plain attention"),), log=True),
    Curve("largest weight by number of items", LARGEST, "n", (Arm("plain attention"),), log=True),
]
COST = retrieval.COST
