"""Benchmarks on feature matrices: spectra, probes, neural collapse, AUROC."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from thermocline import detect, geometry, probes
from thermocline.bench.case import Answers, Case, sized, within
from thermocline.moments import ClassMoments, Moments
from thermocline.record import RANK

CLASSES, WIDTH, ALPHA = 100, 512, 1.0


def draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def labelled(seed: int, count: int, signal: float) -> tuple[Tensor, Tensor]:
    """Gaussian classes in `WIDTH` dimensions with a decaying spectrum; the labels take turns."""
    means = torch.randn(CLASSES, WIDTH, generator=draw(seed))
    labels = torch.arange(count) % CLASSES
    x = torch.randn(count, WIDTH, generator=draw(seed + 1)).add_(means[labels], alpha=signal)
    return x.mul_(torch.logspace(0, -1, WIDTH)), labels


def _spectrum_inputs(scale: float) -> Tensor:
    shape = sized(10_000, scale, least=40), sized(4096, scale, least=16)
    return torch.randn(*shape, generator=draw(0)).mul_(torch.logspace(0, -3, shape[1]))


def _rank_from_moments(x: Tensor) -> Answers:
    return {"rank": geometry.numerical_rank(Moments.of(x), **RANK).cpu().numpy()}


def _rank_by_svd(x: Tensor) -> Answers:
    variance = torch.linalg.svdvals(x - x.mean(0)) ** 2
    return {"rank": (variance > RANK["rtol"] * variance[0]).sum().cpu().numpy()}


class Layers(NamedTuple):
    """Features of some layers to fit probes on, and of other samples to score them with."""

    train: list[Tensor]
    test: list[Tensor]
    labels: Tensor
    test_labels: Tensor


def _layers(scale: float) -> Layers:
    count, held = sized(10_000, scale, least=20 * CLASSES), sized(2000, scale, least=5 * CLASSES)
    signals = torch.linspace(0.1, 0.4, sized(20, scale, least=2)).tolist()
    pairs = [labelled(2 * layer, count + held, signal) for layer, signal in enumerate(signals)]
    train, test = ([x[some].clone() for x, _ in pairs] for some in (slice(count), slice(count, None)))
    labels = pairs[0][1]
    return Layers(train, test, labels[:count], labels[count:])


def _ridge_from_moments(layers: Layers) -> Answers:
    accuracies = []
    for x, other in zip(layers.train, layers.test):
        probe = probes.ridge_probe(ClassMoments.of(x, layers.labels, classes=CLASSES), alpha=ALPHA)
        accuracies.append(float((probe.predict(other) == layers.test_labels).double().mean()))
    return {"accuracy": np.array(accuracies)}


def _ridge_from_gram(layers: Layers) -> Answers:
    """The normal equations as they are written down, in the float64 they need."""
    hot = torch.nn.functional.one_hot(layers.labels, CLASSES).double()
    share, accuracies = hot.mean(0), []
    for x, other in zip(layers.train, layers.test):
        mean = x.double().mean(0)
        wide = x.double() - mean
        gram = wide.T @ wide + ALPHA * torch.eye(wide.shape[1], dtype=torch.float64, device=x.device)
        weight = torch.linalg.solve(gram, wide.T @ (hot - share))
        scores = (other.double() - mean) @ weight + share
        accuracies.append(float((scores.argmax(1) == layers.test_labels).double().mean()))
    return {"accuracy": np.array(accuracies)}


def _sklearn_ridge(layers: Layers) -> Answers:
    from sklearn.linear_model import RidgeClassifier

    return _sklearn(RidgeClassifier(alpha=ALPHA), layers)


def _sklearn_logistic(layers: Layers) -> Answers:
    from sklearn.linear_model import LogisticRegression

    return _sklearn(LogisticRegression(), layers)


def _sklearn(model: Any, layers: Layers) -> Answers:
    labels, test_labels = layers.labels.numpy(), layers.test_labels.numpy()
    pairs = zip(layers.train, layers.test)
    return {"accuracy": np.array([model.fit(x.numpy(), labels).score(y.numpy(), test_labels) for x, y in pairs])}


def _no_worse(ours: Answers, theirs: Answers) -> tuple[bool, str]:
    """Two kinds of probe differ; what is asked of the fast one is that no layer reads much worse by it."""
    gap = ours["accuracy"] - theirs["accuracy"]
    means = ours["accuracy"].mean(), theirs["accuracy"].mean()
    return bool(gap.min() > -0.05), "mean accuracy {:.3f} vs {:.3f}; by layer {:+.3f} to {:+.3f}".format(
        *means, gap.min(), gap.max()
    )


class Head(NamedTuple):
    """Features before a linear head, and the head."""

    features: Tensor
    labels: Tensor
    weight: Tensor
    bias: Tensor | None = None


def _head(scale: float) -> Head:
    features, labels = labelled(100, sized(50_000, scale, least=10 * CLASSES), 0.5)
    return Head(features, labels, torch.randn(CLASSES, WIDTH, generator=draw(102)))


COLLAPSE = ("nc1", "nc1_trace", "nc2_equinorm", "nc2_equiangular", "nc3", "nc4")


def _collapse_from_moments(head: Head) -> Answers:
    found = geometry.neural_collapse(*head, rtol=1e-3)
    return {name: getattr(found, name).cpu().numpy() for name in COLLAPSE}


def collapse_by_class(head: Head) -> Answers:
    """One pass for the means and one for the scatter, a class at a time, in the features' own float32."""
    features, labels, weight, bias = head
    classes, width = weight.shape
    means = torch.stack([features[labels == c].mean(0) for c in range(classes)])
    within_ = features.new_zeros(width, width)
    for c in range(classes):
        moved = features[labels == c] - means[c]
        within_ += moved.T @ moved / len(features)
    centred = means - means.mean(0)
    between = centred.T @ centred / classes
    unit = centred / centred.norm(dim=1, keepdim=True)
    angles = (unit @ unit.T + 1 / (classes - 1))[~torch.eye(classes, dtype=torch.bool, device=weight.device)]
    norms = centred.norm(dim=1)
    values = (
        torch.trace(within_ @ torch.linalg.pinv(between, rtol=1e-3, hermitian=True)) / classes,
        within_.trace() / between.trace(),
        norms.std(correction=0) / norms.mean(),
        angles.abs().mean(),
        (weight / weight.norm() - centred / centred.norm()).square().sum(),
        (functional.linear(features, weight, bias).argmax(1) != torch.cdist(features, means).argmin(1)).float().mean(),
    )
    return {name: value.cpu().numpy() for name, value in zip(COLLAPSE, values)}


class Scored(NamedTuple):
    """Scores of two kinds of samples."""

    inside: Tensor
    outside: Tensor


def _scored(scale: float) -> Scored:
    count = sized(500_000, scale, least=100)
    return Scored(torch.randn(count, generator=draw(300)) + 1, torch.randn(count, generator=draw(301)))


def _auroc(scored: Scored) -> Answers:
    return {"auroc": detect.auroc(*scored).numpy()}


def _sklearn_auroc(scored: Scored) -> Answers:
    from sklearn.metrics import roc_auc_score

    truth = np.repeat([1, 0], [len(scored.inside), len(scored.outside)])
    return {"auroc": np.array(roc_auc_score(truth, torch.cat(scored).numpy()))}


CASES = {
    "spectrum-rank": Case(
        "measure", "numerical rank of a float32 matrix, 10,000 x 4096", "torch.linalg.svdvals of the centred matrix",
        _spectrum_inputs, _rank_from_moments, _rank_by_svd, within({"rank": 0}),
    ),
    "probes-gram": Case(
        "measure", "ridge probes on 20 layers of 10,000 x 512, 100 classes", "the normal equations in float64, layer by layer",
        _layers, _ridge_from_moments, _ridge_from_gram, within({"accuracy": 1e-3}),
    ),
    "probes-ridge": Case(
        "measure", "ridge probes on 20 layers of 10,000 x 512, 100 classes", "scikit-learn RidgeClassifier, layer by layer",
        _layers, _ridge_from_moments, _sklearn_ridge, within({"accuracy": 1e-3}), devices=("cpu",),
    ),
    "probes-logistic": Case(
        "measure", "the same ridge probes, in place of logistic ones", "scikit-learn LogisticRegression, layer by layer",
        _layers, _ridge_from_moments, _sklearn_logistic, _no_worse, devices=("cpu",),
    ),
    "neural-collapse": Case(
        "measure", "NC1 to NC4 of 50,000 x 512, 100 classes", "two loops over the classes, float32",
        _head, _collapse_from_moments, collapse_by_class, within(dict.fromkeys(COLLAPSE, 1e-3)),
    ),
    "auroc": Case(
        "measure", "AUROC of 1,000,000 scores", "scikit-learn roc_auc_score",
        _scored, _auroc, _sklearn_auroc, within({"auroc": 1e-9}), devices=("cpu",),
    ),
}  # fmt: skip
