"""Is a temperature more than a small head, a slow head or small weights? T = 1 beside five arms [masarczyk2025softmax].

"Temperature" is T = 100. "The same by the head" is the same run in exact arithmetic, at T = 1: a head that starts at 1 / T,
with its lr divided by T^2 and its weight decay multiplied by T^2. Rounding grows while nets train, so the two may differ by
at most a layer, three directions and 0.05 of the OOD drop. "Small head" and "slow head" each keep one part of that, the
start or the learning rate. "Small weights" multiplies those of all eight layers by 100^(-1/8), which makes the first logits
as small. The net is an MLP on built-in data, with lr 0.05 and weight decay 1e-4, where table1/runes-mlp has lr 0.12,
clipping and no decay.
"""

from thermocline.experiments._claims import EFFECTIVE_DEPTH, SOLUTION_RANK, Arm, Claim, Cost, drop_on, effect
from thermocline.spec import Data, Net, Run, Train, grid, replace

T, LAYERS = 100.0, 8
BASE = Run(
    Data("runes", classes=100, size=16, train=12_000, test=3_000, ood=("runes:1", "digits")),
    Net("mlp", depth=LAYERS, width=256),
    Train(epochs=30, lr=0.05, weight_decay=1e-4),
)
ARMS = {
    "temperature": {"train.temperature": T},
    "the same by the head": {"net.head_init_scale": 1 / T, "train.head_lr": T**-2, "train.head_weight_decay": T**2},
    "small head": {"net.head_init_scale": 1 / T},
    "slow head": {"train.head_lr": T**-2},
    "small weights": {"net.init_scale": T ** (-1 / LAYERS)},
}
RUNS = [run for arm in ({}, *ARMS.values()) for run in grid(replace(BASE, arm), {"seed": range(3)})]
_OWN = {"train.temperature": 1.0, "net.head_init_scale": 1.0, "train.head_lr": 1.0, "net.init_scale": 1.0}
_ARM = {name: Arm(name, {**_OWN, **arm}) for name, arm in {"T = 1": {}, **ARMS}.items()}
CLAIMS = [
    *(
        claim
        for name in ("temperature", "small head", "slow head", "small weights")
        for claim in effect(_ARM["T = 1"], _ARM[name], ood="runes:1")
    ),
    Claim(SOLUTION_RANK, "stays", (_ARM["temperature"], _ARM["the same by the head"]), margin=3.0),
    Claim(EFFECTIVE_DEPTH, "stays", (_ARM["temperature"], _ARM["the same by the head"]), margin=0.13),
    Claim(drop_on("runes:1"), "stays", (_ARM["temperature"], _ARM["the same by the head"]), margin=0.05),
]
COST = Cost("a minute a run on one CPU core")
