"""Where in a net does heat cost transfer? As controls/where, with a ResNet-18 trained on SVHN and probed for both CIFARs.

controls/where was found on its own rows, by one probe, whose penalty hides directions of little variance. Here three probes
read the same nets: that one, one with next to no penalty, and one trained on standardised outputs. Written down before any
of these runs was made.
"""

from thermocline.experiments import _claims, _recipes
from thermocline.experiments._claims import COLD, HOT
from thermocline.experiments.controls import probes
from thermocline.experiments.controls.where import claims, curves
from thermocline.spec import Net, Probe, replace

OTHERS = _recipes.OTHERS["svhn"]
NAMED: dict[str, Probe] = {name: probes.NAMED[name] for name in ("ridge", "weak ridge", "standardised")}
ARMS = {name: (probes.read(COLD, name), probes.read(HOT, name)) for name in NAMED}
RUNS = [
    replace(run, {"probes": tuple(NAMED.values())})
    for run in _recipes.cold_and_hot("svhn", Net("resnet18"), _recipes.RESNET)
]  # fmt: skip
CLAIMS = [claim for arms in ARMS.values() for claim in claims(arms, OTHERS)]
CURVES = curves(ARMS, OTHERS)
COST = _claims.Cost("164 epochs a run, 8 minutes for six side by side on one H200", gpu=True)
