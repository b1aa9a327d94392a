"""Where to read a net: what a tap is, the taps a net declares, and how to find some where it declares none."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from thermocline.spec import Failure, InputError, unknown

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
View = Literal["flatten", "pool2", "mean", "cls", "raw"]
POOLS = {3: functional.adaptive_avg_pool1d, 4: functional.adaptive_avg_pool2d, 5: functional.adaptive_avg_pool3d}
WIDEST = 4096  # features of a view; of a wider one a fixed subset is read, as its scatter matrix would not fit


@dataclass(frozen=True)
class Tap:
    """A place to read a net: the input or output of a module, as one vector a sample.

    Views: flatten; pool2 (maps, channels first, averaged to 2 places an axis); mean (over tokens or places, features
    last); cls (the first token); raw (as it is). What has no tokens or places is flattened. `subset` keeps that many
    features of a wider view, the same ones every time.
    """

    path: str
    at: Literal["input", "output"] = "output"
    view: View = "flatten"
    subset: int | None = None

    def __post_init__(self) -> None:
        for what, word, words in (("view", self.view, get_args(View)), ("place", self.at, ("input", "output"))):
            if word not in words:
                raise unknown(what, word, words)

    @property
    def label(self) -> str:
        """The view as rows record it."""
        return self.view if self.subset is None else f"{self.view}/{self.subset}"

    def read(self, value: Float[Tensor, "b *shape"]) -> Float[Tensor, "b *view"]:
        """The view of a captured value, in memory of its own: a later in-place operation cannot change it."""
        value = value.detach()
        if self.view == "raw":
            return value.clone()
        if self.view == "pool2" and value.ndim in POOLS:
            return self._some(POOLS[value.ndim](value, 2).flatten(1))
        if self.view in ("mean", "cls") and value.ndim > 2:
            tokens = value.flatten(1, -2)
            return self._some(tokens.mean(1) if self.view == "mean" else tokens[:, 0].clone())
        return self._some(value.flatten(1).clone())

    def _some(self, vectors: Tensor) -> Tensor:
        if self.subset is None or vectors.shape[1] <= self.subset:
            return vectors
        return vectors[:, some_features(vectors.shape[1], self.subset, vectors.device)]


def some_features(width: int, count: int, device: torch.device) -> Int[Tensor, "count"]:
    """Which of `width` features stand for all: the same ones every time, in order.

    >>> some_features(10, 4, torch.device("cpu"))
    tensor([1, 4, 5, 7])
    """
    return torch.randperm(width, generator=torch.Generator().manual_seed(0))[:count].sort().values.to(device)


class Tapped(nn.Module):
    """A net that declares its taps: one for every weight layer in order of depth, the head last.

    The head's tap reads the logits as the net returns them; its module has a `weight` (c, d) that multiplies its input.
    """

    taps: tuple[Tap, ...]


def image_tap(path: str, channels: int) -> Tap:
    """The tap of a convolution with so many output channels."""
    return Tap(path, view="pool2", subset=WIDEST if 4 * channels > WIDEST else None)


def taps(net: nn.Module) -> tuple[Tap, ...]:
    """The taps a net declares, in order of depth; the last one is its head. For any other net: `find_taps`."""
    declared = getattr(net, "taps", None)
    if not declared:
        raise InputError(f"{type(net).__name__} declares no taps: set net.taps = (Tap('path.of.module'), ...), head last")
    return tuple(declared)


def find_taps(
    net: nn.Module,
    run: Callable[[], Tensor],
    *,
    pattern: str = "*",
    tokens: Literal["mean", "cls"] = "mean",
    widest: int = WIDEST,
) -> tuple[Tap, ...]:
    """Taps for a net that declares none: every Linear and convolution whose path matches, in the order they run.

    `run` makes one forward pass and returns the logits. The head is the layer that gives them, and comes last. Images are
    viewed through a 2 x 2 pool, tokens through their mean or first one, and what is still wider through a fixed subset.

    >>> net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 5))
    >>> [(tap.path, tap.view) for tap in find_taps(net, lambda: net(torch.zeros(2, 1, 8, 8)))]
    [('0', 'pool2'), ('2', 'flatten')]
    """
    fired: list[tuple[nn.Module, Tensor]] = []

    def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
        fired.append((module, output))

    layers: dict[nn.Module, str] = {module: name for name, module in net.named_modules() if isinstance(module, LAYERS)}
    with contextlib.ExitStack() as hooks:
        for module in layers:
            hooks.callback(module.register_forward_hook(note).remove)
        logits = run()
    if not logits.isfinite().all():
        raise Failure("the net gives NaN or infinite values at the logits: nothing can be measured on it")
    # Values, not identity: the net may return a copy or a cast of its head's output.
    flat = [(module, output.flatten(1).to(logits)) for module, output in fired if output.ndim > 1]
    heads = [module for module, output in flat if output.shape == logits.shape and torch.equal(output, logits)]
    if not heads:
        raise InputError("no layer gives the logits as they are, so the head is not known: pass taps=, head last")
    chosen = [(one, output) for one, output in fired if one is heads[-1] or fnmatch.fnmatch(layers[one], pattern)]
    if len(chosen) < 2 <= len(fired):
        raise InputError(f"no layer but the head matches {pattern!r}; there are: {', '.join(layers.values())}")
    modules = [module for module, _ in chosen]
    if reused := [layers[module] for module in modules if modules.count(module) > 1]:
        raise InputError(f"{reused[0]} runs more than once in a pass, so it has no single value: leave it out by pattern=")
    ordered = sorted(chosen, key=lambda pair: pair[0] is heads[-1])
    return tuple(_tap(layers[module], module, output, tokens, widest) for module, output in ordered)


def _tap(name: str, layer: nn.Module, output: Tensor, tokens: Literal["mean", "cls"], widest: int) -> Tap:
    """A convolution has its channels first, a linear layer its features last, whatever the number of axes."""
    features = output.shape[-1] if isinstance(layer, nn.Linear) else output.shape[1]
    view = tokens if isinstance(layer, nn.Linear) else "pool2"
    tap = Tap(name, view=view if output[0].numel() > features else "flatten")
    return Tap(name, view=tap.view, subset=widest) if tap.read(output).shape[1] > widest else tap
