"""Reading a net at its taps during one forward pass."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from thermocline.nets import Tap
from thermocline.nets.tap import module_at, output_of
from thermocline.spec import Failure, InputError


@contextlib.contextmanager
def capture(net: nn.Module, taps: Iterable[Tap]) -> Iterator[dict[Tap, Tensor]]:
    """The values at the taps during the one forward pass made inside the `with` block.

    Raises on leaving unless every tap fired exactly once: a silent tap or a reused module has no single value.

    >>> net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True), nn.Linear(5, 2))
    >>> with capture(net, [Tap("0"), Tap("2", at="input")]) as seen:
    ...     logits = net(Tensor(4, 3).zero_())
    >>> [tuple(value.shape) for value in seen.values()]
    [(4, 5), (4, 5)]
    """
    taps = list(dict.fromkeys(taps))
    seen: dict[Tap, Tensor] = {}
    fired = dict.fromkeys(taps, 0)

    def keep(tap: Tap, value: Any) -> None:
        if not isinstance(value, Tensor):
            raise InputError(f"the {tap.at} of {tap.path} is a {type(value).__name__}, not a tensor: tap one of its parts")
        fired[tap] += 1
        seen[tap] = tap.read(value)

    def before(tap: Tap, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        keep(tap, next(iter((*inputs, *named.values())), None))

    def after(tap: Tap, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        keep(tap, output_of(module, output))

    with contextlib.ExitStack() as hooks:
        for tap in taps:
            module = module_at(net, tap.path)
            if tap.at == "input":
                handle = module.register_forward_pre_hook(functools.partial(before, tap), with_kwargs=True)
            else:
                handle = module.register_forward_hook(functools.partial(after, tap))
            hooks.callback(handle.remove)
        yield seen
    if wrong := [f"{tap.path} {count} times" for tap, count in fired.items() if count != 1]:
        compiled = any(hasattr(module, "_orig_mod") for module in net.modules())
        part = "a compiled part calls no hooks that are set later: run the net it was made from"
        advice = part if compiled else "leave out by pattern=, or in taps=, what does not run once in every pass"
        raise Failure(f"every tap must fire once in a capture, but: {', '.join(wrong)}; {advice}")
