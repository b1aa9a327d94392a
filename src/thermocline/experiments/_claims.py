"""The words a claim is made of: a quantity is rows pinned down, a claim compares two arms of runs, or one with a bound.

An experiment states, as data: `CLAIMS`; `RUNS`, or the name of the function that computes its rows (`COMPUTED`); its `COST`;
and, where it cannot be run here, `WHY`. Whoever reads rows, judges and draws is in `thermocline.reproduce`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Reduction = Literal[
    "value", "start", "growth", "lowest", "layers", "first half", "second half", "best layer", "last layer",
    "drop before the last",
]  # fmt: skip
Relation = Literal["falls", "rises", "stays", "at least", "at most", "equals"]


@dataclass(frozen=True)
class Quantity:
    """One number of one run: the rows with this measure, split and words among their params, and what is made of them.

    `by`: the one "value" of the last step; that at the "start" of training; its "growth" from start to end, a ratio; the
    "lowest" after the start; the mean over "layers", over the "first half" of them or the "second half"; that of the "best
    layer" or the "last layer"; what the layer before the last has lost of the best, as a share ("drop before the last").
    `shown` is how the number is written. What lies above 0 and moves by `factors` is averaged and compared by its logarithm.
    """

    name: str
    measure: str
    split: str = ""
    where: tuple[str, ...] = ()
    by: Reduction = "value"
    shown: str = ".2f"
    factors: bool = False


@dataclass(frozen=True)
class Arm:
    """Runs alike but for their seed: those of the experiment with these settings. Computed rows are told apart by `where`."""

    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    where: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """What is said of a quantity: how it moves from the first arm to the second, or what bounds or equals it in one.

    `published` are the numbers of the arms; `derived` says that they are ours, not the paper's. `margin` is what "stays" and
    "equals" forgive, and what a difference must exceed where only its direction is claimed; `bound` goes with "at least" and
    "at most". What is `exact` must be true of every seed; one is enough. What was `found` on the rows it is judged by describes
    them, and is not counted among what was claimed beforehand.
    """

    quantity: Quantity
    says: Relation
    arms: tuple[Arm, ...]
    published: tuple[float, ...] = ()
    margin: float | None = None
    bound: float | None = None
    derived: bool = False
    exact: bool = False
    found: bool = False


@dataclass(frozen=True)
class Cost:
    """What an experiment takes, in words; `gpu`: too much for a CPU, so it is only begun there when asked for by name."""

    words: str
    gpu: bool = False


@dataclass(frozen=True)
class Curve:
    """A panel of an experiment's figure: one measure by layer, step, or a parameter of its rows, an arm a line."""

    title: str
    quantity: Quantity
    x: str
    arms: tuple[Arm, ...]
    log: bool = False


TRAIN_ACCURACY = Quantity("training accuracy", "accuracy", "train", shown=".1%")
TEST_ACCURACY = Quantity("test accuracy", "accuracy", "test", shown=".1%")
EFFECTIVE_DEPTH = Quantity("effective depth", "effective_depth", "test", ("threshold=0.99",))
SOLUTION_RANK = Quantity(
    "rank of the logits (covariance, 1e-3)", "solution_rank", where=("of=covariance", "rtol=0.001"), shown=".1f"
)
LOWEST_RANK = replace(SOLUTION_RANK, name=f"{SOLUTION_RANK.name}, at its lowest", by="lowest")
LOGIT_NORM = Quantity("logit norm", "logit_norm", "train", shown=".3g")
START_NORM = Quantity("logit norm at the start", "logit_norm", "train", by="start", shown=".3g")
_PARTS = {
    "nc1": "NC1", "nc2_equinorm": "NC2 equinorm", "nc2_equiangular": "NC2 equiangular",
    "nc2_equiangular_weights": "NC2 equiangular, rows of the head", "nc3": "NC3", "nc4": "NC4",
}  # fmt: skip
NC = {  # distances, which go to 0 by decades; the last is a share of images, which may be none
    part: Quantity(name, "neural_collapse", where=(f"part={part}",), shown=".3g", factors=part != "nc4")
    for part, name in _PARTS.items()
}


def temperature(value: float) -> Arm:
    """The runs at one temperature."""
    return Arm(f"T = {value:g}", {"train.temperature": float(value)})


COLD, HOT = temperature(1), temperature(100)
COLD_HOT = (COLD, HOT)


def with_settings(label: str, settings: Mapping[str, Any], arms: tuple[Arm, Arm] = COLD_HOT) -> tuple[Arm, Arm]:
    """The cold and the hot runs that have these settings too."""
    cold, hot = (Arm(f"{arm.label}, {label}" if label else arm.label, {**arm.settings, **settings}) for arm in arms)
    return cold, hot


def drop_on(name: str) -> Quantity:
    """How much of the best layer's accuracy on another set the last has lost."""
    return Quantity(f"OOD drop, {name}", "ood_drop", f"{name}/test")


def early_drop_on(name: str) -> Quantity:
    """The same one layer earlier: logits of few classes have few dimensions, and lose most of another set by that alone."""
    return Quantity(f"OOD drop before the head, {name}", "probe_accuracy", f"{name}/test", by="drop before the last")


def detected(name: str, detector: str) -> Quantity:
    """How well a detector, by its name and settings in rows, tells another set's test images."""
    return Quantity(f"AUROC of {_spelled(detector)}, {name}", "auroc", f"{name}/test", _words(detector), shown=".3f")


def at_best(name: str) -> Quantity:
    """NECO's AUROC at the number of axes that is best for these very images, as its authors choose it."""
    return Quantity(f"AUROC of NECO at its oracle, {name}", "neco_oracle", f"{name}/test", ("part=auroc",), shown=".3f")


def at_dim(name: str, dim: int) -> Quantity:
    """NECO's AUROC with so many axes; the default of its authors' code is 100."""
    return Quantity(f"AUROC of NECO with {dim} axes, {name}", "neco_by_dim", f"{name}/test", (f"dim={dim}",), shown=".3f")


def let_through(name: str, detector: str) -> Quantity:
    """What it lets through at the threshold that keeps 95 % of test images."""
    where = (*_words(detector), "tpr=0.95", "positive=id")
    return Quantity(f"FPR95 of {_spelled(detector)}, {name}", "fpr", f"{name}/test", where, shown=".3f")


def _spelled(detector: str) -> str:
    name = detector.split(",")[0]
    return {"neco": "NECO", "vim": "ViM", "knn": "KNN", "msp": "MSP"}.get(name, name)


def _words(detector: str) -> tuple[str, ...]:
    return tuple(f"detector={detector}".split(","))


def moves(
    quantity: Quantity, cold: float, hot: float, *, arms: tuple[Arm, Arm] = COLD_HOT, margin: float, derived: bool = False
) -> Claim:
    """The claim that two printed numbers make: which way they move or, where within the margin, that nothing does."""
    says: Relation = "stays" if round(abs(hot - cold), 9) <= margin else "falls" if hot < cold else "rises"
    return Claim(quantity, says, arms, (cold, hot), margin=margin if says == "stays" else None, derived=derived)


def table_row(
    *,
    effective_depth: tuple[float, float],
    ood_drop: tuple[float, float],
    solution_rank: tuple[float, float],
    ood: str = "svhn",
    found: bool = False,
) -> list[Claim]:
    """A row of tables 1 and 3. A layer of 18 is 0.056: what moves by no more than 0.06 (a rank: by one) is taken to stay.

    Which layer is the last for the OOD drop is not printed; it is read at the logits, and at the layer before them. `found`:
    the second reading was added when the rows of this net were there.
    """
    return [
        moves(EFFECTIVE_DEPTH, *effective_depth, margin=0.06),
        moves(drop_on(ood), *ood_drop, margin=0.06),
        replace(moves(early_drop_on(ood), *ood_drop, margin=0.06), found=found),
        moves(SOLUTION_RANK, *solution_rank, margin=1.0),
    ]


def effect(cold: Arm, hot: Arm, *, ood: str) -> list[Claim]:
    """The claims of table 1 as directions alone, where no numbers are printed: heat costs rank, depth and OOD accuracy."""
    arms = (cold, hot)
    return [
        Claim(EFFECTIVE_DEPTH, "falls", arms),
        Claim(drop_on(ood), "rises", arms),
        Claim(SOLUTION_RANK, "falls", arms),
    ]


def detection(ood: str, *, auroc: tuple[float, float], fpr: tuple[float, float]) -> list[Claim]:
    """A row of table 2: NECO at the rule that needs no test data, and its AUROC at the best dimension for the very images
    and at its code's default, of which the paper may have used either.
    """
    neco = "neco,dim=0.9"
    fixed = moves(detected(ood, neco), *auroc, margin=0.001), moves(let_through(ood, neco), *fpr, margin=0.001)
    return [*fixed, *(moves(quantity, *auroc, margin=0.001) for quantity in (at_best(ood), at_dim(ood, 100)))]
