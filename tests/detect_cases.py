"""Samples that detectors are tried on, and one detector of each kind."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from thermocline import detect

D, C = 19, 5


class Data(NamedTuple):
    """Training samples, others to score, and the head that made their logits."""

    x: Tensor
    logits: Tensor
    y: Tensor
    test: Tensor
    test_logits: Tensor
    weight: Tensor
    bias: Tensor


def drawn(gen: torch.Generator, n: int = 311, m: int = 83) -> Data:
    mix = torch.randn(D, D, generator=gen)
    weight, bias = torch.randn(C, D, generator=gen), torch.randn(C, generator=gen)
    y = torch.randint(C, (n,), generator=gen)
    x = (torch.randn(n, D, generator=gen) @ mix * 0.3 + 2 * weight[y]).relu() + 0.01 * torch.randn(n, D, generator=gen)
    test = torch.randn(m, D, generator=gen) @ mix + 0.5
    return Data(x, x @ weight.T + bias, y, test, test @ weight.T + bias, weight, bias)


def every(data: Data) -> dict[str, Any]:
    """One of each, and what wraps them."""
    head = data.weight, data.bias
    return {
        "MSP": detect.MSP(temperature=2.0), "MaxLogit": detect.MaxLogit(), "Energy": detect.Energy(temperature=2.0),
        "Entropy": detect.Entropy(temperature=2.0), "GEN": detect.GEN(top=3, temperature=2.0),
        "KLMatching": detect.KLMatching(temperature=2.0), "NECO": detect.NECO(dim=0.9, logit_factor=True),
        "Residual": detect.Residual(*head, dim=7), "ViM": detect.ViM(*head, dim=7, temperature=2.0),
        "Mahalanobis": detect.Mahalanobis(), "RelativeMahalanobis": detect.RelativeMahalanobis(), "KNN": detect.KNN(k=11),
        "NNGuide": detect.NNGuide(k=11, temperature=2.0), "NCI": detect.NCI(data.weight, alpha=0.01),
        "ReAct": detect.ReAct(detect.Energy(), *head, percentile=90),
        "ASH": detect.ASH(detect.KNN(k=3), *head, percentile=65, variant="s"),
        "nested": detect.ReAct(detect.ASH(detect.ViM(*head, dim=0.9), *head, percentile=20, variant="p"), *head, percentile=95),
    }  # fmt: skip


NAMES = [*detect.DETECTORS, "nested"]
