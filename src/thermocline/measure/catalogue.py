"""The measures: one cited function each, from what the passes left behind to rows; and the registry of them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from thermocline import geometry, probes
from thermocline.measure import detecting, source, trust
from thermocline.measure.passes import Seen
from thermocline.record import RANK, Row, params

SAMPLES = (500, 2000, 8000)  # of which rank is counted again, to see what their number does
TAIL = 100  # samples of the first class for one of the last, in a sample made uneven for the same reason
SWEEP = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


def accuracy(seen: Seen) -> Iterator[Row]:
    """The share of images whose largest logit is the labelled class.

    (1/n) sum_i [argmax_k e_ik = y_i]                                         [masarczyk2025softmax, Sec. 2]
    """
    for split in _known(seen):
        one = seen.outputs[split]
        yield Row.whole(split, "accuracy", "", float(one.correct) / one.count)


def loss(seen: Seen) -> Iterator[Row]:
    """Cross-entropy at the training temperature, in nats.

    -(1/n) sum_i log softmax_T(e_i)_{y_i}                                     [masarczyk2025softmax, Sec. 2]
    """
    for split in _known(seen):
        one = seen.outputs[split]
        yield Row.whole(split, "loss", "", float(one.loss) / one.count)


def _known(seen: Seen) -> list[str]:
    return [split for split in ("train", "test") if split in seen.outputs]


def logit_norm(seen: Seen) -> Iterator[Row]:
    """The size of the logits: the root mean square norm of a logit vector.

    ||M||_F / sqrt(n)                                                         [masarczyk2025softmax, Fig. 2]
    """
    moments = seen.outputs["train"].moments
    energy = moments.scatter.trace() / moments.count + moments.mean.square().sum()
    yield Row.whole("train", "logit_norm", "", energy.sqrt())


def tempered_logit_norm(seen: Seen) -> Iterator[Row]:
    """The size of the logits as the softmax sees them: small means a nearly uniform softmax.

    ||M||_F / (T sqrt(n))                                                     [masarczyk2025softmax, Fig. 2]
    """
    for row in logit_norm(seen):
        yield row._replace(measure="tempered_logit_norm", value=row.value / seen.temperature)


def temperature(seen: Seen) -> Iterator[Row]:
    """The temperature of the loss, which may move while a net is trained.

    T in softmax_T(e) = exp(e / T) / sum exp(e / T)                           [masarczyk2025softmax, Sec. 2]
    """
    yield Row.whole("train", "temperature", "", seen.temperature)


def singular_value(seen: Seen) -> Iterator[Row]:
    """The spectrum of a layer: how far the training images spread along each of its main directions.

    sigma_i(A - mean(A)),  A = the layer's outputs, one image a row           [masarczyk2025softmax, Fig. 3]
    """
    for tap, row in seen.layers():
        values = seen.spectrum(tap).tolist()
        for index, value in enumerate(values if seen.final else values[:5]):
            yield row("singular_value", params(index=index), value)


def rank(seen: Seen) -> Iterator[Row]:
    """Numerical rank of a layer: how many directions its outputs really use.

    #{i : sigma_i > rtol * sigma_1}   (of=covariance: sigma_i^2)              [masarczyk2023tunnel]
    """
    for tap, row in seen.layers():
        for convention in _conventions(seen, seen.formats[tap]):
            value = geometry.numerical_rank(seen.spectrum(tap), **convention)
            yield row("rank", params(**convention), float(value))


def solution_rank(seen: Seen) -> Iterator[Row]:
    """Numerical rank of the logits; neural collapse predicts classes - 1.

    rank(M) = #{i : sigma_i(M) > rtol * sigma_1(M)}                           [masarczyk2025softmax, Tab. 1]
    """
    _, row = seen.head
    met, logits = int((seen.counts > 0).sum()), len(seen.logit_spectrum)
    # Of a class without a sample no direction can be expected. The few samples that a watch follows may lack many by chance.
    fewer = {"classes": met} if seen.final and met < logits else {}
    for convention in _conventions(seen, seen.outputs["train"].format):
        value = geometry.numerical_rank(seen.logit_spectrum, **convention)
        yield row("solution_rank", params(**convention, **fewer), float(value))


def rank_by_samples(seen: Seen) -> Iterator[Row]:
    """Numerical rank of the logits counted on fewer samples, and on a long tail of classes.

    rank(M_S),  S: n samples spread over the set, or of class k a share of 100^(-k / (c - 1))   [masarczyk2025softmax]
    """
    logits, labels = seen.outputs["train"].some.values
    _, row = seen.head
    count, classes = len(labels), logits.shape[1]
    chosen = {f"n={n}": source.some(n, of=count).to(labels.device) for n in SAMPLES if n < count}
    share = TAIL ** (-torch.arange(classes, device=labels.device) / max(classes - 1, 1))
    same = labels[:, None] == torch.arange(classes, device=labels.device)
    place = same.cumsum(0)[torch.arange(count, device=labels.device), labels]
    chosen[f"balance=tail{TAIL}"] = torch.nonzero(place <= (share * same.sum(0)).ceil()[labels])[:, 0]
    for how, some in chosen.items():
        yield row("rank_by_samples", f"{params(**RANK)},{how}", float(geometry.numerical_rank(logits[some], **RANK)))


def _conventions(seen: Seen, dtype: torch.dtype) -> list[dict]:
    """The headline, and at the end a sweep as far as the net's number format reaches: beyond, rounding would be counted."""
    return [RANK, *({"of": "features", "rtol": rtol} for rtol in SWEEP if seen.final and rtol > torch.finfo(dtype).eps)]


def stable_rank(seen: Seen) -> Iterator[Row]:
    """Energy of a layer in units of its largest direction; needs no tolerance.

    sum_i sigma_i^2 / sigma_1^2                                               [rudelson2007sampling, Sec. 1]
    """
    for tap, row in seen.layers():
        yield row("stable_rank", "", float(geometry.stable_rank(seen.spectrum(tap))))


def entropy_rank(seen: Seen) -> Iterator[Row]:
    """Effective rank of a layer: how evenly its spectrum is spread.

    exp(-sum_i p_i log p_i),  p_i = sigma_i / sum_j sigma_j                   [roy2007effective, Sec. 2]
    """
    for tap, row in seen.layers():
        yield row("entropy_rank", "", float(geometry.entropy_rank(seen.spectrum(tap))))


def functional_rank(seen: Seen) -> Iterator[Row]:
    """How many singular directions of the logits it takes to keep 99 % of the accuracy.

    min{k : acc(rank-k truncation of M) >= 0.99 acc(M)}                       [eckart1936approximation]
    """
    some = seen.outputs["train"].some
    logits, labels = some.values
    _, row = seen.head
    value = geometry.functional_rank(logits, labels, keep=0.99)
    yield row("functional_rank", params(keep=0.99, **some.thinned), float(value))


def softmax_rank(seen: Seen) -> Iterator[Row]:
    """Numerical rank of the probabilities: how many directions the softmax makes of those it is given.

    rank(softmax_T(M))                                                        [masarczyk2025softmax, Fig. 5]
    """
    some = seen.outputs["train"].some
    _, row = seen.head
    found = geometry.softmax_rank(some.values[0], temperature=seen.temperature, **RANK, centered=True)
    yield row("softmax_rank", params(**RANK, **some.thinned), float(found.after))


def compression(seen: Seen) -> Iterator[Row]:
    """How many principal directions before the head keep 99 % of a split's accuracy; test accuracy with as many as training.

    min{k : acc(W (mean + P_k (h - mean)) + b) >= 0.99 acc(W h + b)}          [masarczyk2025softmax]
    """
    tap, row = seen.head
    weight, bias = seen.weight(tap), getattr(seen.net.get_submodule(tap.path), "bias", None)
    (features,), (logits, labels), some = seen.last.some.values, seen.outputs["train"].some.values, seen.last.some
    whole = weight is not None and weight.shape[1] == features.shape[1]
    if weight is None or not whole or not detecting.reproduces(weight, bias, features, logits):
        return  # what is not W h + b cannot be read with fewer h
    found = geometry.head_subspace(features, labels, weight, bias, keep=0.99)
    how = params(keep=0.99, **some.thinned)
    yield row("compression", f"part=dimensions,{how}", float(found.dim))
    yield row("compression", f"part=share,{how}", float(found.dim) / weight.shape[1])
    if "test" in seen.unseen:
        features, labels = seen.unseen["test"].some.values
        logits = found.project(features) @ weight.double().T + (0 if bias is None else bias.double())
        value = float((logits.argmax(1) == labels).double().mean())
        needed = float(found.on(features, labels, weight, bias, keep=0.99).dim)
        more = params(keep=0.99, **seen.unseen["test"].some.thinned)
        for part, number in (("accuracy", value), ("dimensions", needed), ("share", needed / weight.shape[1])):
            yield row("compression", f"part={part},{more}", number)._replace(split="test")


def alignment(seen: Seen) -> Iterator[Row]:
    """How well a layer's weight is turned towards the inputs it meets; `null` is what chance would give.

    max |V_W[:, :15]^T U_A[:, :15]|,  W = U_W S V_W^T,  A = U_A S V_A^T       [masarczyk2025softmax, Fig. 3]
    """
    for tap, row in seen.layers():
        if (inputs := seen.again.inputs.get(tap)) is None or (weight := seen.weight(tap)) is None:
            continue
        more = seen.thinned(inputs.samples)
        if inputs.columns is not None:
            weight, more = weight[:, inputs.columns], {**more, "subset": len(inputs.columns)}
        found = geometry.alignment(weight, inputs.moments, top=15)
        for part in ("max", "first", "null"):
            yield row("alignment", params(part=part, top=15, **more), float(getattr(found, part)))


def gradient_rank(seen: Seen) -> Iterator[Row]:
    """Numerical rank of the gradient of a layer's weight; the rank of its inputs bounds it.

    rank(dL/dW),  dL/dW = (dL/dZ) A^T                                         [masarczyk2025softmax, Fig. 4]
    """
    for tap, row in seen.layers():
        if (gradient := seen.again.gradients.get(tap)) is not None:  # a weight computed from others has none
            value = geometry.gradient_rank(gradient.double(), **RANK)
            yield row("gradient_rank", params(**RANK, **seen.thinned(seen.again.samples)), float(value))


def neural_collapse(seen: Seen) -> Iterator[Row]:
    """How far the features before the head are from neural collapse; every part is 0 at collapse.

    NC1 = Tr(Sigma_W pinv(Sigma_B)) / c; NC2, NC3, NC4 as in geometry.neural_collapse   [papyan2020collapse]
    """
    tap, row = seen.head
    moments, some, weight = seen.last.moments, seen.last.some, seen.weight(tap)
    if weight is None or len(weight) < 2 or not moments.counts.all():
        return  # a class without a sample has no mean to compare, nor has a single class another
    nearest = geometry.nearest_class_mean(some.values[0], moments.means)
    nc4 = (seen.outputs["train"].some.values[0].argmax(1) != nearest).double().mean()
    found = geometry.collapse_from_moments(moments, seen.last.read(weight), nc4=nc4)
    for part, value in found._asdict().items():
        if value.isfinite():  # equal class means leave parts without a value
            more = {**seen.last.subset, **(some.thinned if part == "nc4" else {})}
            yield row("neural_collapse", params(part=part, **more), float(value))


def orthodev(seen: Seen) -> Iterator[Row]:
    """How far other data's mean feature is from orthogonal to the class means: 0 is orthogonal, 1 parallel.

    mean_c |<mu_c, mu_OOD>| / (||mu_c|| ||mu_OOD||)                           [masarczyk2025softmax, Fig. 7]
    """
    moments = seen.last.moments
    present = moments.means[moments.counts > 0]
    for name in seen.ood:
        if f"{name}/test" not in seen.scores:
            continue
        other = seen.scores[f"{name}/test"].mean
        for centered in (False, True):
            value = float(geometry.orthodev(present, other, centered=centered))
            if math.isfinite(value):  # a mean of zero has no direction
                yield seen.before_head(f"{name}/test")("orthodev", params(centered=str(centered).lower()), value)


def probe_accuracy(seen: Seen) -> Iterator[Row]:
    """Test accuracy of a linear classifier trained on a layer's frozen outputs, on this data set.

    argmax_k (W a + b)_k;  ridge: W = (S + alpha I)^-1 X^T Y;  logistic: min -sum log softmax(W a + b)_y   [alain2017probes]
    """
    for split in ("test", *(f"{name}/test" for name in seen.ood)):
        for readout, value in seen.probe_accuracy.get(split, {}).items():
            place = (readout.tap.path, readout.depth, readout.tap.label)
            yield Row(split, *place, "probe_accuracy", f"{readout.params},{seen.guessing[split]}", value)


def effective_depth(seen: Seen) -> Iterator[Row]:
    """The share of the layers after which a linear probe does as well as at the end.

    kappa = min{l : a_l >= 0.99 a_L} / L                                      [masarczyk2025softmax, Sec. 2.1]
    """
    for kind, accuracies in _by_probe(seen, "test").items():
        value = probes.effective_depth(accuracies, threshold=0.99)
        yield Row.whole("test", "effective_depth", f"{kind},{params(threshold=0.99)}", value)


def ood_drop(seen: Seen) -> Iterator[Row]:
    """How much of the best layer's accuracy on other data the last layer has lost.

    rho = (max_l a_l - a_L) / max_l a_l                                       [masarczyk2025softmax, Sec. 2.1]
    """
    for name in seen.ood:
        for kind, accuracies in _by_probe(seen, f"{name}/test").items():
            if accuracies.max() > 0:  # where nothing was right, nothing can be lost
                yield Row.whole(f"{name}/test", "ood_drop", kind, probes.ood_drop(accuracies))


def _by_probe(seen: Seen, split: str) -> dict[str, Tensor]:
    """Accuracies by layer of every kind of probe."""
    found: dict[str, list[float]] = {}
    for readout, value in seen.probe_accuracy.get(split, {}).items():
        found.setdefault(readout.protocol, []).append(value)
    return {kind: torch.tensor(values, dtype=torch.float64) for kind, values in found.items()}


@dataclass(frozen=True)
class Measure:
    """A measure: its function, what it needs, and whether it is cheap enough to follow training with."""

    function: Callable[[Seen], Iterator[Row]]
    needs: frozenset[str]
    throughout: bool

    def explain(self) -> dict[Literal["meaning", "formula", "reference"], str]:
        """The docstring's three parts."""
        meaning, rest = (self.function.__doc__ or "").strip().split("\n", 1)
        formula, reference = rest.strip().rsplit("[", 1)
        return {"meaning": meaning.strip(), "formula": formula.strip(), "reference": "[" + reference.strip()}


def _measure(function: Callable[[Seen], Iterator[Row]], *needs: str, throughout: bool = False) -> tuple[str, Measure]:
    return function.__name__, Measure(function, frozenset(needs), throughout)


MEASURES: dict[str, Measure] = dict(
    [
        _measure(accuracy, throughout=True),
        _measure(loss, throughout=True),
        _measure(logit_norm, throughout=True),
        _measure(tempered_logit_norm, throughout=True),
        _measure(temperature, throughout=True),
        _measure(solution_rank, throughout=True),
        _measure(rank_by_samples),
        _measure(rank, "moments", throughout=True),
        _measure(stable_rank, "moments", throughout=True),
        _measure(entropy_rank, "moments", throughout=True),
        _measure(singular_value, "moments", throughout=True),
        _measure(functional_rank),
        _measure(softmax_rank, throughout=True),
        _measure(compression, "features", "unseen"),
        _measure(alignment, "inputs"),
        _measure(gradient_rank, "gradients"),
        _measure(neural_collapse, "features"),
        _measure(probe_accuracy, "probes", "ood"),
        _measure(effective_depth, "probes"),
        _measure(ood_drop, "probes", "ood"),
        _measure(orthodev, "features", "ood"),
        _measure(trust.auroc, "features", "scores", "ood"),
        _measure(trust.auroc_interval, "features", "scores", "ood"),
        _measure(trust.aupr, "features", "scores", "ood"),
        _measure(trust.fpr, "features", "scores", "ood"),
        _measure(trust.neco_oracle, "features", "unseen", "ood"),
        _measure(trust.neco_by_dim, "features", "unseen", "ood"),
        _measure(trust.roc, "features", "scores", "ood"),
        _measure(trust.score_histogram, "features", "scores", "ood"),
        _measure(trust.confusion, "features"),
        _measure(trust.fitted_temperature),
        _measure(trust.ece),
        _measure(trust.brier),
        _measure(trust.reliability),
    ]
)
