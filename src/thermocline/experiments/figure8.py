"""Figure 8 [masarczyk2025softmax]: how large logits are at the start depends on the architecture, and a VGG's are small.

Untrained nets in training mode, batch statistics and all, on 64 runes of 32 pixels; the paper's images are others.
"""

from thermocline.experiments._claims import Arm, Claim, Cost, Quantity

COMPUTED = "initial_norms"
RUNS = []
NETS = ("mlp", "vgg19", "vgg19_bn", "resnet18", "resnet20")
NORM = Quantity("logit norm at the start", "logit_norm", shown=".3g")
RESNET = Arm("resnet18, own", where=("net=resnet18", "init=own"))
CLAIMS = [
    Claim(NORM, "falls", (RESNET, Arm(f"vgg19, {init}", where=("net=vgg19", f"init={init}")))) for init in ("own", "torch")
]
COST = Cost("a minute on a CPU")
