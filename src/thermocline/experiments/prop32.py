"""Prop. 3.2 [masarczyk2025softmax]: logits of rank 2 are enough to get any number of classes right.

In closed form, and as nets on built-in data whose head reads two dimensions: learned, or with classes on a fixed circle. The
proposition is about training data; what such nets do on new images stands beside it. They have half the layers of the demo
and twice its epochs: after 30, nets of rank 2 still had training images to learn.
"""

from thermocline.experiments import _claims, _runes
from thermocline.experiments._claims import Arm, Claim, Quantity

LINEAR, LEARNED, FIXED = (
    Arm(label, {"net.head": head})
    for label, head in (("256 dimensions", "linear"), ("2, learned", "bottleneck"), ("2, a fixed circle", "circle"))
)
COMPUTED = "circle"
SMALL = {
    "net.depth": 4,
    "train.epochs": 60,
    "measures": ("accuracy", "loss", "logit_norm", "solution_rank", "softmax_rank", "functional_rank"),
    "data.ood": (),
}
RUNS = [
    run
    for head in ({"net.head": "linear"}, {"net.head": "bottleneck", "net.head_rank": 2}, {"net.head": "circle"})
    for run in _runes.runs({**head, **SMALL}, temperatures=(1,))
]
RIGHT = Quantity("share of classes right", "circle_accuracy", shown=".0%")
SCALE = Quantity("scale for p = 0.9", "circle_scale", shown=".4g")
AFTER = Quantity("rank after the softmax, 100 classes", "circle_softmax_rank", where=("classes=100",), shown=".0f")
SCALES = {10: 15.1, 100: 1465.0, 1000: 1.46e5}  # by classes
ARMS = {count: Arm(f"{count} classes", where=(f"classes={count}",)) for count in SCALES}
CLAIMS = [
    *(Claim(RIGHT, "at least", (arm,), bound=1.0, exact=True) for arm in ARMS.values()),
    *(
        Claim(SCALE, "equals", (ARMS[count],), (known,), margin=known / 100, derived=True, exact=True)
        for count, known in SCALES.items()
    ),
    *(
        Claim(
            AFTER, "equals", (Arm(f"s = {scale}", where=(f"scale={scale}",)),), (known,), margin=0.5, derived=True, exact=True
        )
        for scale, known in ((1, 9.0), (10, 25.0), (30, 41.0), (100, 75.0))
    ),
    *(Claim(_claims.TRAIN_ACCURACY, "at least", (arm,), bound=0.99) for arm in (LEARNED, FIXED)),
    *(Claim(_claims.TEST_ACCURACY, "stays", (LINEAR, arm), margin=0.05) for arm in (LEARNED, FIXED)),
]
COST = _claims.Cost("half a minute a run on one CPU core")
