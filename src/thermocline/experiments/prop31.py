"""Prop. 3.1 [masarczyk2025softmax]: the more the columns of a softmax overlap, the larger its gap sigma_1 - sigma_n may be.

    0 <= sigma_1 - sigma_n <= sqrt(1 + r) - sqrt(max(1/n - r, 0)),  r = max_i sum_{j != i} <s_i, s_j>

On 100 x 100 logits at growing scale: random ones, and fitted ones, in which each column has its own largest entry. The paper
says that columns become more similar as the norm grows; both kinds are tested for that.
"""

from thermocline.experiments._claims import Arm, Claim, Cost, Curve, Quantity

COMPUTED = "gap"
RUNS = []
OVERLAP = Quantity("overlap r of columns", "overlap", shown=".3g")
GAP, BOUND = Quantity("sigma_1 - sigma_n", "gap", shown=".3g"), Quantity("its bound", "gap_bound", shown=".3g")
ROOM = Quantity("bound less gap", "gap_room", shown=".3g")
KINDS = ("random", "fitted")


def _at(kind: str, scale: float) -> Arm:
    return Arm(f"{kind}, scale {scale:g}", where=(f"logits={kind}", f"scale={scale:g}"))


CLAIMS = [
    *(Claim(ROOM, "at least", (_at(kind, scale),), bound=0.0, exact=True) for kind in KINDS for scale in (0.1, 1.0, 10.0)),
    Claim(ROOM, "equals", (Arm("all columns e_1", where=("logits=same",)),), (0.0,), margin=1e-6, derived=True, exact=True),
    *(Claim(OVERLAP, "rises", (_at(kind, 0.1), _at(kind, 100.0))) for kind in KINDS),
]
CURVES = [
    Curve(quantity.name, quantity, "scale", tuple(Arm(kind, where=(f"logits={kind}",)) for kind in KINDS), log=True)
    for quantity in (GAP, BOUND)
]
COST = Cost("seconds on a CPU")
