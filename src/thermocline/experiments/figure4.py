"""Figure 4 [masarczyk2025softmax]: the rank of a layer's inputs bounds that of its gradient, and both are low in hot nets.

The bound is linear algebra, dL/dW = (dL/dZ) A^T; what can fail is that both are low. On the MLP of built-in data.
"""

from thermocline.experiments import _claims, _runes
from thermocline.experiments.table1 import runes_mlp

RULE = ("of=covariance", "rtol=0.001")
ARMS = (_runes.COLD, _runes.HOT)
GRADIENT = _claims.Quantity("gradient rank, mean over layers", "gradient_rank", where=RULE, by="layers", shown=".1f")
RANK = _claims.Quantity("rank of outputs, mean over layers", "rank", where=RULE, by="layers", shown=".1f")
RUNS = runes_mlp.RUNS
CLAIMS = [_claims.Claim(quantity, "falls", ARMS) for quantity in (GRADIENT, RANK)]
CURVES = [_claims.Curve(f"{quantity.measure} by layer", quantity, "depth", ARMS) for quantity in (GRADIENT, RANK)]
COST = _claims.Cost("the runs of table1/runes-mlp")
