"""Benchmarks of detectors: against pytorch-ood where it has the method, against scikit-learn where it has not."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from thermocline import detect
from thermocline.bench.arrays import CLASSES, WIDTH, draw, labelled
from thermocline.bench.case import Answers, Case, sized, within

DIM = WIDTH // 2  # the main axes of ViM
NEIGHBOURS = 50  # theirs by default


class Samples(NamedTuple):
    """In-distribution features and labels to fit a detector to, features to score, and the head that reads them."""

    train: Tensor
    labels: Tensor
    test: Tensor
    weight: Tensor
    bias: Tensor


def _samples(scale: float) -> Samples:
    return _drawn(scale, 10_000)


def _as_many(scale: float) -> Samples:
    return _drawn(scale, 50_000)


def _drawn(scale: float, test: int) -> Samples:
    train, labels = labelled(200, sized(50_000, scale, least=2 * WIDTH), 0.5)
    weight = torch.randn(CLASSES, WIDTH, generator=draw(204)).mul_(0.3)
    return Samples(train, labels, labelled(202, sized(test, scale, least=50), 0.5)[0], weight, torch.linspace(-1, 1, CLASSES))


def _ours(detector: detect.Detector, data: Samples) -> Answers:
    """Features in, scores out: the logits are worked out on both sides, as theirs does it inside."""
    train, test = (torch.nn.functional.linear(x, data.weight, data.bias) for x in (data.train, data.test))
    return {"scores": detector.fit(data.train, train, data.labels).score(data.test, test).cpu().numpy()}


def _features_alone(detector: detect.Detector, data: Samples) -> Answers:
    train, test = (x.new_empty(len(x), 0) for x in (data.train, data.test))
    return {"scores": detector.fit(data.train, train, data.labels).score(data.test, test).cpu().numpy()}


def _theirs(name: str, data: Samples, *arguments: Any, **options: Any) -> Answers:
    detector = getattr(pytorch_ood(), name)(None, *arguments, **options).fit_features(data.train, data.labels)
    return {"scores": -detector.predict_features(data.test).cpu().double().numpy()}


def pytorch_ood() -> Any:
    """Their detectors. Their package imports torchvision, which beside a torch of another build misses its own operators."""
    try:
        import torchvision  # noqa: F401  # pyright: ignore[reportMissingImports]
    except RuntimeError:
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from pytorch_ood import detector  # pyright: ignore[reportMissingImports]

    return detector


def _neco(data: Samples) -> Answers:
    return _features_alone(detect.NECO(dim=0.9), data)


def _sklearn_neco(data: Samples) -> Answers:
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), PCA(n_components=0.9)).fit(data.train.numpy())
    test = data.test.numpy()
    whole = np.linalg.norm(pipeline[0].transform(test), axis=1)
    return {"scores": np.linalg.norm(pipeline.transform(test), axis=1) / whole}


def _mahalanobis(data: Samples) -> Answers:
    return _features_alone(detect.Mahalanobis(), data)


def _their_mahalanobis(data: Samples) -> Answers:
    """Their covariance is a sum and not a mean, and their score half of the distance."""
    return {"scores": _theirs("Mahalanobis", data)["scores"] * 2 * len(data.train)}


def _knn(data: Samples) -> Answers:
    return _features_alone(detect.KNN(k=NEIGHBOURS), data)


def _their_knn(data: Samples) -> Answers:
    return _theirs("KNN", data, k=NEIGHBOURS)


def _vim(data: Samples) -> Answers:
    return _ours(detect.ViM(data.weight, data.bias, dim=DIM), data)


def _their_vim(data: Samples) -> Answers:
    return _theirs("ViM", data, DIM, data.weight, data.bias)


OOD = ("pytorch_ood", "torchvision")
CASES = {
    "neco": Case(
        "detect", "NECO fitted on 50,000 x 512, scoring 10,000", "scikit-learn StandardScaler and PCA(0.9)",
        _samples, _neco, _sklearn_neco, within({"scores": 1e-6}), devices=("cpu",),
    ),
    "mahalanobis": Case(
        "detect", "Mahalanobis distances, fitted on 50,000 x 512, 100 classes, scoring as many", "pytorch-ood Mahalanobis",
        _as_many, _mahalanobis, _their_mahalanobis, within({"scores": 1e-4}, relative=["scores"]),
        devices=("cpu",), needs=OOD,
    ),
    "knn": Case(
        "detect", "distances to the 50th nearest of 50,000 x 512, scoring 10,000", "pytorch-ood KNN (scikit-learn inside)",
        _samples, _knn, _their_knn, within({"scores": 1e-5}), devices=("cpu",), needs=OOD,
    ),
    "vim": Case(
        "detect", "ViM with 256 main axes, fitted on 50,000 x 512, 100 classes, scoring 10,000", "pytorch-ood ViM, float32",
        _samples, _vim, _their_vim, within({"scores": 1e-3}), devices=("cpu",), needs=OOD,
    ),
}  # fmt: skip
