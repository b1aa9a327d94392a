"""The rule itself [velickovic2024softmax, Fig. 5]: rows of higher entropy want a larger beta, as a polynomial of degree 4.

On the nets of max retrieval: the beta at which the right item weighs most, by the entropy of its row. Lengths are 16 to
16,384 items, since entropies up to 4 need long rows: these nets have half a nat at 256. A row whose right item has the
largest logit prefers an unlimited beta and gets the upper bound, so that the size of beta depends on that bound; which one
the paper took is not known.
"""

from thermocline.experiments import retrieval
from thermocline.experiments._claims import Arm, Curve, Quantity, moves

COMPUTED = "retrieved"
TABLE = "retrieval"
RUNS = []
LENGTHS, BOUNDS, ENTROPIES = (16, 64, 256, 1024, 4096, 16_384), (1.0, 10.0), (1, 2, 3, 4)
BETA = Quantity("fitted beta", "best_beta")
PRINTED = {1: 1.27, 2: 2.10, 3: 2.25, 4: 2.39}  # the published polynomial at these entropies
AT = {entropy: Arm(f"H = {entropy}", where=(f"H={entropy}",)) for entropy in ENTROPIES}
CLAIMS = [
    moves(BETA, PRINTED[low], PRINTED[high], arms=(AT[low], AT[high]), margin=0) for low, high in ((1, 2), (2, 3), (3, 4))
]
CURVES = [Curve("fitted beta by entropy", BETA, "H", (Arm("refitted"),))]
COST = retrieval.COST
