"""Claims that need no runs: functions that give rows as runs do, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from thermocline import geometry, nets
from thermocline.data import load
from thermocline.experiments import figure6, figure8
from thermocline.record import Row, params
from thermocline.reproduce.retrieving import retrieved
from thermocline.softmax import softmax
from thermocline.spec import Net

SEEDS, SIZE = 10, 100
Rows = Iterator[tuple[int, Row]]


def softmax_ranks(_: torch.device) -> Rows:
    """The rank of softmax(s A B^T) over columns, for k columns in A and B and growing scales s.

    M = s A B^T,  A, B ~ U(-1, 1)^{100 x k}                                   [masarczyk2025softmax, Fig. 6]
    """
    for seed in range(SEEDS):
        for k in figure6.KNOWN:
            gen = torch.Generator().manual_seed(seed)
            left, right = (2 * torch.rand(SIZE, k, generator=gen, dtype=torch.float64) - 1 for _ in range(2))
            for scale in figure6.SCALES:
                found = geometry.softmax_rank(scale * left @ right.T, temperature=1.0, of="features", rtol=1e-3)
                how = params(of="features", rtol=1e-3, k=k, scale=float(scale))
                yield seed, Row.whole("", "softmax_rank", how, found.after)


def gap(_: torch.device) -> Rows:
    """The gap of a softmax's singular values, its bound, and the overlap of the columns that bounds it.

    0 <= sigma_1 - sigma_n <= sqrt(1 + r) - sqrt(max(1/n - r, 0))             [masarczyk2025softmax, Prop. 3.1]
    """
    for seed in range(SEEDS):
        gen = torch.Generator().manual_seed(seed)
        noise = torch.randn(SIZE, SIZE, generator=gen, dtype=torch.float64)
        for kind, logits in {"random": noise, "fitted": noise + 8 * torch.eye(SIZE)}.items():
            for scale in (0.01, 0.1, 1.0, 10.0, 100.0):
                columns = softmax(scale * logits, dim=0, temperature=1.0)
                yield from ((seed, row) for row in _gap(columns, params(logits=kind, scale=scale)))
    same = torch.eye(SIZE, dtype=torch.float64)[:, :1].repeat(1, SIZE)
    yield from ((0, row) for row in _gap(same, params(logits="same", scale=math.inf)))


def _gap(columns: torch.Tensor, how: str) -> Iterator[Row]:
    values = torch.linalg.svdvals(columns)
    size, bound = float(values[0] - values[-1]), float(geometry.softmax_gap_bound(columns, sharp=False))
    gram = columns.T @ columns
    found = {"gap": size, "gap_bound": bound, "gap_room": bound - size}
    found["overlap"] = float((gram.sum(1) - gram.diagonal()).max())
    for measure, value in found.items():
        yield Row.whole("", measure, how, value)


def circle(_: torch.device) -> Rows:
    """Classes on a circle: how many are right, the scale that makes them likely, and the rank after the softmax.

    M_{k, i} = s cos(theta_k - theta_{y_i}),  theta_k = 2 pi k / c            [masarczyk2025softmax, Prop. 3.2]
    """
    for classes in (10, 100, 1000):
        code = geometry.circle_code(classes)
        logits = code @ code.T
        right = (logits.argmax(1) == torch.arange(classes)).double().mean()
        rank = geometry.numerical_rank(logits, of="features", rtol=1e-9, centered=False)
        yield 0, Row.whole("", "circle_accuracy", params(classes=classes, rank=int(rank)), right)
        yield 0, Row.whole("", "circle_scale", params(classes=classes, p=0.9), geometry.circle_scale(classes, 0.9))
    code = geometry.circle_code(SIZE)
    for scale in (1, 10, 30, 100, 180):
        found = geometry.softmax_rank(scale * (code @ code.T), temperature=1.0, of="features", rtol=1e-3)
        yield 0, Row.whole("", "circle_softmax_rank", params(classes=SIZE, scale=scale), found.after)


def initial_norms(_: torch.device) -> Rows:
    """The size of the logits of untrained nets, batch statistics and all.

    ||M||_F / sqrt(n)                                                         [masarczyk2025softmax, Fig. 8]
    """
    images = load("runes", size=32, train=100, test=100)[0]
    batch = images.take(torch.arange(64)).images
    for seed in range(3):
        for name in figure8.NETS:
            for init in ("own", "torch"):
                net = nets.build(Net(name, init=init), classes=100, size=32, channels=1, seed=seed).train()
                with torch.no_grad():
                    logits = net(batch).double()
                norm = float(logits.norm()) / math.sqrt(len(logits))
                yield seed, Row.whole("", "logit_norm", params(net=name, init=init), norm)


COMPUTED: dict[str, Callable[[torch.device], Rows]] = {  # the device asked for, for those that a CPU cannot do in minutes
    function.__name__: function for function in (softmax_ranks, gap, circle, initial_norms, retrieved)
}
