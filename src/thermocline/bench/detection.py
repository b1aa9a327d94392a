"""Benchmarks of detectors: against pytorch-ood where it has the method, against scikit-learn where it has not."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from thermocline import detect
from thermocline.bench.arrays import CLASSES, WIDTH, draw, labelled
from thermocline.bench.case import Answers, Case, sized, within
from thermocline.nets.borrowed import declare_torchvision_operators

DIM = WIDTH // 2  # the main axes of ViM
NEIGHBOURS = 50  # theirs by default


class Samples(NamedTuple):
    """In-distribution features and labels to fit a detector to, features to score, and the head that reads them."""

    train: Tensor
    labels: Tensor
    test: Tensor
    weight: Tensor
    bias: Tensor


def _samples(scale: float, *, test: int = 10_000) -> Samples:
    train, labels = labelled(200, sized(50_000, scale, least=2 * WIDTH), 0.5)
    weight = torch.randn(CLASSES, WIDTH, generator=draw(204)).mul_(0.3)
    return Samples(train, labels, labelled(202, sized(test, scale, least=50), 0.5)[0], weight, torch.linspace(-1, 1, CLASSES))


def trained(scale: float) -> Samples:
    """Features as a trained net makes them: half of those to score are of its classes, half of as many it was not shown.

        h = o + Q (m_y + e),   var m = exp(-i / 24),   var e = 0.144 exp(-i / 85),   i = 0, 1, ...,   Q a rotation

    Matched to a ResNet-18 trained on CIFAR-100 at T = 1 (results/table1, seed 1): tr(within) is half of tr(between), as its
    nc1_trace of 0.504 says, and shares of the variance of the last block are 0.031, 0.016, 0.0057, 0.0012, 0.0004 and 0.0001
    at i = 0, 19, 49, 100, 200 and 300, where the rows have 0.046, 0.017, 0.0042, 0.0011, 0.0003 and 0.0001. Features behind
    a ReLU are far from 0: their mean o has twice the square that the classes have about it.
    """
    axis = torch.arange(WIDTH)
    between, within_ = torch.exp(-axis / 24), torch.exp(-axis / 85)
    within_ *= 0.5 * between.sum() / within_.sum()
    means = torch.randn(2 * CLASSES, WIDTH, generator=draw(400)) * between.sqrt()
    turn = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=draw(401)))[0]
    centre = torch.rand(WIDTH, generator=draw(402))
    centre *= (2 * between.sum()).sqrt() / centre.norm()

    def sampled(seed: int, labels: Tensor) -> Tensor:
        noise = torch.randn(len(labels), WIDTH, generator=draw(seed)).mul_(within_.sqrt())
        return noise.add_(means[labels]) @ turn + centre

    labels = torch.arange(sized(50_000, scale, least=2 * WIDTH)) % CLASSES
    other = torch.arange(sized(10_000, scale, least=50)) % (2 * CLASSES)
    return Samples(sampled(403, labels), labels, sampled(404, other), torch.zeros(CLASSES, WIDTH), torch.zeros(CLASSES))


def noise(scale: float) -> Samples:
    """No structure at all, where no neighbour can be ruled out by a few coordinates: the worst case of a search."""
    train, test = (
        torch.randn(sized(count, scale, least=least), WIDTH, generator=draw(seed))
        for seed, count, least in ((410, 50_000, 2 * WIDTH), (411, 10_000, 50))
    )
    return Samples(train, torch.arange(len(train)) % CLASSES, test, torch.zeros(CLASSES, WIDTH), torch.zeros(CLASSES))


def _vim(data: Samples) -> Answers:
    """Features in, scores out: the logits are worked out on both sides, as theirs does it inside."""
    train, test = (torch.nn.functional.linear(x, data.weight, data.bias) for x in (data.train, data.test))
    fitted = detect.ViM(data.weight, data.bias, dim=DIM).fit(data.train, train)
    return {"scores": fitted.score(data.test, test).cpu().numpy()}


def _features_alone(detector: detect.Detector, data: Samples) -> Answers:
    return {"scores": detector.fit(data.train, labels=data.labels).score(data.test).cpu().numpy()}


def _theirs(name: str, data: Samples, *arguments: Any, **options: Any) -> Answers:
    detector = getattr(pytorch_ood(), name)(None, *arguments, **options).fit_features(data.train, data.labels)
    return {"scores": -detector.predict_features(data.test).cpu().double().numpy()}


def pytorch_ood() -> Any:
    """Their detectors."""
    declare_torchvision_operators()
    from pytorch_ood import detector  # pyright: ignore[reportMissingImports]

    return detector


def _sklearn_neco(data: Samples) -> Answers:
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), PCA(n_components=0.9)).fit(data.train.numpy())
    test = data.test.numpy()
    whole = np.linalg.norm(pipeline[0].transform(test), axis=1)
    return {"scores": np.linalg.norm(pipeline.transform(test), axis=1) / whole}


def _their_mahalanobis(data: Samples) -> Answers:
    """Their covariance is a sum and not a mean, and their score half of the distance."""
    return {"scores": _theirs("Mahalanobis", data)["scores"] * 2 * len(data.train)}


def _knn(data: Samples) -> Answers:
    return _features_alone(detect.KNN(k=NEIGHBOURS), data)


def _their_knn(data: Samples) -> Answers:
    return _theirs("KNN", data, k=NEIGHBOURS)


OOD = ("pytorch_ood", "torchvision")
CASES = {
    "neco": Case(
        "detect", "NECO fitted on 50,000 x 512, scoring 10,000", "scikit-learn StandardScaler and PCA(0.9)",
        _samples, lambda data: _features_alone(detect.NECO(dim=0.9), data), _sklearn_neco, within({"scores": 1e-6}),
        devices=("cpu",),
    ),
    "mahalanobis": Case(
        "detect", "Mahalanobis distances, fitted on 50,000 x 512, 100 classes, scoring as many", "pytorch-ood Mahalanobis",
        functools.partial(_samples, test=50_000), lambda data: _features_alone(detect.Mahalanobis(), data), _their_mahalanobis,
        within({"scores": 1e-4}, relative=["scores"]), devices=("cpu",), needs=OOD,
    ),
    "knn": Case(
        "detect", "distances to the 50th nearest of 50,000 x 512, as of a trained ResNet-18, scoring 10,000",
        "pytorch-ood KNN (scikit-learn inside)",
        trained, _knn, _their_knn, within({"scores": 1e-5}), devices=("cpu",), needs=OOD,
    ),
    "knn-noise": Case(
        "detect", "the same on noise, where nothing can be ruled out", "pytorch-ood KNN (scikit-learn inside)",
        noise, _knn, _their_knn, within({"scores": 1e-5}), devices=("cpu",), needs=OOD,
    ),
    "vim": Case(
        "detect", "ViM with 256 main axes, fitted on 50,000 x 512, 100 classes, scoring 10,000", "pytorch-ood ViM, float32",
        _samples, _vim, lambda data: _theirs("ViM", data, DIM, data.weight, data.bias), within({"scores": 1e-3}),
        devices=("cpu",), needs=OOD,
    ),
}  # fmt: skip
