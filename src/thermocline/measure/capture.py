"""Reading a net at its taps during one forward pass."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from thermocline import spec
from thermocline.nets import Tap
from thermocline.spec import InputError


@contextlib.contextmanager
def capture(net: nn.Module, taps: Iterable[Tap]) -> Iterator[dict[Tap, Tensor]]:
    """The values at the taps during the one forward pass made inside the `with` block.

    Raises on leaving unless every tap fired exactly once: a silent tap or a reused module has no single value.

    >>> net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True), nn.Linear(5, 2))
    >>> with capture(net, [Tap("0"), Tap("2", at="input")]) as seen:
    ...     logits = net(torch.randn(4, 3))
    >>> [tuple(value.shape) for value in seen.values()]
    [(4, 5), (4, 5)]
    """
    taps = list(taps)
    seen: dict[Tap, Tensor] = {}
    fired = dict.fromkeys(taps, 0)

    def keep(tap: Tap, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise InputError(f"the {tap.at} of {tap.path} is a {type(value).__name__}, not a tensor: tap one of its parts")
        fired[tap] += 1
        seen[tap] = tap.read(value)

    def before(tap: Tap, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        keep(tap, inputs[0])

    def after(tap: Tap, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        keep(tap, output)

    with contextlib.ExitStack() as hooks:
        for tap in taps:
            module = _module(net, tap.path)
            if tap.at == "input":
                handle = module.register_forward_pre_hook(functools.partial(before, tap))
            else:
                handle = module.register_forward_hook(functools.partial(after, tap))
            hooks.callback(handle.remove)
        yield seen
    if wrong := [f"{tap.path} {count} times" for tap, count in fired.items() if count != 1]:
        raise RuntimeError(f"every tap must fire once in a capture, but: {', '.join(wrong)}")


def find_taps(
    net: nn.Module,
    run: Callable[[], Tensor],
    *,
    pattern: str = "*",
    tokens: Literal["mean", "cls"] = "mean",
    widest: int = 4096,
) -> tuple[Tap, ...]:
    """Taps for a net that declares none: every Linear and convolution whose path matches, in the order they run.

    `run` makes one forward pass and returns the logits. The head is the layer that gives them, and comes last. Images are
    viewed through a 2 x 2 pool, tokens through their mean or first one, and what is still wider through a fixed subset.

    >>> net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 5))
    >>> [(tap.path, tap.view) for tap in find_taps(net, lambda: net(torch.zeros(2, 1, 8, 8)))]
    [('0', 'pool2'), ('2', 'flatten')]
    """
    layers = {m: name for name, m in net.named_modules() if isinstance(m, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d))}
    fired: list[tuple[str, Tensor]] = []
    with contextlib.ExitStack() as hooks:
        for module in layers:
            note = functools.partial(lambda name, module, inputs, output: fired.append((name, output)), layers[module])
            hooks.callback(module.register_forward_hook(note).remove)
        logits = run()
    # Values, not identity: the net may return a copy or a cast of its head's output.
    heads = [name for name, output in fired if output.shape == logits.shape and torch.equal(output.to(logits), logits)]
    if not heads:
        raise InputError("no Linear layer gives the logits as they are, so the head is not known: pass taps=, head last")
    chosen = [(name, output) for name, output in fired if name == heads[-1] or fnmatch.fnmatch(name, pattern)]
    if len(chosen) < 2:
        raise InputError(f"no layer but the head matches {pattern!r}; there are: {', '.join(layers.values())}")
    names = [name for name, _ in chosen]
    if reused := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"{reused[0]} runs more than once in a pass, so it has no single value: leave it out by pattern=")
    ordered = sorted(chosen, key=lambda pair: pair[0] == heads[-1])
    return tuple(_tap(name, output, tokens, widest) for name, output in ordered)


def _tap(name: str, output: Tensor, tokens: Literal["mean", "cls"], widest: int) -> Tap:
    view = "pool2" if output.ndim == 4 else tokens if output.ndim == 3 else "flatten"
    tap = Tap(name, view=view)
    return Tap(name, view=view, subset=widest) if tap.read(output).shape[1] > widest else tap


def _module(net: nn.Module, path: str) -> nn.Module:
    modules = dict(net.named_modules())
    if path not in modules:
        raise spec.unknown("module", path, [name for name in modules if name])
    return modules[path]
