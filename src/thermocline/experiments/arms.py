"""Is a temperature more than a small head, a slow head or small weights? Five arms at T = 100 [masarczyk2025softmax, Sec. 5].

The first two are one run in exact arithmetic: SGD at T equals T = 1 with a head begun at 1 / T, its lr divided by T^2
and its weight decay multiplied by T^2. The other three each keep one part of that.
6 runs, about three minutes on 2 CPU cores:  thermocline sweep arms --jobs 2
"""

from thermocline.spec import Data, Net, Run, Train, replace

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
RUNS = [BASE, *(replace(BASE, arm) for arm in ARMS.values())]
