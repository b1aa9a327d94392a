"""The loop: the head-rescaling law, exact resume, schedules, and divergence."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from thermocline import data, nets, softmax, spec, train
from thermocline.data import Split
from thermocline.experiments.controls import arms
from thermocline.spec import Failure, InputError, Net, Train
from thermocline.team import Team
from thermocline.train.ahead import Ahead
from thermocline.train.step import Step


def toy(gen: torch.Generator, n: int = 96, classes: int = 6) -> Split:
    labels = torch.arange(n) % classes
    centres = torch.randint(0, 256, (classes, 1, 8, 8), generator=gen)
    noise = torch.randint(-40, 41, (n, 1, 8, 8), generator=gen)
    images = (centres[labels] + noise).clamp(0, 255).to(torch.uint8)
    return Split(images, labels, "toy", classes, torch.tensor([0.5]), torch.tensor([0.25]))


def small(name: str = "mlp") -> nn.Module:
    net = Net("mlp", depth=4, width=24) if name == "mlp" else Net(name, width=4)
    return nets.build(net, classes=6, size=8, channels=1, seed=3)


def with_head_over(t: float, name: str = "mlp") -> nn.Module:
    """A small net of which the head's weights are divided."""
    net = small(name).double()
    with torch.no_grad():
        for parameter in net.head.parameters():
            parameter /= t
    return net


def accuracy(net: nn.Module, split: Split) -> float:
    predicted = net.eval()(split.take(torch.arange(len(split))).images).argmax(1)
    return float((predicted == split.labels).double().mean())


def plan(**settings: Any) -> Train:
    return Train(**settings)


def run_to_end(net: nn.Module, split: Split, recipe: Train, **options) -> list[int]:
    return [step for step, _ in train.fit(net, split, recipe, seed=7, **options)]


def run_in_parts(
    split: Split,
    recipe: Train,
    stops: tuple[int, ...],
    *,
    make: Callable[[], nn.Module] = small,
    every: int = 3,
    without: tuple[str, ...] = (),
) -> train.State:
    """To the end, looked at every so many steps, and interrupted after these; checkpoints are laid out as files are."""
    saved = {}
    for start, stop in zip((0, *stops), (*stops, None)):
        state = train.State(make(), recipe)
        if saved:
            state.restore(start, saved)
        steps = []
        for step, _ in train.fit(state.net, split, recipe, seed=7, state=state, at=range(0, 300, every)):
            steps.append(step)
            kept = {key: value for key, value in state.tensors().items() if key not in without}
            saved = {key: value.clone(memory_format=torch.contiguous_format) for key, value in kept.items()}
            if step == stop:
                break
        assert steps[0] == start, "what a kill left unmeasured is measured first"
    return state


def assert_same(one: train.State, other: train.State) -> None:
    assert one.step == other.step
    assert all(torch.equal(value, other.tensors()[key]) for key, value in one.tensors().items())


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("name", ["mlp", "resnet8"])
def test_temperature_is_head_rescaling(gen: torch.Generator, name: str, nesterov: bool) -> None:
    """SGD at T equals T = 1 with the head's weights / T, its lr / T^2 and its decay x T^2 [protocol 5.1]."""
    hot, split, t = small(name).double(), toy(gen), 40.0
    rescaled = with_head_over(t, name)
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
    only_head = with_head_over(t)
    run_to_end(hot, split, Train(epochs=5, batch=16, lr=0.3, temperature=t))
    run_to_end(only_head, split, Train(epochs=5, batch=16, lr=0.3))
    assert not torch.allclose(hot.layers[0].weight, only_head.layers[0].weight, atol=1e-3)


@pytest.mark.parametrize("stop", [1, 7, 13])
@pytest.mark.parametrize("name", ["mlp", "resnet8"])
def test_resume_is_exact(gen: torch.Generator, name: str, stop: int) -> None:
    recipe = Train(epochs=3, batch=16, lr=0.1, augment="crop+flip", weight_decay=1e-3, nesterov=True)
    split, make = toy(gen), functools.partial(small, name)
    assert_same(*(run_in_parts(split, recipe, stops, make=make, every=1) for stops in ((), (stop,))))


def test_training_learns_and_yields_where_asked(gen: torch.Generator) -> None:
    split, net = toy(gen), small()
    steps = run_to_end(net, split, Train(epochs=10, batch=16, lr=0.05, snapshots=3), at=[5, 11])
    assert steps == [0, 5, 7, 11, 27, 60]
    assert accuracy(net, split) > 0.95


def test_every_epoch_visits_every_sample_once_in_a_new_order(gen: torch.Generator) -> None:
    net, split, recipe = small(), toy(gen), Train(batch=16, augment="crop+flip")
    state, tables = train.State(net, recipe), []
    stepper = Step(split, recipe, seed=0, state=state)
    for state.step in (0, 6, 0):
        stepper.prepare()
        tables.append((stepper.order.flatten().clone(), stepper.draws.clone()))
    assert all(torch.equal(order.sort().values, torch.arange(96)) for order, _ in tables)
    assert not any(torch.equal(a, b) for a, b in zip(tables[0], tables[1]))
    assert all(torch.equal(a, b) for a, b in zip(tables[0], tables[2]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["mlp", "resnet8"])
def test_a_replayed_step_is_the_eager_one(gen: torch.Generator, name: str, precision: str) -> None:
    recipe = plan(epochs=5, batch=16, lr=0.1, augment="crop+flip", clip=1.0, weight_decay=1e-3, precision=precision)
    split, found = toy(gen).to("cuda"), []
    for graph in (False, True):
        net = small(name).to("cuda")
        run_to_end(net, split, recipe, graph=graph)
        found.append(net.state_dict())
    assert all(torch.equal(value, found[1][key]) for key, value in found[0].items())


@pytest.mark.parametrize("batch", [16, 40, 96])  # 6 steps an epoch, 2, 1
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_images_left_in_main_memory_train_alike(
    gen: torch.Generator, device: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits as with images on the device, through a stop within an epoch; a GPU reads what was brought to it."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    recipe = plan(epochs=5, batch=batch, lr=0.1, augment="crop+flip", patience=99)
    near, net = toy(gen).to(device), small("resnet8").to(device)
    run_to_end(net, near, recipe)
    far = dataclasses.replace(near, images=near.images.cpu())
    chosen = torch.tensor([5, 0, 90])
    assert torch.equal(far.take(chosen).images, near.take(chosen).images)
    assert all(torch.equal(a.images, b.images) for a, b in zip(far.batches(40), near.batches(40)))
    assert far.fingerprint() == near.fingerprint()
    monkeypatch.setattr(Split, "resident", False)
    first, second = small("resnet8").to(device), small("resnet8").to(device)
    state, resumed = train.State(first, recipe), train.State(second, recipe)
    for step, _ in train.fit(first, far, recipe, seed=7, state=state, at=[3]):
        if step == 3:
            resumed.restore(3, {key: value.clone() for key, value in state.tensors().items()})
    run_to_end(second, far, recipe, state=resumed)
    for other in (first, second):
        assert all(torch.equal(value, other.state_dict()[key]) for key, value in net.state_dict().items())


def test_images_are_brought_once_and_in_order(gen: torch.Generator) -> None:
    split = toy(gen)
    ahead, order = Ahead(split, 16), torch.randperm(96, generator=gen).view(6, 16)
    ahead.follow(order)
    for position in (0, 0, 1, 2, 5, 5, 1, 0):
        ahead.bring(position)
        assert torch.equal(ahead.images, split.images[order[position]])
    ahead.follow(order.flip(0))
    ahead.bring(0)
    assert torch.equal(ahead.images, split.images[order[5]])


def test_each_process_is_brought_its_own_share(gen: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Split, "resident", False)
    monkeypatch.setattr(Team, "sum", lambda self, x: x)
    split, recipe = toy(gen), plan(batch=40)
    for rank in range(3):
        state = train.State(small(), recipe)
        step = Step(split, recipe, seed=0, state=state, team=Team(rank, 3))
        for state.step in range(4):
            step.prepare()
            assert step.ahead is not None
            assert torch.equal(step.ahead.images, split.images[step.order[state.step % 2, step.share]])


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
    with pytest.raises(train.Diverged, match="loss became nan at step 1, before anything was trained; try a smaller net.init"):
        run_to_end(net, split, Train(epochs=1, batch=16))


def test_a_set_smaller_than_a_batch_still_trains(gen: torch.Generator) -> None:
    assert run_to_end(small(), toy(gen), Train(epochs=2, batch=500, snapshots=1)) == [0, 2]


def test_bfloat16_trains_float32_weights(gen: torch.Generator) -> None:
    split, net = toy(gen), small("resnet8")
    run_to_end(net, split, Train(epochs=10, batch=16, lr=0.05, precision="bfloat16"))
    assert all(parameter.dtype == torch.float32 for parameter in net.parameters())
    assert accuracy(net, split) > 0.95


@pytest.mark.parametrize("change", [{"optimizer": "adam"}, {"optimizer": "adamw"}, {"temperature_schedule": "learned"}])
def test_other_optimisers_and_a_learned_temperature_resume_exactly(gen: torch.Generator, change: dict) -> None:
    recipe = plan(epochs=3, batch=16, lr=0.01, weight_decay=1e-2, temperature=3.0, **change)
    split = toy(gen)
    done, resumed = (run_in_parts(split, recipe, stops, every=1) for stops in ((), (8,)))
    assert_same(done, resumed)
    saved = done.tensors()
    with pytest.raises(Failure, match="another version wrote it"):
        train.State(small(), recipe).restore(8, {n: v for n, v in saved.items() if n.startswith(("net.", "temperature"))})
    with pytest.raises(Failure, match=r"does not fit at net\."):
        train.State(small(), recipe).restore(8, {n: v[:1] if n.startswith("net.") else v for n, v in saved.items()})


@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_optimisers_are_those_of_torch(gen: torch.Generator, name: str, kind: type) -> None:
    split, net, plain = toy(gen), small().double(), small().double()
    recipe = plan(
        epochs=2, batch=96, lr=0.01, momentum=0.8, weight_decay=0.1, optimizer=name, schedule="constant", temperature=2.0
    )
    run_to_end(net, split, recipe)
    optimizer = kind(plain.parameters(), lr=0.01, betas=(0.8, 0.999), weight_decay=0.1)
    batch = split.take(torch.arange(96), dtype=torch.float64)
    for _ in range(2):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(plain(batch.images) / 2, batch.labels).backward()
        optimizer.step()
    assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(net.parameters(), plain.parameters()))


@pytest.mark.parametrize(("head", "norm"), [(1.0, 1.0), (1.0, 0.0), (0.0, 0.5)])
def test_what_decays_and_how_fast(gen: torch.Generator, head: float, norm: float) -> None:
    """At a temperature at which no gradient is left, a step multiplies by 1 - lr x decay."""
    net, split = small("resnet8"), toy(gen)
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    common = {"epochs": 1, "batch": 16, "lr": 0.1, "momentum": 0.0, "schedule": "constant", "temperature": 1e12}
    steps = run_to_end(net, split, plan(**common, weight_decay=0.5, head_weight_decay=head, norm_weight_decay=norm))[-1]
    for name, parameter in net.named_parameters():
        share = head if name.startswith("head") else norm if parameter.ndim < 2 else 1.0
        assert torch.allclose(parameter, before[name] * (1 - 0.05 * share) ** steps, rtol=1e-5), name


def test_temperature_is_head_rescaling_under_adam_too(gen: torch.Generator) -> None:
    """Adam at T equals T = 1 with the head's weights and lr / T, as far as its eps allows [protocol 5.1]."""
    hot, split, t = small().double(), toy(gen), 40.0
    rescaled = with_head_over(t)
    run_to_end(hot, split, plan(epochs=5, batch=16, lr=1e-3, optimizer="adam", temperature=t))
    run_to_end(rescaled, split, plan(epochs=5, batch=16, lr=1e-3, optimizer="adam", head_lr=1 / t))
    assert torch.allclose(hot.head.weight, rescaled.head.weight * t, rtol=1e-2, atol=1e-4)
    assert torch.allclose(hot.layers[0].weight, rescaled.layers[0].weight, rtol=1e-2, atol=1e-4)


def test_temperature_plans_by_hand() -> None:
    common = {"epochs": 5, "temperature": 9.0, "temperature_end": 1.0}
    plans = {
        "linear": [9, 7, 5, 3, 1],
        "cosine": [9, 7.828427, 5, 2.171573, 1],
        "exponential": [9, 5.196152, 3, 1.732051, 1],
        "step": [9, 9, 1, 1, 1],
    }
    for way, wanted in plans.items():
        one = plan(**common, temperature_schedule=way, **({"temperature_at": 0.4} if way == "step" else {}))
        assert [train.temperature(one, step, 1) for step in range(5)] == pytest.approx(wanted), way
    back = plan(epochs=4, temperature=1.0, temperature_end=50.0, temperature_schedule="step", temperature_at=0.75)
    assert [train.temperature(back, step, 2) for step in range(8)] == [1.0] * 6 + [50.0] * 2
    assert train.temperature(plan(temperature=7.0), 3, 10) == 7.0


def test_a_planned_temperature_is_the_one_trained_at(gen: torch.Generator) -> None:
    split, net = toy(gen), small()
    recipe = plan(epochs=2, batch=16, temperature=100.0, temperature_end=1.0, temperature_schedule="exponential")
    state, seen = train.State(net, recipe), {}
    for step, _ in train.fit(net, split, recipe, seed=0, state=state, at=range(13)):
        seen[step] = float(state.temperature)
    assert [seen[step + 1] for step in range(12)] == pytest.approx([train.temperature(recipe, step, 6) for step in range(12)])


@pytest.mark.parametrize(("way", "target"), [("hold-norm", 0.7), ("hold-entropy", 1.1)])
def test_a_held_target_is_held_at_every_step(gen: torch.Generator, way: str, target: float) -> None:
    split, net = toy(gen), small()
    recipe = plan(epochs=4, batch=96, lr=0.05, temperature_schedule=way, temperature_target=target)
    state, logits, temperatures = train.State(net, recipe), None, []
    for _ in train.fit(net, split, recipe, seed=0, state=state, at=range(5)):
        if logits is not None:  # those the step just taken has seen
            temperatures.append(float(state.temperature))
            entropy = softmax.entropy(logits, temperature=temperatures[-1]).mean()
            held = {"hold-norm": logits.norm() / (96**0.5 * temperatures[-1]), "hold-entropy": entropy}[way]
            assert float(held) == pytest.approx(target, rel=1e-4)
        logits = net(split.take(torch.arange(96)).images).detach()
    assert len(set(temperatures)) == 4, "it moves"


@pytest.mark.parametrize(("way", "target", "advice"), [("hold-norm", 1e-4, "larger"), ("hold-entropy", 1.79, "lower")])
def test_a_held_target_that_stalls_training_is_what_to_change(
    gen: torch.Generator, way: str, target: float, advice: str
) -> None:
    recipe = plan(epochs=2, lr=1e-9, patience=1, temperature_schedule=way, temperature_target=target)
    said = f"a {advice} train.temperature_target (now {target:g}), or more train.patience"
    with pytest.raises(train.Diverged, match=re.escape(said)):
        run_to_end(small(), toy(gen), recipe)


@pytest.mark.parametrize("target", [2.0, math.log(6)])
def test_an_entropy_that_cannot_be_held_is_said(gen: torch.Generator, target: float) -> None:
    recipe = plan(temperature_schedule="hold-entropy", temperature_target=target)
    with pytest.raises(InputError, match=r"cannot be held: 6 classes have at most 1.792"):
        run_to_end(small(), toy(gen), recipe)


def test_every_process_takes_an_image_at_least() -> None:
    train.check(plan(batch=3), 6, Team(0, 3))
    with pytest.raises(InputError, match="train.batch=2 is too small for 3 processes"):
        train.check(plan(batch=2), 6, Team(0, 3))


@pytest.mark.parametrize("loss", ["mse", "logitnorm"])
def test_other_losses_learn(gen: torch.Generator, loss: str) -> None:
    split, net = toy(gen), small()
    temperature = 0.1 if loss == "logitnorm" else 1.0
    run_to_end(net, split, plan(epochs=15, batch=16, lr=0.05, loss=loss, label_smoothing=0.1, temperature=temperature))
    assert accuracy(net, split) > 0.9


def test_a_net_that_never_begins_to_learn_is_stopped(gen: torch.Generator) -> None:
    recipe = plan(epochs=40, batch=16, lr=1e-6, temperature=1e4)
    message = r"by step 60 the net gets \d+.\d% .* larger train.lr .* lower train.temperature"
    with pytest.raises(train.Diverged, match=message):
        run_to_end(small(), toy(gen), recipe)
    assert run_to_end(small(), toy(gen), plan(epochs=40, batch=16, lr=1e-6, temperature=1e4, patience=50))[-1] == 240


@pytest.mark.parametrize(
    "change", [{"temperature": 0.02, "lr": 3e-4}, {"label_smoothing": 0.9, "clip": 1.0}, {"temperature": 100.0, "lr": 0.5}]
)
def test_a_net_that_learns_is_not_stopped_whatever_its_loss(gen: torch.Generator, change: dict) -> None:
    net = small()
    assert run_to_end(net, toy(gen), plan(**{"epochs": 30, "batch": 16, "lr": 0.05, **change}))[-1] == 180


def test_a_run_resumed_after_its_judgement_is_not_judged_again(gen: torch.Generator) -> None:
    recipe = plan(epochs=20, batch=16, lr=1e-6, temperature=1e4, patience=6)
    net = small()
    state = train.State(net, recipe)
    run_to_end(net, toy(gen), plan(epochs=1, batch=16), state=state)
    state.step = 37  # one after the judgement, of which nothing is known here
    assert run_to_end(net, toy(gen), recipe, state=state)[-1] == 120


@pytest.mark.parametrize("stops", [(3,), (27,), (57,), (12, 15, 48)])
def test_a_resumed_run_is_judged_as_an_uninterrupted_one(gen: torch.Generator, stops: tuple[int, ...]) -> None:
    hopeless, split = plan(epochs=40, batch=16, lr=1e-6, temperature=1e4), toy(gen)
    said = []
    for where in ((), stops):
        with pytest.raises(train.Diverged, match=r"by step 60 the net gets \d+.\d%") as caught:
            run_in_parts(split, hopeless, where)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_what_a_run_is_judged_by_goes_on_after_an_interruption(gen: torch.Generator) -> None:
    """Counts are of the same steps; by a few steps after an interruption, as of an older checkpoint, learners look slow."""
    recipe, split = plan(epochs=10, batch=16, lr=0.05, patience=5), toy(gen)
    whole, resumed = run_in_parts(split, recipe, ()), run_in_parts(split, recipe, (27,))
    assert whole.step == 60
    assert_same(whole, resumed)
    older = run_in_parts(split, recipe, (27,), without=("judged",))
    assert (whole.since, older.since) == (24, 27)
    assert older.right < whole.right


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_resume_is_exact_whatever_the_layout_of_weights(gen: torch.Generator, optimizer: str) -> None:
    """A checkpoint is contiguous, and weights on a GPU are not: fused kernels go through memory, not indices."""
    recipe, split = plan(epochs=3, batch=16, lr=0.01, optimizer=optimizer), toy(gen)

    def make() -> nn.Module:
        return small("resnet8").to(memory_format=torch.channels_last)

    assert_same(*(run_in_parts(split, recipe, stops, make=make, every=1) for stops in ((), (5,))))


@pytest.mark.parametrize(("way", "target"), [("hold-norm", 0.1), ("hold-entropy", 1.5)])
def test_a_held_net_learns_without_growing_its_logits(gen: torch.Generator, way: str, target: float) -> None:
    split, net = toy(gen), small()
    before = net(split.take(torch.arange(96)).images).norm()
    run_to_end(net, split, plan(epochs=30, batch=16, lr=0.05, clip=1.0, temperature_schedule=way, temperature_target=target))
    logits = net(split.take(torch.arange(96)).images)
    assert (logits.argmax(1) == split.labels).double().mean() > 0.9
    assert logits.norm() < 20 * before


def test_out_of_memory_names_a_batch_that_fits(gen: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    net, forward = small(), nets.MLP.forward

    def crowded(self: nn.Module, images: torch.Tensor) -> torch.Tensor:
        if len(images) > 5:
            raise torch.OutOfMemoryError("no room")
        return forward(self, images)

    monkeypatch.setattr(nets.MLP, "forward", crowded)
    with pytest.raises(Failure, match=r"out of memory at train.batch=16; train.batch=4 fits"):
        run_to_end(net, toy(gen), Train(batch=16))


def test_two_of_the_control_arms_are_one_run() -> None:
    """100 steps in float64, momentum and weight decay included; the other arms are other runs."""
    ends = []
    before = torch.get_default_dtype()
    for what in [spec.replace(arms.BASE, arm) for arm in arms.ARMS.values()]:
        split, _ = data.load("runes", classes=100, size=16, train=1280, test=100)
        torch.set_default_dtype(torch.float64)  # a head divided by 100 in float32 would be off by its rounding
        net = nets.build(what.net, classes=100, size=16, channels=1, seed=what.seed)
        torch.set_default_dtype(before)
        start = net.layers[0].weight.detach().clone()
        recipe = spec.replace(what, {"train.epochs": 10, "train.patience": 11}).train
        assert run_to_end(net, split, recipe)[-1] == 100
        logits = net(split.take(torch.arange(200), dtype=torch.float64).images).detach() / recipe.temperature
        ends.append((logits, net.layers[0].weight.detach() - start))
    for one, same in zip(*ends[:2]):
        assert one.abs().max() > 1e-3, "nothing was trained: the test shows nothing"
        assert torch.allclose(one, same, rtol=1e-10, atol=1e-10)
    assert not any(torch.allclose(moved, ends[0][1], atol=1e-3) for _, moved in ends[2:])
