"""Figure 6 [masarczyk2025softmax]: a softmax raises low-rank logits to a far higher rank. It falls again at large scales.

Logits are s A B^T of 100 x 100, with entries of A and B uniform on (-1, 1) and k columns each; rank is at 1e-3 of the
features. The numbers beside ours are derived, as the figure prints none. That the rank falls again as s grows is not in the
paper.
"""

from thermocline.experiments._claims import Arm, Claim, Cost, Curve, Quantity, moves

COMPUTED = "softmax_ranks"
RUNS = []
SCALES = (1e-3, 1e-2, 0.1, 1, 3, 10, 30, 100, 1e3, 1e6)
RANK = Quantity("rank after the softmax", "softmax_rank", where=("of=features", "rtol=0.001"), shown=".1f")
KNOWN = {1: (2.0, 8.1, 2.1), 2: (3.7, 37.7, 10.9), 3: (5.7, 66.9, 19.2), 5: (10.5, 75.1, 33.4)}


def _at(k: int, scale: float) -> Arm:
    return Arm(f"k = {k}, s = {scale:g}", where=(f"k={k}", f"scale={scale:g}"))


CLAIMS: list[Claim] = [
    claim
    for k, (low, middle, high) in KNOWN.items()
    for claim in (
        moves(RANK, low, middle, arms=(_at(k, 0.1), _at(k, 10)), margin=0, derived=True),
        moves(RANK, middle, high, arms=(_at(k, 10), _at(k, 1e6)), margin=0, derived=True),
    )
]
CURVES = [Curve("rank after the softmax by scale s", RANK, "scale", tuple(Arm(f"k = {k}", where=(f"k={k}",)) for k in KNOWN))]
COST = Cost("seconds on a CPU")
