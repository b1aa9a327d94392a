"""The loop: the head-rescaling law, exact resume, schedules, and divergence."""

import math

import pytest
import torch
from torch import nn

from thermocline import nets, train
from thermocline.data import Split
from thermocline.spec import Net, Train


def toy(gen: torch.Generator, n: int = 96, classes: int = 6) -> Split:
    labels = torch.arange(n) % classes
    centres = torch.randint(0, 256, (classes, 1, 8, 8), generator=gen)
    noise = torch.randint(-40, 41, (n, 1, 8, 8), generator=gen)
    images = (centres[labels] + noise).clamp(0, 255).to(torch.uint8)
    return Split(images, labels, "toy", classes, torch.tensor([0.5]), torch.tensor([0.25]))


def small(name: str = "mlp") -> nn.Module:
    net = Net("mlp", depth=4, width=24) if name == "mlp" else Net(name, width=4)
    return nets.build(net, classes=6, size=8, channels=1, seed=3)


def run_to_end(net: nn.Module, split: Split, recipe: Train, **options) -> list[int]:
    return [step for step, _ in train.fit(net, split, recipe, seed=7, **options)]


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("name", ["mlp", "resnet8"])
def test_temperature_is_head_rescaling(gen: torch.Generator, name: str, nesterov: bool) -> None:
    """SGD at T equals T = 1 with the head's weights / T, its lr / T^2 and its decay x T^2 [protocol 5.1]."""
    hot, split, t = small(name).double(), toy(gen), 40.0
    rescaled = small(name).double()
    with torch.no_grad():
        for parameter in rescaled.head.parameters():
            parameter /= t
    common = {"epochs": 17, "batch": 16, "lr": 0.3, "momentum": 0.9, "nesterov": nesterov, "weight_decay": 1e-3, "warmup": 1.0}
    run_to_end(hot, split, Train(**common, temperature=t))
    run_to_end(rescaled, split, Train(**common, head_lr=1 / t**2, head_weight_decay=t**2))
    start = small(name).double().state_dict()
    for key, value in hot.state_dict().items():
        if value.is_floating_point():
            other = rescaled.state_dict()[key] * (t if key.startswith("head.") else 1)
            assert (value - start[key]).abs().max() > 1e-3, f"{key} did not train: the test shows nothing"
            assert torch.allclose(value, other, rtol=1e-10, atol=1e-10), key


def test_the_law_fails_without_its_parts(gen: torch.Generator) -> None:
    """Negative control: dividing the head alone is not temperature."""
    hot, split, t = small().double(), toy(gen), 40.0
    only_head = small().double()
    with torch.no_grad():
        for parameter in only_head.head.parameters():
            parameter /= t
    run_to_end(hot, split, Train(epochs=5, batch=16, lr=0.3, temperature=t))
    run_to_end(only_head, split, Train(epochs=5, batch=16, lr=0.3))
    assert not torch.allclose(hot.layers[0].weight, only_head.layers[0].weight, atol=1e-3)


@pytest.mark.parametrize("stop", [1, 7, 13])
@pytest.mark.parametrize("name", ["mlp", "resnet8"])
def test_resume_is_exact(gen: torch.Generator, name: str, stop: int) -> None:
    recipe = Train(epochs=3, batch=16, lr=0.1, augment="crop+flip", weight_decay=1e-3, nesterov=True)
    split, whole = toy(gen), small(name)
    run_to_end(whole, split, recipe)

    first = small(name)
    state = train.State(first, recipe)
    for step, _ in train.fit(first, split, recipe, seed=7, state=state, at=range(100)):
        if step == stop:
            break
    saved = {key: value.clone() for key, value in state.tensors().items()}
    second = small(name)
    resumed = train.State(second, recipe)
    resumed.restore(stop, saved)
    assert run_to_end(second, split, recipe, state=resumed)[0] == stop
    assert all(torch.equal(value, second.state_dict()[key]) for key, value in whole.state_dict().items())


def test_training_learns_and_yields_where_asked(gen: torch.Generator) -> None:
    split, net = toy(gen), small()
    steps = run_to_end(net, split, Train(epochs=10, batch=16, lr=0.05, snapshots=3), at=[5, 11])
    assert steps == [0, 5, 7, 11, 27, 60]
    predicted = net(split.take(torch.arange(96)).images).argmax(1)
    assert (predicted == split.labels).double().mean() > 0.95


def test_every_epoch_visits_every_sample_once_in_a_new_order(gen: torch.Generator) -> None:
    net, split, recipe = small(), toy(gen), Train(batch=16, augment="crop+flip")
    stepper, tables = train._Stepper(net, split, recipe, seed=0, state=train.State(net, recipe)), []
    for step in (0, 6, 0):
        stepper.prepare(step)
        tables.append((stepper.order.flatten().clone(), stepper.draws.clone()))
    assert all(torch.equal(order.sort().values, torch.arange(96)) for order, _ in tables)
    assert not any(torch.equal(a, b) for a, b in zip(tables[0], tables[1]))
    assert all(torch.equal(a, b) for a, b in zip(tables[0], tables[2]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["mlp", "resnet8"])
def test_a_replayed_step_is_the_eager_one(gen: torch.Generator, name: str, precision: str) -> None:
    recipe = Train(epochs=5, batch=16, lr=0.1, augment="crop+flip", clip=1.0, weight_decay=1e-3, precision=precision)
    split, found = toy(gen).to("cuda"), []
    for graph in (False, True):
        net = small(name).to("cuda")
        run_to_end(net, split, recipe, graph=graph)
        found.append(net.state_dict())
    assert all(torch.equal(value, found[1][key]) for key, value in found[0].items())


def test_schedules_by_hand() -> None:
    step = Train(epochs=4, lr=1.0, schedule="step", milestones=(0.5, 0.75), decay=0.1)
    assert [round(train.learning_rate(step, s, 10), 4) for s in (0, 19, 20, 29, 30, 39)] == [1, 1, 0.1, 0.1, 0.01, 0.01]
    warm = Train(epochs=4, lr=2.0, schedule="constant", warmup=0.5)
    assert [train.learning_rate(warm, s, 10) for s in (0, 1, 4, 5, 30)] == [0.4, 0.8, 2, 2, 2]


def test_clipping_bounds_the_step(gen: torch.Generator) -> None:
    split, net = toy(gen), small()
    before = torch.cat([p.detach().clone().flatten() for p in net.parameters()])
    run_to_end(net, split, Train(epochs=1, batch=96, lr=1.0, momentum=0.0, clip=0.01, schedule="constant"))
    after = torch.cat([p.detach().flatten() for p in net.parameters()])
    assert math.isclose((after - before).norm(), 0.01, rel_tol=1e-3)


def test_divergence_says_where_and_what_to_try(gen: torch.Generator) -> None:
    with pytest.raises(train.Diverged, match=r"step \d+; try a smaller train.lr \(now 1e\+06\)"):
        run_to_end(small(), toy(gen), Train(epochs=20, batch=16, lr=1e6))
    split, net = toy(gen), small()
    with torch.no_grad():
        net.head.weight[0, 0] = math.nan
    with pytest.raises(train.Diverged, match="loss became nan at step 1;"):
        run_to_end(net, split, Train(epochs=1, batch=16))


def test_a_set_smaller_than_a_batch_still_trains(gen: torch.Generator) -> None:
    assert run_to_end(small(), toy(gen), Train(epochs=2, batch=500, snapshots=1)) == [0, 2]


def test_bfloat16_trains_float32_weights(gen: torch.Generator) -> None:
    split, net = toy(gen), small("resnet8")
    run_to_end(net, split, Train(epochs=10, batch=16, lr=0.05, precision="bfloat16"))
    assert all(parameter.dtype == torch.float32 for parameter in net.parameters())
    predicted = net.eval()(split.take(torch.arange(96)).images).argmax(1)
    assert (predicted == split.labels).double().mean() > 0.95
