"""Heads, initialisation and widths: each setting does what its law says, to a net and to what is measured on it."""

import math

import pytest
import torch
from torch import Tensor, nn

from thermocline import geometry, measure, nets
from thermocline.measure import capture
from thermocline.nets.heads import EPSILON, Circle
from thermocline.spec import InputError, Net

CLASSES, SIZE = 7, 8
SMALL = {
    "mlp": Net("mlp", depth=3, width=20),
    "resnet8": Net("resnet8", width=4),
    "vgg19": Net("vgg19", width=2),
    "vgg19_bn": Net("vgg19_bn", width=2),
    "vit_tiny": Net("vit_tiny", width=12, depth=2),
}


def small(name: str = "mlp", **settings: object) -> Net:
    return Net(**{**vars(SMALL[name]), **settings})  # pyright: ignore[reportArgumentType]


def build(net: Net, **options: int) -> nets.Tapped:
    return nets.build(net, classes=CLASSES, size=SIZE, channels=1, seed=4, **options)


def head(net: nets.Tapped) -> nn.Module:
    return net.get_submodule(net.taps[-1].path)


@pytest.fixture
def images(gen: torch.Generator) -> Tensor:
    return torch.randn(60, 1, SIZE, SIZE, generator=gen)


VARIANTS = [
    {"head": "bottleneck", "head_rank": 3}, {"head": "circle"}, {"logit_norm": "before"}, {"logit_norm": "after"},
    {"head": "bottleneck", "head_rank": 3, "logit_norm": "before"}, {"head": "circle", "logit_norm": "before"},
    {"head": "bottleneck", "head_rank": 3, "logit_norm": "after"},
]  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("settings", VARIANTS, ids=lambda settings: "-".join(map(str, settings.values())))
def test_the_last_tap_is_the_layer_that_gives_the_logits(name: str, settings: dict, images: Tensor) -> None:
    plain, net = build(small(name)), build(small(name, **settings)).eval()
    last = nets.Tap(net.taps[-1].path, at="input")
    with torch.no_grad(), capture(net, (*net.taps, last)) as seen:
        logits = net(images)
    assert torch.equal(seen[net.taps[-1]], logits)
    assert len(net.taps) == len(plain.taps) + ("head" in settings)
    assert head(net).weight.shape == (CLASSES, seen[last].shape[1])
    product = seen[last] @ head(net).weight.T + (getattr(head(net), "bias", None) if "head" not in settings else 0)
    if settings.get("logit_norm") == "after":
        product = (product - product.mean(1, keepdim=True)) / (product.var(1, keepdim=True, correction=0) + EPSILON).sqrt()
    assert torch.allclose(product, logits, rtol=1e-4, atol=1e-4 * float(logits.abs().max()))
    named = [name for name, _ in net.named_parameters() if name.startswith(net.taps[-1].path + ".")]
    assert named, "the head has parameters, found by its tap's path"


def test_bottleneck_logits_have_at_most_its_rank(images: Tensor) -> None:
    wide = torch.cat([images] * 2).double()
    for settings in ({}, {"logit_norm": "before"}, {"logit_norm": "after"}):
        logits = build(small(head="bottleneck", head_rank=3, **settings)).double()(wide)
        values = torch.linalg.svdvals(logits)
        assert values[2] > 1e-3 * values[0]
        assert values[3] < 1e-12 * values[0]
    free = torch.linalg.svdvals(build(small()).double()(wide))
    assert free[-1] > 1e-3 * free[0], "without a bottleneck they have full rank"


def test_circle_logits_have_rank_two_and_every_class_can_win(images: Tensor) -> None:
    net = build(small(head="circle")).double()
    values = torch.linalg.svdvals(net(images.double()))
    assert values[1] > 1e-3 * values[0]
    assert values[2] < 1e-7 * values[0]
    for classes in (2, 7, 1000):
        circle = Circle(classes)
        logits = circle(geometry.circle_code(classes).float())
        assert torch.equal(logits.argmax(1), torch.arange(classes))
        assert [name for name, _ in circle.named_parameters()] == ["scale"]


def test_a_circle_head_learns(images: Tensor, gen: torch.Generator) -> None:
    net = nets.build(small(head="circle", width=100), classes=5, size=SIZE, channels=1)
    labels = torch.randint(5, (60,), generator=gen)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
    assert (net(images).argmax(1) == labels).double().mean() > 0.95
    assert head(net).get_parameter("scale").item() > 1


@pytest.mark.parametrize("settings", VARIANTS, ids=lambda settings: "-".join(map(str, settings.values())))
def test_every_measure_works_on_every_head(settings: dict, images: Tensor) -> None:
    net = build(small(**settings))
    labels = torch.arange(len(images)) % CLASSES
    rows = measure.measure(net, (images, labels), (images, labels), {"other": ((images, labels),) * 2}, temperature=2.0)
    # A net that is right no more often than chance has no likeliest temperature; normalised logits are not W h + b.
    less = {"fitted_temperature", *(["compression"] if settings.get("logit_norm") == "after" else [])}
    assert {row.measure for row in rows} | less == set(measure.MEASURES)
    assert all(math.isfinite(row.value) for row in rows)
    ranks = {row.layer for row in rows if row.measure == "gradient_rank"}
    computed = {net.taps[-1].path} if settings.get("head") == "circle" else set()
    assert ranks == {tap.path for tap in net.taps} - computed
    assert all(parameter.grad is None and parameter.requires_grad for parameter in net.parameters())


def test_normalising_before_or_after_fixes_a_norm_and_undoes_scale(images: Tensor) -> None:
    before, after = build(small(logit_norm="before")), build(small(logit_norm="after"))
    reads = nets.Tap(before.taps[-1].path, at="input")
    with capture(before, [reads]) as seen:
        before(images)
    width = seen[reads].shape[1]
    assert torch.allclose(seen[reads].norm(dim=1), torch.full((60,), width**0.5))
    assert torch.allclose(after(images).norm(dim=1), torch.full((60,), CLASSES**0.5))
    assert torch.allclose(build(small(logit_norm="after", init_scale=0.1))(images), after(images), atol=1e-4)
    with torch.no_grad():
        before.get_submodule("layers.1").weight.mul_(100)  # the last hidden layer; its bias is zero
    with capture(before, [reads]) as scaled:
        before(images)
    assert torch.allclose(scaled[reads], seen[reads], atol=1e-4)
    same = build(small())
    assert torch.equal(head(after).weight, head(same).weight)
    assert torch.equal(head(before).weight, head(same).weight)
    assert list(after.state_dict()) == list(same.state_dict())


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("settings", [{}, *VARIANTS[:3]], ids=lambda settings: "-".join(map(str, settings.values())))
def test_the_initial_logit_norm_is_as_asked_and_nothing_else_changes(name: str, settings: dict, images: Tensor) -> None:
    net = build(small(name, init="torch", **settings))
    net.get_submodule(net.taps[0].path).eval()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    modes = [module.training for module in net.modules()]
    nets.set_logit_norm(net, images, 3.25)
    assert modes == [module.training for module in net.modules()]
    changed = {key for key, value in net.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == {f"{net.taps[-1].path}.{key}" for key, _ in head(net).named_parameters()}
    assert net.train()(images).norm().item() / 60**0.5 == pytest.approx(3.25, rel=1e-5)


def test_a_norm_that_cannot_be_set_says_so(images: Tensor) -> None:
    with pytest.raises(InputError, match="undoes every scale"):
        nets.set_logit_norm(build(small(logit_norm="after")), images, 1.0)
    net = build(small("resnet8"))
    with torch.no_grad():
        for parameter in head(net).parameters():
            parameter.zero_()
    with pytest.raises(InputError, match="its logits have norm 0"):
        nets.set_logit_norm(net, images, 1.0)


def layers(net: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    return [module for module in net.modules() if isinstance(module, nn.Linear | nn.Conv2d)]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("init", ["he", "lecun", "xavier", "orthogonal"])
def test_weights_have_the_variance_of_their_scheme_and_no_bias(name: str, init: str) -> None:
    for layer in layers(build(small(name, init=init))):
        fan_in, fan_out = layer.weight[0].numel(), len(layer.weight) * layer.weight[0, 0].numel()
        flat = layer.weight.detach().flatten(1)
        if init == "orthogonal":
            short = flat if len(flat) <= flat.shape[1] else flat.T
            assert torch.allclose(short @ short.T, torch.eye(len(short)), atol=1e-5)
        else:
            variance = {"he": 2 / fan_in, "lecun": 1 / fan_in, "xavier": 2 / (fan_in + fan_out)}[init]
            error = 6 * (2 / flat.numel()) ** 0.5  # six standard deviations of a normal's sample variance
            assert float(flat.square().mean()) == pytest.approx(variance, rel=error)
        assert layer.bias is None or not layer.bias.any()


def test_torch_initialisation_is_that_of_the_modules() -> None:
    for layer in layers(build(small(init="torch"))):
        bound = layer.weight[0].numel() ** -0.5
        assert layer.bias is not None
        assert layer.weight.abs().max().item() <= bound
        assert 0 < layer.bias.abs().max().item() <= bound


@pytest.mark.parametrize("name", SMALL)
def test_the_seed_decides_every_scheme(name: str) -> None:
    for init in ("own", "he", "torch"):
        a, b = (build(small(name, init=init, head="circle")).state_dict() for _ in range(2))
        assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("settings", [{}, {"head": "circle"}, {"head": "bottleneck", "head_rank": 2}])
def test_scales_multiply_logits_as_homogeneity_says(settings: dict, images: Tensor) -> None:
    plain = build(small(init="he", **settings)).double()(images.double())
    depth = 3 + bool(settings)  # biases are zero, so logits are homogeneous of the number of layers
    every = build(small(init="he", init_scale=0.5, **settings)).double()(images.double())
    assert torch.allclose(every, plain * 0.5**depth)
    biased = build(small(init="torch", **settings))
    only = build(small(init="torch", head_init_scale=0.25, **settings))
    assert torch.allclose(only(images), biased(images) * 0.25, rtol=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_init_scale_leaves_norms_and_tokens_alone(name: str) -> None:
    plain, scaled = build(small(name)), build(small(name, init_scale=3.0))
    weighted = {id(parameter) for layer in layers(scaled) for parameter in layer.parameters()}
    for before, after in zip(plain.parameters(), scaled.parameters()):
        assert torch.equal(after, before * 3 if id(after) in weighted else before)


def test_the_temperature_is_a_head_rescaled(images: Tensor) -> None:
    """[masarczyk2025softmax]: one step of SGD at T, and at 1 with the head over T and its lr over T^2; any head."""
    labels, heat, lr = torch.arange(60) % CLASSES, 5.0, 0.3
    for settings in ({}, {"head": "circle"}, {"head": "bottleneck", "head_rank": 2}, {"logit_norm": "before"}):
        hot = build(small(**settings)).double()
        cold = build(small(head_init_scale=1 / heat, **settings)).double()
        for net, temperature, factor in ((hot, heat, 1.0), (cold, 1.0, heat**-2)):
            nn.functional.cross_entropy(net(images.double()) / temperature, labels).backward()
            own = set(head(net).parameters())
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter -= lr * (factor if parameter in own else 1.0) * parameter.grad  # pyright: ignore
        assert torch.allclose(hot(images.double()) / heat, cold(images.double()), rtol=1e-5)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("widen", [1.5, 0.3, 2.0])
def test_widening_multiplies_every_hidden_width(name: str, widen: float, images: Tensor) -> None:
    plain, wide = layers(build(small(name))), layers(build(small(name, widen=widen)))
    grain = 3 if name == "vit_tiny" else 1
    for before, after in zip(plain[:-1], wide[:-1]):
        assert abs(len(after.weight) / len(before.weight) - widen) < grain / (2 * SMALL[name].width) + 1e-9
    assert len(wide[-1].weight) == CLASSES
    assert build(small(name, widen=widen))(images).shape == (60, CLASSES)
