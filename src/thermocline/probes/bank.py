"""The probes of many taps as one matrix: a training step is a few kernels, however many taps there are."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from thermocline.probes.layout import Layout, lanes

K = TypeVar("K", bound=Hashable)

WARM = 3  # eager steps before a recording: what a kernel loads at its first launch cannot be loaded while recording
ADAM = {"amsgrad": False, "maximize": False, "fused": True, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}


class Settings(NamedTuple):
    """What all banks have in common; the grid is of (lr, weight_decay)."""

    classes: int
    batch: int
    grid: list[tuple[float, float]]
    smoothing: float


class Bank(Generic[K]):
    """The probes of the taps of one dtype and device: W has the features of all taps in its columns, as x has.

    `load` rows, then `step` or `score` them.
    """

    def __init__(self, features: Mapping[K, Tensor], settings: Settings) -> None:
        first = next(iter(features.values()))
        self.settings, self.device = settings, first.device
        widths = {tap: x.shape[1] for tap, x in features.items()}
        self.layout = Layout(widths, self.device, batched=self.device.type == "cuda")
        zeros = functools.partial(torch.zeros, dtype=precision(first), device=self.device)
        taps, points, classes = len(features), len(settings.grid), settings.classes
        self.weight = _parameter(zeros(4, points, classes, self.layout.total))
        self.bias = _parameter(zeros(4, points, taps, lanes(classes)))
        self.x, self.lent, self.labels = zeros(0, self.layout.total), list[Tensor](), zeros(0).long()
        self.span, self.slot, self.filling = (0, 0), self.x, dict[K, Tensor]()
        self.low, self.high = zeros(()).long(), zeros(()).long()
        self.classes, self.floor = torch.arange(classes, device=self.device), zeros(()) + settings.smoothing / classes
        self.right, self.finite, self.scored = zeros(taps, points).double(), zeros(taps) == 0, 0
        self.moves = _moves(settings.grid, self.weight, self.bias)
        self.steps, self.graph = 0, None
        self.begin()

    def begin(self) -> None:
        """A new pass: the extremes of its labels are not known yet."""
        self.low.fill_(torch.iinfo(torch.int64).max)
        self.high.fill_(torch.iinfo(torch.int64).min)

    def load(self, features: Mapping[K, Tensor], labels: Tensor, start: int, stop: int, at: int) -> None:
        """Copy rows start..stop to row `at` of the batch: the caller may fill its tensors with the next."""
        rows, most = stop - start, self.settings.batch
        if rows < len(labels):
            features = {tap: features[tap][start:stop] for tap in self.layout.columns}
            labels = labels[start:stop]
        end = at + rows
        self.labels = _room(self.labels, end, most)
        self.labels[at:end].copy_(labels)
        if rows == most and not self.layout.batched:
            # It is used before the caller goes on, and products of their own do not ask for one matrix.
            self.lent = [features[tap].to(self.x.dtype)[None] for tap in self.layout.columns]
            return
        self.lent = []
        if self.span != (at, end):
            self.x = _room(self.x, end, most)
            blank = self.x.new_zeros(1, self.layout.total).expand(rows, -1)
            self.span, self.slot = (at, end), self.x[at:end]
            self.filling = {tap: blank[:, :gap] for tap, gap in self.layout.filling.items()}
        torch.cat(self.layout.pieces(features, self.filling), 1, out=self.slot)

    def step(self, rows: int) -> None:
        """One Adam step of every probe, along d loss / dW = (p - q)^T x / b and d loss / db = sum (p - q) / b.

        On a GPU a full batch replays the recording of one: it takes longer to launch its kernels than to run them.
        """
        if self.device.type != "cuda" or rows < self.settings.batch or self.steps < WARM:
            self.steps += rows == self.settings.batch
            self._step(rows)
            return
        with torch.cuda.device(self.device):
            self.graph = self.graph or self._record()
            self.graph.replay()

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=_side(self.device), capture_error_mode="thread_local"):
            self._step(self.settings.batch)
        return graph

    def _step(self, rows: int) -> None:
        self._note(rows)
        # By comparison: a label out of range, which the learner reports, must not be used as an index on a GPU.
        hot = self.labels[:rows, None] == self.classes
        target = torch.add(self.floor, hot, alpha=1 - self.settings.smoothing)
        slope = self._logits(rows).softmax(3).sub_(target[:, None])
        self._intercepts(self.bias.slope).copy_(slope.mean(1))
        slopes = self.layout.shares(self.layout.spread(slope.flatten(2)))
        for out, left, right in zip(self.layout.views(self.weight.slope.flatten(0, 1)), slopes, self._x(rows)):
            torch.baddbmm(out, left.mT, right, beta=0, alpha=1 / rows, out=out)
        for (lr, decay), (values, slopes, means, squares, steps) in self.moves.items():
            adamw(values, slopes, means, squares, [], steps, lr=lr, weight_decay=decay, **ADAM)

    def score(self, rows: int) -> None:
        """Count what every probe gets right."""
        self._note(rows)
        logits = self._logits(rows)
        self.right += (logits.argmax(3) == self.labels[:rows, None]).sum(1)
        self.finite &= logits.isfinite().flatten(1).all(1)
        self.scored += rows

    def accuracy(self) -> dict[K, list[float]]:
        """The share of the rows scored that was right, by tap and grid point."""
        return dict(zip(self.layout.columns, (self.right / self.scored).tolist()))

    def sound(self) -> dict[K, bool]:
        """Whether all features stepped on were finite: one that was not is still in the optimiser's second moments."""
        finite = self.weight.square.amax((0, 1)).isfinite().cpu()
        return {tap: bool(finite[columns].all()) for tap, columns in self.layout.columns.items()}

    def scorable(self) -> dict[K, bool]:
        """Whether all features scored were finite."""
        return dict(zip(self.layout.columns, self.finite.tolist()))

    def probe(self, tap: K, index: int) -> tuple[Tensor, Tensor]:
        """The weight and the bias of one tap at one grid point, free of the bank."""
        weight = self.weight.value[index, :, self.layout.columns[tap]]
        bias = self._intercepts(self.bias.value)[list(self.layout.columns).index(tap), index]
        return weight.clone(memory_format=torch.contiguous_format), bias.clone()

    def _note(self, rows: int) -> None:
        low, high = self.labels[:rows].aminmax()
        torch.minimum(self.low, low, out=self.low)
        torch.maximum(self.high, high, out=self.high)

    def _logits(self, rows: int) -> Tensor:
        """(taps, rows, grid, c): the grid shares one product, since it shares x."""
        weight = self.weight.value.flatten(0, 1)
        blocks = weight.new_empty(self.layout.blocks, rows, len(weight))
        for out, left, right in zip(self.layout.shares(blocks), self._x(rows), self.layout.views(weight)):
            torch.bmm(left, right.mT, out=out)
        logits = self.layout.gather(blocks).unflatten(2, self.weight.value.shape[:2])
        return logits.add_(self._intercepts(self.bias.value)[:, None])

    def _x(self, rows: int) -> list[Tensor]:
        return self.lent or self.layout.views(self.x[:rows])

    def _intercepts(self, bias: Tensor) -> Tensor:
        """(taps, grid, c) of what is stored by grid point first, since Adam moves each on its own."""
        return bias[..., : self.settings.classes].transpose(0, 1)


class _Parameter(NamedTuple):
    """A parameter, its gradient and Adam's state, all with the grid points in the first dimension."""

    value: Tensor
    slope: Tensor
    mean: Tensor
    square: Tensor
    steps: Tensor


def _parameter(zeros: Tensor) -> _Parameter:
    value, slope, mean, square = zeros
    return _Parameter(value, slope, mean, square, torch.zeros(len(value), dtype=torch.float32, device=zeros.device))


def _moves(
    grid: list[tuple[float, float]], weight: _Parameter, bias: _Parameter
) -> dict[tuple[float, float], list[list[Tensor]]]:
    """By (lr, decay), lists of values, slopes, means, squares and steps: what moves alike moves in one kernel."""
    moves: dict[tuple[float, float], list[list[Tensor]]] = {}
    for index, (lr, weight_decay) in enumerate(grid):
        for parameter, decay in ((weight, weight_decay), (bias, 0.0)):
            for parts, whole in zip(moves.setdefault((lr, decay), [[] for _ in parameter]), parameter):
                parts.append(whole[index])
    return moves


def _room(rows: Tensor, wanted: int, most: int) -> Tensor:
    """Room for more rows, by doubling: there may never be a whole batch of them."""
    if wanted <= (have := len(rows)):
        return rows
    return torch.cat([rows, rows.new_empty(min(max(wanted, 2 * have), most) - have, *rows.shape[1:])])


def precision(x: Tensor) -> torch.dtype:
    """Float64 where features are, else float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


@functools.cache
def _side(device: torch.device) -> torch.cuda.Stream:
    """One stream for all recordings on a device: cuBLAS keeps a workspace for every stream it has seen."""
    return torch.cuda.Stream(device)
