"""A whole scan at the size of the papers: what the engine does in one pass, and the script that goes layer by layer."""

from __future__ import annotations

import functools

import numpy as np

from thermocline import measure, spec
from thermocline.bench.arrays import COLLAPSE
from thermocline.bench.case import Answers, Case, sized, within
from thermocline.bench.images import draw, settled
from thermocline.bench.scripts import Work, layer_by_layer
from thermocline.record import RANK, params

MEASURED = (
    "rank", "stable_rank", "entropy_rank", "alignment", "neural_collapse", "probe_accuracy", "effective_depth", "ood_drop",
)  # fmt: skip
SMALL = 0.02  # scale under which the net and its images shrink too, to what a CPU can do thirty times a layer
NET, SMALL_NET = spec.Net("resnet18"), spec.Net("resnet8", width=8)


def work(scale: float) -> Work:
    """An untrained ResNet-18 and three data sets of 50,000 + 10,000 images of 100 classes, itself among them."""
    count, held = sized(50_000, scale, least=200), sized(10_000, scale, least=200)
    net, classes, size = (NET, 100, 32) if scale >= SMALL else (SMALL_NET, 10, 16)
    train, test = draw(0, count, held, classes=classes, size=size)
    ood = {f"other{seed}": draw(seed, count, held, classes=classes, size=size, like=train) for seed in (1, 2)}
    return Work(settled(net, train), train, test, ood)


def _scan(work: Work) -> Answers:
    net, train, test, ood = work
    rows = measure.measure(net, train, test, ood, temperature=1.0, measures=MEASURED, probes=("logistic",))

    def values(name: str, split: str, convention: str = "") -> np.ndarray:
        wanted = set(filter(None, convention.split(",")))
        found = [row for row in rows if (row.measure, row.split) == (name, split) and wanted <= set(row.params.split(","))]
        return np.array([row.value for row in found])

    others = [f"{name}/test" for name in ood]
    return {
        "rank": values("rank", "train", params(**RANK)),
        "stable_rank": values("stable_rank", "train"),
        "entropy_rank": values("entropy_rank", "train"),
        "alignment": np.stack([values("alignment", "train", f"part={part}") for part in ("max", "first")], 1),
        "neural_collapse": np.concatenate([values("neural_collapse", "train", f"part={part}") for part in COLLAPSE]),
        "accuracy": np.stack([values("probe_accuracy", split) for split in ("test", *others)]),
        "effective_depth": values("effective_depth", "test"),
        "ood_drop": np.concatenate([values("ood_drop", split) for split in others]),
    }


def _agree(ours: Answers, theirs: Answers) -> tuple[bool, str]:
    """What is the same maths agrees to what float32 leaves of it; what is trained, to what another shuffle changes."""
    tolerances = {
        "rank": 1,  # a singular value may lie on the tolerance
        "stable_rank": 1e-3,
        "entropy_rank": 1e-3,
        "alignment": 1e-3,
        "neural_collapse": 1e-3,
        "effective_depth": 1.01 / theirs["accuracy"].shape[1],  # a layer
        "ood_drop": 0.02,
    }
    agree, words = within(tolerances, relative=("stable_rank", "entropy_rank", "neural_collapse"))(ours, theirs)
    # One probe moves by a hundredth with the order of its samples; over all layers and sets that averages out.
    gap = float(np.abs(ours["accuracy"] - theirs["accuracy"]).mean())
    means = ours["accuracy"].mean(), theirs["accuracy"].mean()
    return (
        agree and gap <= 0.01,
        f"{words}, mean accuracy {means[0]:.3f} vs {means[1]:.3f}, by probe within {gap:.1g} on average",
    )


_case = functools.partial(Case, inputs=work, ours=_scan, compare=_agree, cpu_scale=0.01, warm_up=SMALL)
CASES = {
    "scan-full": _case(
        "full", "spectra, alignment, neural collapse, logistic probes, effective depth and OOD drop at the 18 layers of a "
        "ResNet-18, on 50,000 + 10,000 images and two other sets as large",
        "a script that for each layer and set runs the net in each of the 30 epochs of its probe",
        theirs=functools.partial(layer_by_layer, cached=False),
    ),
    "scan-cached": _case(
        "full", "the same full scan", "a script that runs the net once for each layer and set and trains from kept features",
        theirs=functools.partial(layer_by_layer, cached=True),
    ),
}  # fmt: skip
