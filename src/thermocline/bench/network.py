"""Benchmarks on a whole net: one streaming pass against hooks, a layer at a time or all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from thermocline import data, measure, nets, spec
from thermocline.bench.case import Answers, Case, sized, within
from thermocline.bench.images import settle
from thermocline.measure.probing import RIDGES
from thermocline.measure.subject import BATCH
from thermocline.record import RANK, params

Labelled = tuple[Tensor, Tensor]
MEASURED = ("rank", "probe_accuracy", "effective_depth", "ood_drop")


class Work(NamedTuple):
    """A net with sane statistics, its data, and other data."""

    net: nn.Module
    train: Labelled
    test: Labelled
    ood_train: Labelled
    ood_test: Labelled


def _work(scale: float) -> Work:
    count, held = sized(4000, scale, least=80), sized(1000, scale, least=40)
    classes = min(100, count // 20)
    splits: list[Labelled] = []
    like = None
    for name in ("runes", "runes:1"):
        for split in data.load(name, classes=classes, train=count, test=held, like=like):
            images, labels, _ = split.take(torch.arange(len(split)))
            splits.append((images, labels))
            like = like or split
    net = nets.build(spec.Net("resnet20"), classes=classes, size=16, channels=1)
    settle(net, splits[0][0][:BATCH])
    return Work(net, *splits)


def _scan(work: Work) -> Answers:
    ood = {"ood": (work.ood_train, work.ood_test)}
    rows = measure.measure(work.net, work.train, work.test, ood, temperature=1.0, measures=MEASURED, probes=("ridge",))

    def values(name: str, split: str, convention: str = "") -> np.ndarray:
        return np.array([row.value for row in rows if (row.measure, row.split) == (name, split) and convention in row.params])

    return {
        "rank": values("rank", "train", params(**RANK)),
        "accuracy": np.stack([values("probe_accuracy", split) for split in ("test", "ood/test")]),
        "effective_depth": values("effective_depth", "test"),
        "ood_drop": values("ood_drop", "ood/test"),
    }


def _features(net: nn.Module, paths: Sequence[str], images: Tensor) -> list[Tensor]:
    """The outputs of some modules for all images, by hooks and torch.cat, maps pooled to 2 x 2."""
    kept: list[list[Tensor]] = [[] for _ in paths]

    def keeper(place: list[Tensor]):
        def keep(module: nn.Module, inputs: object, output: Tensor) -> None:
            pooled = functional.adaptive_avg_pool2d(output, 2) if output.ndim == 4 else output
            place.append(pooled.flatten(1).clone())

        return keep

    handles = [net.get_submodule(path).register_forward_hook(keeper(place)) for path, place in zip(paths, kept)]
    with torch.no_grad():
        for batch in images.split(BATCH):
            net(batch)
    for handle in handles:
        handle.remove()
    return [torch.cat(batches) for batches in kept]


def _script(work: Work, groups: Sequence[Sequence[str]]) -> Answers:
    """The usual script: forward everything for each group of layers, then an SVD and two ridge classifiers a layer."""
    net, *splits = work
    ranks, accuracies = [], []
    for paths in groups:
        for train, test, ood_train, ood_test in zip(*(_features(net, paths, images) for images, _ in splits)):
            variance = torch.linalg.svdvals(train - train.mean(0)) ** 2
            ranks.append(int((variance > RANK["rtol"] * variance[0]).sum()))
            (_, y), (_, test_y), (_, ood_y), (_, ood_test_y) = splits
            accuracies.append([_ridge(train, y, test, test_y), _ridge(ood_train, ood_y, ood_test, ood_test_y)])
    inside, outside = np.array(accuracies).T
    depth = (np.argmax(inside >= 0.99 * inside[-1]) + 1) / len(inside)
    drop = (outside.max() - outside[-1]) / outside.max()
    answers = {"rank": ranks, "accuracy": [inside, outside], "effective_depth": [depth], "ood_drop": [drop]}
    return {name: np.array(value) for name, value in answers.items()}


def _ridge(x: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor) -> float:
    from sklearn.linear_model import RidgeClassifier

    penalty = RIDGES["ridge"] * float(x.var(0, correction=0).mean()) * len(x)
    return RidgeClassifier(alpha=penalty).fit(x.numpy(), labels.numpy()).score(test.numpy(), test_labels.numpy())


def _layer_by_layer(work: Work) -> Answers:
    return _script(work, [[tap.path] for tap in nets.taps(work.net)])


def _all_at_once(work: Work) -> Answers:
    return _script(work, [[tap.path for tap in nets.taps(work.net)]])


AGREE = within({"rank": 0, "accuracy": 0.01, "effective_depth": 0.05, "ood_drop": 0.02})
CASES = {
    "scan": Case(
        "measure", "rank, probes, effective depth and OOD drop of a ResNet-20 on 4,000 + 1,000 images and as many others",
        "a script that runs the net again for each layer, svdvals and RidgeClassifier", _work, _scan, _layer_by_layer, AGREE,
        devices=("cpu",),
    ),
    "scan-hooks": Case(
        "measure", "the same scan", "a script that hooks all layers in one run and keeps their features, then the same",
        _work, _scan, _all_at_once, AGREE, devices=("cpu",),
    ),
}  # fmt: skip
