"""A model comes back from scan and Watch as it was given: buffers, modes, gradients, hooks, random states; errors or not."""

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import thermocline as tc
from thermocline.spec import InputError

X, Y = torch.randn(120, 6, generator=torch.Generator().manual_seed(0)), torch.arange(120) % 3


class Running(nn.Module):
    """Statistics of all that passes, in whatever mode: written in place, behind autograd's back, and put in place of others."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("written", "behind", "replaced"):
            self.register_buffer(name, torch.zeros(16))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("none", None)
        self.written: Tensor
        self.behind: Tensor
        self.replaced: Tensor
        self.count: Tensor

    def forward(self, x: Tensor) -> Tensor:
        mean = x.detach().mean(0)
        self.written.mul_(0.9).add_(mean)
        self.behind.data.add_(mean)
        self.replaced = self.replaced + mean
        self.count += 1
        return x


class Merging(nn.Linear):
    """Weights that change with the mode, as LoRA adds its own when it is to evaluate."""

    merged = False

    def train(self, mode: bool = True) -> nn.Module:
        super().train(mode)
        if mode == self.merged:
            self.weight.data.add_(0.1 if not mode else -0.1)
            self.merged = not mode
        return self


class Fuse(nn.Module):
    """Fails at a pass of that number."""

    left, error = 10**9, RuntimeError

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        if self.left < 0:
            raise self.error("blown")
        return x


def build() -> nn.Sequential:
    """In training mode but for one norm, with a frozen weight, a gradient in waiting and a hook."""
    with torch.random.fork_rng():
        net = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), Running(), Merging(16, 16), nn.BatchNorm1d(16),
            Fuse(), nn.Linear(16, 3),
        )  # fmt: skip
        net(X).sum().backward()
    net[1].eval()
    net[0].requires_grad_(False)
    net[2].register_forward_hook(lambda *_: None)
    return net


def state(net: nn.Sequential) -> dict[str, Any]:
    tensors = {**net.state_dict(), **{f"grad of {name}": value.grad for name, value in net.named_parameters()}}
    tensors["torch"] = torch.get_rng_state()
    numpy = np.random.get_state()  # not Python's, which the type checks of these tests draw from
    hooks = [len(some) for module in net.modules() for some in (module._forward_hooks, module._forward_pre_hooks)]
    return {
        **{name: None if value is None else value.tolist() for name, value in tensors.items()},
        "objects": {name: id(value) for name, value in (*net.named_buffers(), *net.named_parameters())},
        "modes": [module.training for module in net.modules()],
        "merged": net[5].merged,
        "requires": [value.requires_grad for value in net.parameters()],
        "hooks": hooks,
        "numpy": [part.tolist() if isinstance(part, np.ndarray) else part for part in numpy],
        "flags": (torch.is_grad_enabled(), torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32),
    }


def scan(net: nn.Module) -> None:
    tc.scan(net, (X, Y), (X[:60], Y[:60]), {"o": 2 * X[:50]}, probes=("ridge", "logistic"))


def watch(net: nn.Module) -> None:
    with tc.Watch(net, (X, Y), every=1) as watch:
        watch.step(0)
        watch.step(1)


@pytest.mark.parametrize("look", [scan, watch])
def test_a_model_comes_back_as_it_was(look: Callable[[nn.Module], None]) -> None:
    net = build()
    before = state(net)
    look(net)
    assert state(net) == before


@pytest.mark.parametrize("look", [scan, watch])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("passes", [0, 2, 3])  # while layers are found, in the first measurement, in one after it
def test_so_it_does_after_an_error(look: Callable[[nn.Module], None], error: type[BaseException], passes: int) -> None:
    net = build()
    before = state(net)
    net[7].left, net[7].error = passes, error
    with pytest.raises(InputError if error is RuntimeError else error, match="blown"):
        look(net)
    assert state(net) == before


def test_a_cache_that_grew_stays_as_it_is() -> None:
    """What a net knows of its size, in attributes of its own, would no longer be true of a smaller one."""

    class Cached(nn.Linear):
        def __init__(self) -> None:
            super().__init__(6, 16)
            self.size = 1
            self.register_buffer("cache", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > self.size:
                self.size = len(x)
                self.cache = torch.zeros(self.size)
            return super().forward(x) + self.cache[: len(x), None]

    with torch.random.fork_rng():
        net = nn.Sequential(Cached(), nn.ReLU(), nn.Linear(16, 3))
    scan(net)
    assert net(X[:90]).shape == (90, 3)


def test_the_first_use_in_a_process_draws_no_random_number_either() -> None:
    """It imports much, and something of that draws."""
    script = "import random, thermocline as tc; random.seed(0); tc.Watch, tc.scan; print(random.random())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(done.stdout) == random.Random(0).random()
