"""The layer-by-layer script as researchers write it in plain PyTorch: a hook, torch.cat, an SVD, an optimiser a probe.

Nothing in it is slow on purpose: data stay on the device, nothing waits for the device inside a loop, Adam is fused. It is
float32 throughout, as such scripts are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from thermocline import nets
from thermocline.bench.arrays import COLLAPSE, Head, collapse_by_class
from thermocline.bench.case import Answers
from thermocline.data import Split
from thermocline.record import RANK

BATCH = 1000  # images a forward pass, where nothing is trained
PASSES, STEP, LR = 30, 512, 1e-3  # of a probe: passes over the data, images a step, learning rate of Adam
FEW, COLUMNS, TOP = 2048, 2**18, 15  # for alignment: some 2,048 images, of those no more than fill A, and 15 directions

Run = Callable[[Tensor], tuple[Tensor, Tensor]]  # images to what went into and came out of a layer
Epoch = Callable[[], Iterator[tuple[Tensor, Tensor]]]  # one pass of shuffled batches of features and labels


class Work(NamedTuple):
    """A net, its data, and other data sets."""

    net: nn.Module
    train: Split
    test: Split
    ood: dict[str, tuple[Split, Split]]


def layer_by_layer(work: Work, *, cached: bool) -> Answers:
    """All measures, one layer after the other.

    A probe is trained on passes over the frozen net, or where `cached` from the features of one pass, kept on the device.
    """
    net, train, test, ood = work
    sets = [(train, test), *ood.values()]
    paths = [tap.path for tap in nets.taps(net)]
    spectra, alignments, accuracies = [], [], []
    torch.backends.cudnn.allow_tf32 = False  # or the answers could not be compared: ours are float32 to the last bit
    with torch.random.fork_rng(devices=[]):  # nn.Linear draws its first weights from the global state
        for path in paths:
            with _hooked(net, path) as run:
                features = _features(run, train)
                spectra.append(_spectrum(features))
                alignments.append(_alignment(run, net.get_submodule(path), train))
                row, width = [], features.shape[1]
                for one, other in sets:
                    if cached:
                        features = features if one is train else _features(run, one)
                        epoch = _from_features(features, one.labels)
                    else:
                        epoch = _from_net(run, one)
                    row.append(_accuracy(_fit(epoch, width, train), run, other))
                accuracies.append(row)
    inside, *outside = np.array(accuracies).T
    return {
        **{name: np.array([one[name] for one in spectra]) for name in spectra[0]},
        "alignment": np.array(alignments),
        "neural_collapse": _collapse(net, paths[-1], train),
        "accuracy": np.array([inside, *outside]),
        "effective_depth": np.array([(np.argmax(inside >= 0.99 * inside[-1]) + 1) / len(paths)]),
        "ood_drop": np.array([(other.max() - other[-1]) / other.max() for other in outside]),
    }


@contextlib.contextmanager
def _hooked(net: nn.Module, path: str) -> Iterator[Run]:
    """A function that shows images to the net and gives what went into and came out of one layer."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[:] = inputs[0], output

    def run(images: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            net(images)
        return seen[0], seen[1]

    handle = net.get_submodule(path).register_forward_hook(keep)
    try:
        yield run
    finally:
        handle.remove()


def _view(output: Tensor) -> Tensor:
    """Maps averaged to 2 x 2, one vector an image."""
    return (functional.adaptive_avg_pool2d(output, 2) if output.ndim == 4 else output).flatten(1)


def _features(run: Run, split: Split) -> Tensor:
    return torch.cat([_view(run(batch.images)[1]) for batch in split.batches(BATCH)])


def _spectrum(features: Tensor) -> dict[str, float]:
    sigma = torch.linalg.svdvals(features - features.mean(0))
    variance, share = sigma**2, sigma / sigma.sum()
    return {
        "rank": int((variance > RANK["rtol"] * variance[0]).sum()),
        "stable_rank": float(variance.sum() / variance[0]),
        "entropy_rank": float((-share * share.clamp(min=1e-30).log()).sum().exp()),
    }


def _alignment(run: Run, layer: Any, split: Split) -> list[float]:
    """The largest and the first cosine between what a weight reads and what it is given, inputs in the columns of A."""
    chosen = torch.arange(0, len(split), max(len(split) // FEW, 1))
    if isinstance(layer, nn.Conv2d):  # one column of A for every image and place
        places = run(split.take(chosen[:1]).images)[1][0, 0].numel()
        chosen = chosen[:: -(-len(chosen) * places // COLUMNS)]
    inputs = torch.cat([run(split.take(some).images)[0] for some in chosen.split(BATCH)])
    if isinstance(layer, nn.Conv2d):
        padding: Any = layer.padding
        patches = functional.unfold(inputs, layer.kernel_size, layer.dilation, padding, layer.stride)
        a = patches.transpose(0, 1).flatten(1)
    else:
        a = inputs.T
    _, _, reads = torch.linalg.svd(layer.weight.detach().flatten(1), full_matrices=False)
    _, axes = torch.linalg.eigh(a @ a.T)  # the columns of A are too many for its SVD
    cosines = (reads[:TOP] @ axes.flip(1)[:, :TOP]).abs()
    return [float(cosines.max()), float(cosines[0, 0])]


def _from_net(run: Run, split: Split) -> Epoch:
    generator = torch.Generator(split.device).manual_seed(0)

    def epoch() -> Iterator[tuple[Tensor, Tensor]]:
        for chosen in torch.randperm(len(split), generator=generator, device=split.device).split(STEP):
            batch = split.take(chosen)
            yield _view(run(batch.images)[1]), batch.labels

    return epoch


def _from_features(features: Tensor, labels: Tensor) -> Epoch:
    generator = torch.Generator(labels.device).manual_seed(0)

    def epoch() -> Iterator[tuple[Tensor, Tensor]]:
        for chosen in torch.randperm(len(labels), generator=generator, device=labels.device).split(STEP):
            yield features[chosen], labels[chosen]

    return epoch


def _fit(epoch: Epoch, width: int, like: Split) -> nn.Linear:
    probe = nn.Linear(width, like.classes, device=like.device)
    # The problem is convex; starting where ours start leaves the shuffles as the only difference.
    nn.init.zeros_(probe.weight)
    nn.init.zeros_(probe.bias)
    optimizer = torch.optim.Adam(probe.parameters(), lr=LR, fused=True)
    for _ in range(PASSES):
        for x, labels in epoch():
            loss = functional.cross_entropy(probe(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return probe


def _accuracy(probe: nn.Linear, run: Run, split: Split) -> float:
    with torch.no_grad():
        hits = [(probe(_view(run(batch.images)[1])).argmax(1) == batch.labels).sum() for batch in split.batches(BATCH)]
    return int(torch.stack(hits).sum()) / len(split)


def _collapse(net: nn.Module, path: str, split: Split) -> np.ndarray:
    head: Any = net.get_submodule(path)
    with _hooked(net, path) as run:
        features = torch.cat([run(batch.images)[0] for batch in split.batches(BATCH)])
    found = collapse_by_class(Head(features, split.labels, head.weight.detach(), head.bias.detach()))
    return np.array([found[name] for name in COLLAPSE])
