"""A second look at some samples: what layers multiply their weights with, and the gradients of those weights."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from thermocline import geometry, softmax
from thermocline.measure import source
from thermocline.measure.capture import capture
from thermocline.measure.subject import Subject, out_of_memory
from thermocline.moments import Moments
from thermocline.nets import Tap, some_features

BATCH = 256  # samples at a time: every layer's whole input is kept
COLUMNS = 8192  # of a layer's inputs at most, of more a fixed subset: an alignment with some columns is another number
ROWS = 2**18  # of a layer's inputs at most, spread over the samples; a convolution has one for every image and place


@dataclass
class Inputs:
    """The moments of what a layer multiplies its weight with, over so many samples; of a wide layer, of some columns."""

    moments: Moments
    columns: Tensor | None
    stride: int
    samples: int = 0


@dataclass
class Again:
    """What a second look at some samples shows."""

    samples: int = 0
    inputs: dict[Tap, Inputs] = field(default_factory=dict)
    gradients: dict[Tap, Tensor] = field(default_factory=dict)


def look_again(subject: Subject, arguments: source.Arguments, labels: Tensor, *, gradients: bool) -> Again:
    """Show samples again. A layer has a gradient if its weight is a parameter the loss depends on; .grad is left alone."""
    layers = {tap: subject.net.get_submodule(tap.path) for tap in subject.taps}
    weights = {tap: weight for tap, layer in layers.items() if (weight := matrix_weight(layer)) is not None}
    can = {tap: weight for tap, weight in weights.items() if isinstance(weight, nn.Parameter) and not weight.is_inference()}
    weights = can if gradients else {}
    raw = {tap: replace(tap, at="input", view="raw", subset=None) for tap, layer in layers.items() if _multiplies(layer)}
    found = Again(len(labels))
    # Whatever mode the caller is in: tensors made in inference mode, which the samples may be, have no gradients.
    with torch.inference_mode(False), _requiring_grad(weights.values()):
        for start in range(0, len(labels), BATCH):
            some = slice(start, start + BATCH)
            with torch.set_grad_enabled(bool(weights)), capture(subject.net, raw.values()) as at:
                logits = subject.run({name: argument[some] for name, argument in arguments.items()})
            for tap, place in raw.items():
                _take(found.inputs, tap, layers[tap], at[place], start, len(labels))
            if logits.requires_grad:
                with torch.enable_grad():
                    loss = softmax.tempered_cross_entropy(logits, labels[some].clone(), temperature=subject.temperature)
                if (slopes := _slopes(loss, list(weights.values()))) is None:
                    weights = {}
                    continue
                for tap, slope in zip(weights, slopes):
                    if slope is not None:
                        share = slope * (len(labels[some]) / len(labels))
                        found.gradients[tap] = found.gradients[tap] + share if tap in found.gradients else share
    return found


def _slopes(loss: Tensor, weights: list[Tensor]) -> tuple[Tensor | None, ...] | None:
    """Gradients, or nothing, with a warning, where the net has none."""
    try:
        return torch.autograd.grad(loss, weights, allow_unused=True)
    except RuntimeError as error:  # as where the net writes over what its gradient needs
        if out_of_memory(error):
            raise
        reason = str(error).strip().partition("\n")[0].partition(". Hint:")[0]
        warnings.warn(f"gradient_rank is left out, as the net has no gradients: {reason}", stacklevel=2)
        return None


def matrix_weight(layer: nn.Module) -> Tensor | None:
    """A layer's weight, if it has one that is a matrix, or a stack of them."""
    weight = getattr(layer, "weight", None)
    return weight if isinstance(weight, Tensor) and weight.ndim >= 2 else None


def _multiplies(layer: nn.Module) -> bool:
    """Whether it is a matrix times its inputs, or their patches."""
    return isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.groups == 1)


def _take(found: dict[Tap, Inputs], tap: Tap, layer: nn.Module, value: Tensor, start: int, count: int) -> None:
    """Take what a layer multiplies into its moments."""
    if tap not in found:
        one = _rows(layer, value[:1])
        columns = some_features(one.shape[1], COLUMNS, one.device) if one.shape[1] > COLUMNS else None
        width = one.shape[1] if columns is None else len(columns)
        found[tap] = Inputs(Moments(width, device=one.device), columns, max(-(-count * len(one) // ROWS), 1))
    seen = found[tap]
    chosen = value[-start % seen.stride :: seen.stride]  # the same samples whatever BATCH is
    if len(chosen):
        rows = _rows(layer, chosen)
        seen.moments.update(rows if seen.columns is None else rows[:, seen.columns])
        seen.samples += len(chosen)


def _rows(layer: nn.Module, value: Tensor) -> Tensor:
    return geometry.unfold_patches(value, layer) if isinstance(layer, nn.Conv2d) else value.flatten(0, -2)


@contextlib.contextmanager
def _requiring_grad(weights: Iterable[Tensor]) -> Iterator[None]:
    """Gradients for these weights, and afterwards each as it was: a frozen layer has a gradient too."""
    before = {weight: weight.requires_grad for weight in weights}
    try:
        for weight in before:
            weight.requires_grad_(True)
        yield
    finally:
        for weight, required in before.items():
            weight.requires_grad_(required)
