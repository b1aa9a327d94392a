"""A compiled step takes the same step; where there is no GPU it is traced and run without a code generator.

A compiler cannot see through the shape checks that are on in tests, so test_train_compiled.py runs this file without them.
"""

import functools

import pytest
import torch
from torch import nn

from thermocline import nets, spec, train
from thermocline.data import Split
from thermocline.measure import measure
from thermocline.train.compiled import Compiled
from thermocline.train.step import Step

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@functools.cache
def generates() -> bool:
    """Whether code can be generated here: on a CPU that takes a C++ compiler and Python's headers."""
    torch._dynamo.reset()
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(3, device=DEVICE))
    except Exception:
        return False
    return True


@pytest.fixture
def gen() -> torch.Generator:
    return torch.Generator().manual_seed(20261115)


def toy(gen: torch.Generator) -> Split:
    images = torch.randint(0, 256, (64, 3, 8, 8), dtype=torch.uint8, generator=gen)
    labels = torch.arange(64) % 4
    return Split(images, labels, "toy", 4, torch.full((3,), 0.5), torch.full((3,), 0.25)).to(DEVICE)


def after(
    gen: torch.Generator, net: spec.Net, *, compiled: bool, steps: int = 6, generated: bool = False, **recipe: object
) -> tuple[nn.Module, list]:
    """A net after some steps, and their losses."""
    split, how = toy(gen.manual_seed(3)), spec.Train(**{"batch": 16, "lr": 0.05, "augment": "crop+flip", **recipe})
    built = nets.build(net, classes=4, size=8).to(DEVICE)
    built = built if how.precision == "bfloat16" else built.double()
    state = train.State(built, how)
    step = Step(split, how, seed=7, state=state)
    backend = "inductor" if DEVICE == "cuda" or (generated and generates()) else "aot_eager"
    run = Compiled(step, backend=backend) if compiled else step
    losses = []
    for _ in range(steps):
        step.prepare()
        built.train()
        losses.append(float(run()))
        state.step += 1
    return built, losses


WAYS = {
    "sgd": {"weight_decay": 1e-3, "nesterov": True},
    "adamw": {"optimizer": "adamw", "lr": 1e-3, "clip": 1.0},
    "learned": {"temperature": 3.0, "temperature_schedule": "learned"},
    "held": {"temperature_schedule": "hold-norm", "temperature_target": 2.0},
}


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
@pytest.mark.parametrize("way", WAYS)
def test_the_compiled_step_is_the_step(gen: torch.Generator, way: str) -> None:
    torch._dynamo.reset()
    net = spec.Net("resnet8", width=8)
    plain, losses = after(gen, net, compiled=False, **WAYS[way])
    other, others = after(gen, net, compiled=True, generated=way == "sgd", **WAYS[way])
    assert others == pytest.approx(losses, rel=1e-9)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, rtol=1e-8, atol=1e-9, msg=name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["resnet8", "vgg19", "mlp", "vit_tiny"])
def test_half_precision_reads_copies_and_trains_the_originals(gen: torch.Generator, name: str) -> None:
    torch._dynamo.reset()
    net = {"mlp": spec.Net("mlp", width=32), "vit_tiny": spec.Net("vit_tiny", depth=2, width=24)}.get(
        name, spec.Net(name, width=8)
    )
    _, losses = after(gen, net, compiled=False, precision="bfloat16", steps=5)
    trained, others = after(gen, net, compiled=True, precision="bfloat16", steps=5, generated=name == "resnet8")
    assert others == pytest.approx(losses, rel=0.05)
    assert {parameter.dtype for parameter in trained.parameters()} == {torch.float32}


@pytest.mark.filterwarnings("ignore")
def test_between_steps_the_net_is_as_it_was(gen: torch.Generator) -> None:
    """What is patched for a step must not be there when somebody measures gradients."""
    torch._dynamo.reset()
    net, _ = after(gen, spec.Net("resnet8", width=8), compiled=True, steps=2)
    assert not any("forward" in vars(module) for module in net.modules())
    counters = [buffer for name, buffer in net.named_buffers() if name.endswith("num_batches_tracked")]
    assert counters
    assert all(int(counter) == 2 for counter in counters)
    assert measure(net, toy(gen), None, {}, temperature=1.0, measures=("gradient_rank",))


class Odd(nn.Module):
    """A stem that comes late and may be frozen or grouped, images that are looked at before it, a weight that is read twice."""

    def __init__(self, *, frozen: bool, groups: int) -> None:
        super().__init__()
        self.head = nn.Linear(12, 4)
        self.twin = nn.Linear(12, 12, bias=False)
        self.stem = nn.Conv2d(3, 12, 3, groups=groups, bias=False)
        self.again = nn.Linear(12, 12, bias=False)
        self.again.weight = self.twin.weight
        self.stem.weight.requires_grad_(not frozen)

    @property
    def taps(self) -> tuple[nets.Tap, ...]:
        return nets.Tap("stem"), nets.Tap("head")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x - x.mean((1, 2, 3), keepdim=True)
        return self.head(self.again(self.twin(self.stem(x).relu().mean((2, 3)))))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("frozen", "groups"), [(False, 1), (True, 1), (False, 3)])
def test_odd_nets_train_in_half_precision_too(gen: torch.Generator, frozen: bool, groups: int) -> None:
    torch._dynamo.reset()
    how, found = spec.Train(batch=16, lr=0.05, precision="bfloat16"), []
    for compiled in (False, True):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = Odd(frozen=frozen, groups=groups).to(DEVICE)
        state = train.State(net, how)
        step = Step(toy(gen.manual_seed(3)), how, seed=7, state=state)
        run = Compiled(step, backend="inductor" if DEVICE == "cuda" else "aot_eager") if compiled else step
        losses = []
        for _ in range(4):
            step.prepare()
            losses.append(float(run()))
            state.step += 1
        found.append(losses)
    assert found[1] == pytest.approx(found[0], rel=0.01)


@pytest.mark.filterwarnings("ignore")
def test_it_is_compiled_once(gen: torch.Generator) -> None:
    """A second compilation while a graph is recorded would end the run; a second run must not read the first one's weights."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    net = spec.Net("resnet8", width=8)
    for lr in (0.05, 0.2):
        before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        _, losses = after(gen, net, compiled=False, lr=lr)
        _, others = after(gen, net, compiled=True, lr=lr)
        assert others == pytest.approx(losses, rel=1e-9)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before == 1


def test_on_a_cpu_it_is_the_plain_step(gen: torch.Generator) -> None:
    split, found = toy(gen).to("cpu"), []
    for compiled in (False, True):
        net = nets.build(spec.Net("mlp", width=8), classes=4, size=8)
        recipe = spec.Train(epochs=1, batch=32, compile=compiled)
        *_, (_, trained) = train.fit(net, split, recipe, seed=0)
        found.append(torch.cat([weight.detach().flatten() for weight in trained.parameters()]))
    assert torch.equal(*found)
