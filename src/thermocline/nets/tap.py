"""Where to read a net: what a tap is, the taps a net declares, and how to find some where it declares none."""

from __future__ import annotations

import contextlib
import fnmatch
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from thermocline.spec import InputError, unknown

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LAYERS = (nn.Linear, *CONVOLUTIONS)
_FOUND = (*LAYERS, nn.MultiheadAttention)  # whose output projection is a Linear that never runs by itself
_NO_LAYERS = (nn.LayerNorm, nn.Embedding, nn.EmbeddingBag)
View = Literal["flatten", "pool2", "mean", "cls", "last", "raw"]
Tokens = Literal["mean", "cls", "last"]  # the views of them
POOLS = {3: functional.adaptive_avg_pool1d, 4: functional.adaptive_avg_pool2d, 5: functional.adaptive_avg_pool3d}
WIDEST = 4096  # features of a view; of a wider one a fixed subset is read, as its scatter matrix would not fit


@dataclass(frozen=True)
class Tap:
    """A place to read a net: the input or output of a module, as one vector a sample.

    Views: flatten; pool2 (maps, channels first, averaged to 2 places an axis); mean (over tokens or places, features
    last); cls (the first token); last (the last token); raw (as it is). What has no tokens or places is flattened. `subset`
    keeps that many features of a wider view, the same ones every time. `tokens_first` is for values of (tokens, samples,
    features).
    """

    path: str
    at: Literal["input", "output"] = "output"
    view: View = "flatten"
    subset: int | None = None
    tokens_first: bool = False

    def __post_init__(self) -> None:
        for what, word, words in (("view", self.view, get_args(View)), ("place", self.at, ("input", "output"))):
            if word not in words:
                raise unknown(what, word, words)
        if self.subset is not None and self.subset < 1:
            raise InputError(f"subset is how many features to keep, at least 1, got {self.subset}")

    @property
    def label(self) -> str:
        """The view as rows record it."""
        return self.view if self.subset is None else f"{self.view}/{self.subset}"

    def read(self, value: Float[Tensor, "*shape"]) -> Float[Tensor, "b *view"]:
        """The view of a captured value, in memory of its own: a later in-place operation cannot change it."""
        value = value.detach().transpose(0, 1) if self.tokens_first else value.detach()
        if self.view == "raw":
            return value.clone()
        if self.view == "pool2" and value.ndim in POOLS:
            return self._some(POOLS[value.ndim](value, 2).flatten(1))
        if self.view in get_args(Tokens) and value.ndim > 2:
            tokens = value.flatten(1, -2)
            return self._some(tokens.mean(1) if self.view == "mean" else tokens[:, 0 if self.view == "cls" else -1].clone())
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


def output_of(module: nn.Module, output: Any) -> Any:
    """What a module gives, samples first: attention and recurrent layers give several values, and may put tokens first."""
    if not isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
        return output
    value = output[0]
    return value.transpose(0, 1) if isinstance(value, Tensor) and value.ndim == 3 and not module.batch_first else value


def module_at(net: nn.Module, path: str) -> nn.Module:
    """The module of that path, or an error that names the nearest."""
    modules = dict(net.named_modules())
    if path not in modules:
        raise unknown("module", path, [name for name in modules if name])
    return modules[path]


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
    more: Callable[[], Tensor] | None = None,
    pattern: str = "*",
    tokens: Tokens = "mean",
) -> tuple[Tap, ...]:
    """Taps for a net that declares none: every Linear, convolution and attention whose path matches, in the order they run.

    `run` makes one forward pass and returns the logits. The head is the layer that gives them, be it in a view of its tokens,
    and comes last. Images are viewed through a 2 x 2 pool, tokens through their mean, the first or the last one, and what is
    still wider through a fixed subset.
    Layers of other kinds, such as an LSTM, are left out with a warning. `more` is `run` with one sample more, which tells
    the samples' axis from another as long: tokens may come first, and be as many.

    >>> net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 5))
    >>> [(tap.path, tap.view) for tap in find_taps(net, lambda: net(torch.zeros(2, 1, 8, 8)))]
    [('0', 'pool2'), ('2', 'flatten')]
    """
    layers: dict[nn.Module, str] = {module: name for name, module in net.named_modules() if isinstance(module, _FOUND)}
    others = {module: name for name, module in net.named_modules() if _other_layer(module)}
    with _WeightsRead(layers) as weights:
        logits, ran, axes = _outputs([*layers, *others], run, more)
    fired = [(module, output) for module, output in ran if module in layers]
    # Values, not identity: the net may return a copy or a cast of its head's output. Whether they are finite is judged later.
    flat = [(module, output.flatten(1).to(logits)) for module, output in fired if output.ndim > 1]
    heads: list[tuple[nn.Module, Tokens]] = [
        (module, tokens) for module, output in flat if output.shape == logits.shape and _same(output, logits)
    ]
    heads = heads or [(one, view) for one, output in fired if (view := _view_of_logits(output, logits, axes[one]))]
    if not heads:
        raise _no_head(logits, [(layers[one], output) for one, output in fired])
    head, view = heads[-1]
    chosen = [(one, output) for one, output in fired if one is head or fnmatch.fnmatch(layers[one], pattern)]
    if len(chosen) < 2 <= len(fired):
        raise InputError(f"no layer but the head matches {pattern!r}; there are: {', '.join(layers.values())}")
    modules = [module for module, _ in chosen]
    if reused := [layers[module] for module in modules if modules.count(module) > 1]:
        how = "leave it out by pattern=, or name the others in taps=, the head last"
        raise InputError(f"{reused[0]} runs more than once in a pass, so it has no single value: {how}")
    heard = [layers[module] for module, _ in fired]
    _warn_of({others[module] for module, _ in ran if module in others}, heard, net, pattern)
    called = {module for module, _ in fired}
    _warn_of_uncalled({layers[group[0]] for group in weights.read if called.isdisjoint(group)}, heard, pattern)
    chosen = _by_sample({layers[module]: (module, output) for module, output in chosen}, logits, axes)
    ordered = sorted(chosen, key=lambda pair: pair[0] is head)
    return tuple(_tap(layers[one], one, output, view if one is head else tokens, axes[one] or 0) for one, output in ordered)


def named_taps(
    net: nn.Module,
    run: Callable[[], Tensor],
    given: Iterable[Tap | str],
    *,
    more: Callable[[], Tensor] | None = None,
    tokens: Tokens = "mean",
) -> tuple[Tap, ...]:
    """Taps as they are, and for every plain path one of that module's output, viewed as `find_taps` would, the head last.

    >>> net = nn.Sequential(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU()), nn.Flatten(), nn.Linear(144, 5))
    >>> [(tap.path, tap.view) for tap in named_taps(net, lambda: net(torch.zeros(2, 1, 8, 8)), ["0", Tap("2")])]
    [('0', 'pool2'), ('2', 'flatten')]
    """
    given = list(given)
    paths = {path: module_at(net, path) for path in given if isinstance(path, str)}
    logits, ran, axes = _outputs(list(paths.values()), run, more)
    outputs = dict(ran)
    found: dict[str, Tap] = {}
    for path, module in paths.items():
        if module not in outputs:
            raise InputError(f"{path} does not run by itself in a forward pass of the net: tap the module around it")
        if not isinstance(output := outputs[module], Tensor):
            raise InputError(f"the output of {path} is a {type(output).__name__}, not a tensor: tap one of its parts")
        if (axis := axes[module]) is None:
            raise _no_samples(path, output, logits)
        view = _view_of_logits(output, logits, axis) if path == given[-1] else None
        found[path] = _tap(path, module, output, view or tokens, axis)
    return tuple(found[tap] if isinstance(tap, str) else tap for tap in given)


def _outputs(
    modules: Sequence[nn.Module], run: Callable[[], Tensor], more: Callable[[], Tensor] | None
) -> tuple[Tensor, list[tuple[nn.Module, Any]], dict[nn.Module, int | None]]:
    """What a forward pass returns, what these modules give in it, in the order they run, and which axis is the samples'."""
    logits, fired = _pass(modules, run)
    if fired and _sums_to_one(logits) and not _given_by_a_layer(logits, fired):
        raise InputError("the net returns probabilities, not logits: scan it without the softmax at its end")
    outputs = {module: output for module, output in fired if isinstance(output, Tensor)}
    grown = {module: output.shape for module, output in _pass(list(outputs), more)[1]} if more else {}
    axes = {module: _sample_axis(output.shape, len(logits), grown.get(module)) for module, output in outputs.items()}
    return logits, fired, axes


def _pass(modules: Iterable[nn.Module], run: Callable[[], Tensor]) -> tuple[Tensor, list[tuple[nn.Module, Any]]]:
    fired: list[tuple[nn.Module, Any]] = []

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        fired.append((module, output_of(module, output)))

    with contextlib.ExitStack() as hooks:
        for module in dict.fromkeys(modules):
            if isinstance(module, torch.jit.ScriptModule):
                raise InputError("there is a layer of TorchScript, which cannot be looked into: give the net before scripting")
            hooks.callback(module.register_forward_hook(note).remove)
        return run(), fired


def _sample_axis(shape: Sequence[int], samples: int, grown: Sequence[int] | None) -> int | None:
    """The first axis, or the one behind tokens, as in torch's transformers by default; None where neither is the samples'.

    `grown` is the shape with one sample more.

    >>> _sample_axis((6, 6, 8), 6, None), _sample_axis((6, 6, 8), 6, (6, 7, 8)), _sample_axis((12, 6, 8), 6, (14, 6, 8))
    (0, 1, None)
    """
    axes = (0, 1) if len(shape) == 3 else (0,) if len(shape) > 1 else ()
    return next((at for at in axes if shape[at] == samples and (grown is None or grown[at] == samples + 1)), None)


def _by_sample(
    layers: dict[str, tuple[nn.Module, Tensor]], logits: Tensor, axes: dict[nn.Module, int | None]
) -> list[tuple[nn.Module, Tensor]]:
    """Those whose outputs are sample by sample, as attention within windows is not; where only the head is, it is refused."""
    others = [path for path, (module, _) in layers.items() if axes[module] is None]
    if len(layers) - len(others) < 2 <= len(layers):
        raise _no_samples(others[0], layers[others[0]][1], logits)
    if others:
        told = "Their outputs do not go sample by sample: depth is counted without them"
        warnings.warn(f"layers left out: {', '.join(others)}. {told}", stacklevel=3)
    return [pair for path, pair in layers.items() if path not in others]


def _no_samples(path: str, output: Tensor, logits: Tensor) -> InputError:
    given = f"the output of {path} is of shape {tuple(output.shape)} for {len(logits)} samples"
    return InputError(f"{given}, of which none is theirs: leave it out by pattern=, or name other layers in taps=")


def _view_of_logits(output: Tensor, logits: Tensor, axis: int | None) -> Tokens | None:
    """The view of a layer's tokens in which it gives the logits, as a decoder that classifies by its last token."""
    if axis is None or output.ndim < 3 or output.shape[-1] != logits.shape[1]:
        return None
    for view in get_args(Tokens):
        if _same(Tap("", view=view, tokens_first=axis == 1).read(output).to(logits), logits):
            return view
    return None


def _no_head(logits: Tensor, layers: Iterable[tuple[str, Tensor]]) -> InputError:
    why = "no layer gives the logits as they are, so the head is not known:"
    if _sums_to_one(logits.exp()):
        why = "the net returns a log_softmax, which no layer gives: scan it without that, or"
    for path, output in layers:
        if output.ndim != 3 or output.shape[::2] != logits.shape:
            continue
        there = (output.to(logits) == logits[:, None]).all(2)  # samples by tokens
        if there.any(1).all():
            one = there.all(0)
            token = f"token {int(one.int().argmax())} of each sample" if one.any() else "another token in each sample"
            why = f"{path} gives the logits, at {token}, not the first or last: if padded on the right, pad on the left, or"
    return InputError(
        f"{why} give scan, in Python, the paths of the"
        " layers, head last, as taps=['body.0', 'head'], or taps of your own (from thermocline.nets import Tap)"
    )


def _other_layer(module: nn.Module) -> bool:
    """Whether it has a matrix of its own, and is of no kind that is found by itself, or that is no layer."""
    wide = any(sum(size > 1 for size in weight.shape) > 1 for weight in module.parameters(recurse=False))
    return wide and not isinstance(module, (*_FOUND, *_NO_LAYERS))


class _WeightsRead(TorchFunctionMode):
    """Notes the weights that are computed with, by a call of their layer or past it, as in F.linear(x, layer.weight).

    A weight is noted by the layers that have it, which may be several.
    """

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.read: set[tuple[nn.Module, ...]] = set()
        self._owners: dict[int, tuple[nn.Module, ...]] = {}
        for layer in layers:
            for weight in layer.parameters(recurse=False):
                if weight.ndim > 1:
                    self._owners[id(weight)] = (*self._owners.get(id(weight), ()), layer)

    def __torch_function__(self, function: Any, types: Any, given: tuple[Any, ...] = (), named: Any = None) -> Any:
        made = function(*given, **(named or {}))
        # Not by who asks for a dtype or a shape, nor by an embedding that has the weight in common with a layer.
        if isinstance(made, (Tensor, tuple)) and not isinstance(made, torch.Size) and function is not functional.embedding:
            self.read.update(self._owners[id(one)] for one in (*given, *(named or {}).values()) if id(one) in self._owners)
        return made


def _alone(names: Iterable[str], layers: Sequence[str], pattern: str) -> list[str]:
    """Those that match and are neither around a layer that is found, as what holds a class token, nor part of one."""
    return [
        name
        for name in sorted(names)
        if fnmatch.fnmatch(name, pattern)
        and not any(layer.startswith(f"{name}.") or name.startswith(f"{layer}.") or not name for layer in layers)
    ]


def _warn_of(others: Iterable[str], layers: Sequence[str], net: nn.Module, pattern: str) -> None:
    """Name the layers of other kinds that are left out."""
    if alone := _alone(others, layers, pattern):
        named = ", ".join(f"{name} ({type(net.get_submodule(name)).__name__})" for name in alone)
        told = "a linear layer, convolution or attention: depth is counted without them; scan(taps=[...]) can name them"
        warnings.warn(f"layers left out: {named}. None is {told}", stacklevel=3)


def _warn_of_uncalled(layers: Iterable[str], found: Sequence[str], pattern: str) -> None:
    """Name the layers that the net does not call, but multiplies by the weights of."""
    if alone := _alone(layers, found, pattern):
        told = "The net uses their weights and does not call them: depth is counted without them; scan(taps=[...]) can name"
        warnings.warn(f"layers left out: {', '.join(alone)}. {told} what is around them", stacklevel=3)


def _given_by_a_layer(logits: Tensor, fired: Iterable[tuple[nn.Module, Any]]) -> bool:
    """Whether a layer with weights returns them: nets fitted by squares to labels give logits that sum to 1."""
    found = (output for module, output in fired if isinstance(module, _FOUND) and isinstance(output, Tensor))
    return any(output.shape == logits.shape and _same(output.to(logits), logits) for output in found)


def _sums_to_one(output: Tensor) -> bool:
    """Whether the values of every sample are probabilities of several classes: 0 or more, and 1 together."""
    if not len(output) or output.shape[1] < 2:
        return False
    return bool((output >= 0).all() and ((output.double().sum(1) - 1).abs() < 0.01).all())  # bfloat16 rounds by 0.004


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def _tap(name: str, layer: nn.Module, output: Tensor, tokens: Tokens, axis: int) -> Tap:
    """A convolution has its channels first, a linear layer its features last, whatever the number of axes."""
    first = _channels_first(layer, output)
    alone = output.numel() <= output.shape[axis] * output.shape[1 if first else -1]
    tap = Tap(name, view="flatten" if alone else "pool2" if first else tokens, tokens_first=axis == 1)
    return replace(tap, subset=WIDEST) if tap.read(output).shape[1] > WIDEST else tap


def _channels_first(module: nn.Module, output: Tensor) -> bool:
    """As its convolutions have them, if they give so many axes; or as images have where nothing in it says otherwise."""
    inside = list(module.modules())
    if any(isinstance(part, CONVOLUTIONS) and len(part.kernel_size) + 2 == output.ndim for part in inside):
        return True
    return output.ndim > 3 and not any(isinstance(part, (*_FOUND, nn.RNNBase)) for part in inside)
