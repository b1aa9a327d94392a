"""Figure 8 [masarczyk2025softmax]: how large logits are at the start depends on the architecture, and a VGG's are small.

Untrained nets in training mode, with batch statistics, on 64 runes of 32 pixels; the paper uses other images. Nets are
compared at the same initialisation: our own, which is He's, and torch's default.
"""

from thermocline.experiments._claims import Arm, Claim, Cost, Quantity

COMPUTED = "initial_norms"
RUNS = []
NETS = ("mlp", "vgg19", "vgg19_bn", "resnet18", "resnet20")
NORM = Quantity("logit norm at the start", "logit_norm", shown=".3g")
CLAIMS = [
    Claim(NORM, "falls", tuple(Arm(f"{net}, {init}", where=(f"net={net}", f"init={init}")) for net in ("resnet18", "vgg19")))
    for init in ("own", "torch")
]
COST = Cost("a minute on a CPU")
