"""Two nets alike in everything but the softmax temperature, and what that does to them [masarczyk2025softmax].

2 runs, about a minute on 2 CPU cores:  thermocline demo
"""

from thermocline.spec import Data, Net, Run, Train, grid

BASE = Run(
    Data("runes", classes=100, size=16, train=12_000, test=3_000, ood=("runes:1", "digits")),
    Net("mlp", depth=8, width=256),
    Train(epochs=30, lr=0.12, clip=1.0),
)
RUNS = grid(BASE, {"train.temperature": [1, 500]})
