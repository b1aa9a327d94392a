"""Linear read-outs of frozen features, and what their accuracies by layer say about depth."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thermocline.moments import ClassMoments

K = TypeVar("K", bound=Hashable)
Stream = Iterable[tuple[Mapping[K, Float[Tensor, "b d"]], Int[Tensor, "b"]]]  # features by tap, and labels, in batches


class Probe(NamedTuple):
    """An affine read-out: class scores are x W^T + b."""

    weight: Float[Tensor, "c d"]
    bias: Float[Tensor, "c"]

    def predict(self, x: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
        """The class of the largest score."""
        return torch.addmm(self.bias, x.to(self.weight.dtype), self.weight.T).argmax(1)


def ridge_probe(moments: ClassMoments, *, alpha: float) -> Probe:
    """The linear probe that best fits one-hot labels under an L2 penalty, in closed form from class moments.

        W = (S + alpha I)^-1 X^T Y,   S = X^T X   (X, Y centred; Y one-hot)   [hoerl1970ridge, Eq. 2.1]

    The penalty is on the sum of squared errors, as in scikit-learn's Ridge; the intercept is not penalised.
    """
    every = moments.all
    cross = moments.counts[:, None] * (moments.means - every.mean)
    regular = every.scatter + alpha * torch.eye(len(every.mean), dtype=torch.float64, device=every.mean.device)
    weight = torch.cholesky_solve(cross.T, torch.linalg.cholesky(regular)).T
    return Probe(weight, moments.counts / every.count - weight @ every.mean)


class Fit(NamedTuple):
    """A trained probe, the grid point it was trained at, and its accuracy on the validation split, if there was one."""

    probe: Probe
    lr: float
    weight_decay: float
    validation_accuracy: float | None


def fit_probes(
    epochs: Callable[[], Stream[K]],
    *,
    classes: int,
    passes: int = 30,
    batch: int = 512,
    lr: Sequence[float] = (1e-3,),
    weight_decay: Sequence[float] = (0.0,),
    validation: Callable[[], Stream[K]] | None = None,
    label_smoothing: float = 0.0,
) -> dict[K, Fit]:
    """Softmax regressions on all taps at once: one pass over the frozen net serves every tap and every grid point.

        p = softmax(W x + b),   loss = -sum_k q_k log p_k                     [alain2017probes]
        q = (1 - s) onehot(label) + s / c,   s = label_smoothing              [szegedy2016rethinking, Sec. 7]

    Adam [kingma2015adam, Alg. 1] for a fixed number of passes; the defaults are those of [masarczyk2023tunnel], and
    smoothing of 0.1 is that of [harun2024variables]. Weight decay is decoupled, W <- (1 - lr * weight_decay) W at
    each step [loshchilov2019decoupled, Alg. 2], and spares the intercept, as `ridge_probe` does.

    Each call of `epochs` gives one pass: features by tap, used as they are, and labels. Rows are taken in the order
    given (shuffle there) and re-cut to `batch` rows, so the sizes they come in do not matter; the last batch of a
    pass may be short. The loss is convex, so W and b start at zero and nothing is random. Float32, or float64
    where a tap's features are. Of several (lr, weight_decay) each tap takes the most accurate on `validation`, the
    first among equals. Memory is O(grid * c * d) a tap: no features are kept.

    >>> x, labels = torch.tensor([[-1.0], [1.0], [2.0]]), torch.tensor([0, 1, 1])
    >>> fit_probes(lambda: [({"head": x}, labels)], classes=2)["head"].probe.predict(x)
    tensor([0, 1, 1])
    """
    grid = _grid(lr, weight_decay, validated=validation is not None)
    _check_settings(classes, passes, batch, label_smoothing)
    reader, learner = _Reader[K](classes, batch), None
    for index in range(passes):
        for features, labels in reader.read(epochs(), where := f"pass {index + 1} of {passes}"):
            learner = learner or _Learner(features, classes, grid, label_smoothing)
            learner.step(features, labels)
        assert learner is not None  # the reader raises where a pass is empty
        learner.check(where)
    assert learner is not None
    if validation is None:
        return {tap: learner.fit(tap, 0, None) for tap in learner.weights}
    scores = learner.accuracy(reader.read(validation(), where := "the validation split"), where)
    return {tap: learner.fit(tap, score.index(max(score)), max(score)) for tap, score in scores.items()}


def effective_depth(accuracy: Float[Tensor, "layers"], threshold: float = 0.99) -> Float[Tensor, ""]:
    """The share of layers after which a probe is as good as at the last layer.

        kappa = min{l : a_l >= threshold * a_L} / L                           [masarczyk2025softmax, Sec. 2.1]

    >>> effective_depth(torch.tensor([0.2, 0.995, 0.9, 1.0]))
    tensor(0.5000)
    """
    good = accuracy >= threshold * accuracy[-1]
    return (good.int().argmax() + 1) / torch.tensor(float(len(accuracy)), device=accuracy.device)


def ood_drop(accuracy: Float[Tensor, "layers"]) -> Float[Tensor, ""]:
    """How much of the best layer's OOD probe accuracy the last layer has lost.

        rho = (max_l a_l - a_L) / max_l a_l                                   [masarczyk2025softmax, Sec. 2.1]

    >>> ood_drop(torch.tensor([0.2, 0.8, 0.4]))
    tensor(0.5000)
    """
    best = accuracy.max()
    # Where no layer gets anything right there is nothing to lose: 0, not 0 / 0.
    return (best - accuracy[-1]) / best.clamp(min=torch.finfo(best.dtype).tiny)


def _grid(lr: Sequence[float], weight_decay: Sequence[float], *, validated: bool) -> list[tuple[float, float]]:
    if not lr or not all(0 < rate < math.inf for rate in lr):
        raise ValueError(f"lr must be learning rates above 0, got {lr}")
    if not weight_decay or not all(0 <= decay < math.inf for decay in weight_decay):
        raise ValueError(f"weight_decay must be numbers of at least 0, got {weight_decay}")
    grid = list(itertools.product(map(float, lr), map(float, weight_decay)))
    rate, decay = max(grid, key=math.prod)
    if rate * decay >= 1:
        raise ValueError(
            f"weight_decay {decay} at lr {rate} leaves nothing of W at each step: lr * weight_decay must be below 1"
        )
    if len(grid) > 1 and not validated:
        raise ValueError(
            f"one of {len(grid)} (lr, weight_decay) is chosen on a validation split: pass validation=, or one of each"
        )
    return grid


def _check_settings(classes: int, passes: int, batch: int, label_smoothing: float) -> None:
    for name, value, least in (("classes", classes, 2), ("passes", passes, 1), ("batch", batch, 1)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be at least 0 and below 1, got {label_smoothing}")


class _Reader(Generic[K]):
    """Passes over streams with the same taps, checked, and re-cut to batches of one size."""

    def __init__(self, classes: int, batch: int) -> None:
        self.classes, self.batch = classes, batch
        self.widths: dict[K, int] = {}

    def read(self, stream: Iterable[tuple[Mapping[K, Tensor], Tensor]], where: str) -> Iterator[tuple[dict[K, Tensor], Tensor]]:
        """One pass. Labels are judged at its end, since to look at a value is to wait for the device."""
        pieces: list[tuple[dict[K, Tensor], Tensor]] = []
        extremes: list[Tensor] = []
        held = 0
        for features, labels in stream:
            self._check(features, labels, where)
            if len(labels):
                extremes = [torch.stack(torch.cat([*extremes, labels]).aminmax())]
            start = 0
            while start < len(labels):
                stop = min(start + self.batch - held, len(labels))
                pieces.append(({tap: x[start:stop] for tap, x in features.items()}, labels[start:stop]))
                held, start = held + stop - start, stop
                if held == self.batch:
                    yield _join(pieces)
                    pieces, held = [], 0
            if pieces and len(labels):
                # The caller may fill the same tensors again for its next batch.
                pieces[-1] = ({tap: x.clone() for tap, x in pieces[-1][0].items()}, pieces[-1][1].clone())
        if pieces:
            yield _join(pieces)
        self._check_labels(extremes, where)

    def _check(self, features: Mapping[K, Tensor], labels: Tensor, where: str) -> None:
        """What shapes can tell: every batch has the taps and widths of the first."""
        self.widths = self.widths or {tap: x.shape[-1] if x.ndim else 0 for tap, x in features.items()}
        if not self.widths:
            raise ValueError(f"a batch in {where} has no taps")
        if odd := self.widths.keys() ^ features.keys():
            tap = next(iter(odd))
            raise ValueError(
                f"tap {tap!r} is {'in' if tap in features else 'not in'} a batch of {where}, unlike the first batch"
            )
        if labels.ndim != 1 or labels.is_floating_point():
            raise ValueError(f"labels must be a vector of class indices, got {labels.dtype} of shape {tuple(labels.shape)}")
        for tap, x in features.items():
            if x.shape != (len(labels), self.widths[tap]) or not self.widths[tap]:
                wanted = f"({len(labels)} labels, width {self.widths[tap] or 'above 0'})"
                raise ValueError(f"tap {tap!r}: expected features of shape {wanted} in {where}, got {tuple(x.shape)}")

    def _check_labels(self, extremes: Sequence[Tensor], where: str) -> None:
        if not extremes:
            raise ValueError(f"{where} has no samples; every call must begin a new pass over the data")
        low, high = extremes[0].tolist()
        if low < 0 or high >= self.classes:
            raise ValueError(f"labels must lie in 0..{self.classes - 1}, got {low}..{high} in {where}")


def _join(pieces: Sequence[tuple[dict[K, Tensor], Tensor]]) -> tuple[dict[K, Tensor], Tensor]:
    if len(pieces) == 1:
        return pieces[0]
    features = {tap: torch.cat([piece[tap] for piece, _ in pieces]) for tap in pieces[0][0]}
    return features, torch.cat([labels for _, labels in pieces])


class _Learner(Generic[K]):
    """The probes of every tap at every grid point, and the one optimiser that moves them."""

    def __init__(self, features: Mapping[K, Tensor], classes: int, grid: list[tuple[float, float]], smoothing: float) -> None:
        self.classes, self.grid, self.smoothing = classes, grid, smoothing
        with _plain(features):
            self.weights = {tap: _Stack(x, len(grid), classes, x.shape[1]) for tap, x in features.items()}
            self.biases = {tap: _Stack(x, len(grid), classes) for tap, x in features.items()}
            groups = []
            for index, (lr, weight_decay) in enumerate(grid):
                for stacks, decay in ((self.weights, weight_decay), (self.biases, 0.0)):
                    points = [stack.points[index] for stack in stacks.values()]
                    groups.append({"params": points, "lr": lr, "weight_decay": decay})
            self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-8, fused=True)

    def step(self, features: Mapping[K, Tensor], labels: Tensor) -> None:
        """One Adam step of every probe, along d loss / dW = (p - q)^T x / b and d loss / db = sum (p - q) / b."""
        with _plain(features):
            # By comparison: a label out of range, which the reader reports, must not be used as an index on a GPU.
            hot = labels[:, None] == torch.arange(self.classes, device=labels.device)
            target = hot.double() * (1 - self.smoothing) + self.smoothing / self.classes
            for tap, x in features.items():
                x = x.to(self.weights[tap].value.dtype)
                slope = self._logits(tap, x).softmax(2)
                slope = slope.sub_(target.to(x.device)[:, None]).div_(len(x)).flatten(1)
                torch.mm(slope.T, x, out=self.weights[tap].slope.flatten(0, 1))
                torch.sum(slope, 0, out=self.biases[tap].slope.flatten())
            self.optimizer.step()

    def check(self, where: str) -> None:
        """Raise unless all features so far were finite: one that was not is still in the optimiser's second moments."""
        squares = {
            tap: torch.stack([self.optimizer.state[point]["exp_avg_sq"].amax() for point in stack.points])
            for tap, stack in self.weights.items()
        }
        _require_finite({tap: square.isfinite().all() for tap, square in squares.items()}, where)

    def accuracy(self, batches: Iterable[tuple[dict[K, Tensor], Tensor]], where: str) -> dict[K, list[float]]:
        """The share of samples each probe gets right, by tap and grid point."""
        correct = {tap: torch.zeros((), device=stack.value.device) for tap, stack in self.weights.items()}
        finite = {tap: torch.ones((), dtype=torch.bool, device=stack.value.device) for tap, stack in self.weights.items()}
        rows = 0
        for features, labels in batches:
            rows += len(labels)
            with _plain(features):
                for tap, x in features.items():
                    logits = self._logits(tap, x)
                    hits = logits.argmax(2) == labels.to(x.device)[:, None]
                    correct[tap] = correct[tap] + hits.double().sum(0)
                    finite[tap] = finite[tap] & logits.isfinite().all()
        _require_finite(finite, where)
        return {tap: (count / rows).tolist() for tap, count in correct.items()}

    def fit(self, tap: K, index: int, accuracy: float | None) -> Fit:
        """The probe of one tap at one grid point, free of its stack."""
        probe = Probe(self.weights[tap].value[index].clone(), self.biases[tap].value[index].clone())
        return Fit(probe, *self.grid[index], accuracy)

    def _logits(self, tap: K, x: Tensor) -> Tensor:
        """(b, grid, c): the grid shares one product, since it shares x."""
        weight, bias = self.weights[tap].value, self.biases[tap].value
        logits = torch.addmm(bias.flatten(), x.to(weight.dtype), weight.flatten(0, 1).T)
        return logits.unflatten(1, bias.shape)


class _Stack:
    """A parameter at every grid point, beside its gradient: the optimiser sees each point as a view with its own rate."""

    def __init__(self, x: Tensor, *shape: int) -> None:
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        self.value, self.slope = torch.zeros(2, *shape, dtype=dtype, device=x.device)
        self.points = list(self.value)
        for point, slope in zip(self.points, self.slope):
            point.grad = slope


@contextlib.contextmanager
def _plain(features: Mapping[K, Tensor]) -> Iterator[None]:
    """Full precision and no autograd, whatever mode a generator of features is paused in: modes leak through a yield."""
    device = next(iter(features.values())).device.type
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device, enabled=False):
        yield


def _require_finite(flags: Mapping[K, Tensor], where: str) -> None:
    for tap, finite in zip(flags, torch.stack([flag.cpu() for flag in flags.values()]).tolist()):
        if not finite:
            raise ValueError(f"tap {tap!r}: features in {where} are NaN, infinite or too large to square in their dtype")
