"""Where in a net does heat cost transfer? As controls/where, with a ResNet-18 trained on SVHN and probed for both CIFARs.

controls/where was found on its own rows. These claims were written down before any of these runs was made.
"""

from thermocline.experiments import _claims, _recipes
from thermocline.experiments.controls.where import claims, curve
from thermocline.spec import Net

OTHERS = _recipes.OTHERS["svhn"]
RUNS = _recipes.cold_and_hot("svhn", Net("resnet18"), _recipes.RESNET)
CLAIMS = claims(_claims.COLD_HOT, OTHERS)
CURVES = [curve(_claims.COLD_HOT, name, split) for name, split in (("svhn", "test"), *((one, f"{one}/test") for one in OTHERS))]
COST = _claims.Cost("164 epochs a run", gpu=True)
