"""Taps are one a weight layer, in order; building is a function of the seed; sizes are those of the papers."""

import hashlib

import pytest
import torch
from torch import nn

from thermocline import nets
from thermocline.measure import capture
from thermocline.spec import InputError, Net


@pytest.mark.parametrize(
    ("net", "layers"),
    [(Net("mlp"), 8), (Net("mlp", depth=3, width=20), 3), (Net("resnet8", width=4), 8), (Net("resnet20", width=4), 20),
     (Net("resnet18", width=4), 18), (Net("resnet34", width=4), 34), (Net("resnet50", width=4), 50),
     (Net("resnet18", width=4, stem="imagenet"), 18), (Net("vgg19", width=4), 19), (Net("vgg19_bn", width=4), 19),
     (Net("vit_tiny", width=12), 50), (Net("vit_base", width=24, depth=3), 14)],
)  # fmt: skip
def test_one_tap_a_weight_layer(net: Net, layers: int, gen: torch.Generator) -> None:
    built = nets.build(net, classes=7, size=16, channels=1).eval()
    taps = nets.taps(built)
    assert len(taps) == layers
    weighted = [name for name, m in built.named_modules() if isinstance(m, nn.Linear | nn.Conv2d) and "shortcut" not in name]
    assert [tap.path for tap in taps] == weighted
    with capture(built, taps) as seen:
        logits = built(torch.randn(3, 1, 16, 16, generator=gen))
    assert torch.equal(seen[taps[-1]], logits)
    assert logits.shape == (3, 7)
    assert all(value.ndim == 2 for value in seen.values())


def test_no_activation_works_in_place(gen: torch.Generator) -> None:
    built = nets.build(Net("resnet8"), classes=5, size=16, channels=1).eval()
    assert not any(getattr(module, "inplace", False) for module in built.modules())
    with capture(built, nets.taps(built)) as seen:
        built(torch.randn(4, 1, 16, 16, generator=gen))
    assert all((value < 0).any() for value in seen.values()), "pre-activations have negative entries"


def test_the_seed_decides_the_weights() -> None:
    a, b, c = (nets.build(Net("resnet8"), classes=5, size=16, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["head.weight"], c["head.weight"])


def test_depth_does_not_shrink_an_mlps_logits(gen: torch.Generator) -> None:
    x = torch.randn(200, 1, 16, 16, generator=gen)
    norms = [nets.build(Net("mlp", depth=d, width=300), classes=50, size=16, channels=1)(x).norm() for d in (2, 12)]
    assert 0.4 < norms[1] / norms[0] < 2.5


# Parameters of the same nets with 1000 classes at 224 pixels in torchvision (ResNet, VGG) and timm (ViT, patches of 16).
# vgg19_bn has 143,678,248 there: its 5,504 convolution biases, which batch norm undoes, are not here.
KNOWN = {"resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032, "vgg19": 143_667_240,
         "vgg19_bn": 143_678_248 - 5_504, "vit_tiny": 5_717_416, "vit_small": 22_050_664, "vit_base": 86_567_656}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_nets_have_the_published_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        built = nets.build(Net(name), classes=1000, size=224)
    assert sum(parameter.numel() for parameter in built.parameters()) == KNOWN[name]


def test_taps_wider_than_4096_read_a_subset() -> None:
    with torch.device("meta"):
        taps = nets.build(Net("resnet50"), classes=10, size=224).taps
    assert {tap.path: tap.label for tap in taps if tap.subset} == {f"blocks.{i}.conv3": "pool2/4096" for i in (13, 14, 15)}


@pytest.mark.parametrize("subset", [0, -1])
def test_a_tap_keeps_at_least_one_feature(subset: int) -> None:
    with pytest.raises(InputError, match=f"^subset is how many features to keep, at least 1, got {subset}$"):
        nets.Tap("head", subset=subset)


# Of the code before nets was a package: a hash of names and shapes, and the sum of values times cos(0.7 i) over each tensor.
BEFORE = {
    Net("mlp", depth=3, width=20): ("fd00541818c4", -8.718434266469853),
    Net("resnet8"): ("3a67b6fa947b", -16.81543266074437),
    Net("resnet20"): ("88a3db5f1403", -17.738961265956704),
    Net("resnet18", width=4): ("e42d0d303512", -57.96599671778656),
    Net("resnet34", width=4): ("d1314b89c32b", -87.98498283729317),
}


@pytest.mark.parametrize("net", BEFORE, ids=lambda net: net.name)
def test_stored_runs_of_earlier_versions_can_go_on(net: Net) -> None:
    state = nets.build(net, classes=10, size=16, channels=1, seed=3).state_dict()
    names = " ".join(f"{name}{tuple(value.shape)}" for name, value in state.items())
    waves = {name: torch.arange(1, value.numel() + 1, dtype=torch.float64).mul(0.7).cos() for name, value in state.items()}
    total = sum(float(value.double().flatten() @ waves[name]) for name, value in state.items())
    assert hashlib.sha256(names.encode()).hexdigest()[:12] == BEFORE[net][0]
    assert total == pytest.approx(BEFORE[net][1], rel=1e-5)


@pytest.mark.parametrize(
    ("size", "stem", "kernel", "places"),
    [(64, "auto", 3, 64), (65, "auto", 7, 17), (32, "imagenet", 7, 8), (96, "small", 3, 96)],
)
def test_the_stem_goes_by_the_size_of_images(size: int, stem: str, kernel: int, places: int, gen: torch.Generator) -> None:
    built = nets.build(Net("resnet8", width=2, stem=stem), classes=5, size=size, channels=1).eval()  # pyright: ignore
    assert built.get_submodule("stem").kernel_size == (kernel, kernel)
    first = nets.Tap("blocks.0.conv1", at="input", view="raw")
    with capture(built, [first]) as seen:
        built(torch.randn(1, 1, size, size, generator=gen))
    assert seen[first].shape[2:] == (places, places)


@pytest.mark.parametrize(("size", "inputs", "hidden"), [(8, 32, 32), (32, 32, 32), (64, 4 * 32, 32), (224, 49 * 32, 256)])
def test_vgg_fits_its_linear_layers_to_the_image(size: int, inputs: int, hidden: int) -> None:
    with torch.device("meta"):
        built = nets.build(Net("vgg19", width=4), classes=5, size=size)
        assert built(torch.zeros(2, 3, size, size)).shape == (2, 5)
    assert built.get_submodule("hidden.0").weight.shape == (hidden, inputs)


def test_a_vit_reads_its_class_token_which_sees_every_patch_and_its_place(gen: torch.Generator) -> None:
    built = nets.build(Net("vit_tiny", width=12, depth=2), classes=5, size=16, channels=1).eval()
    images = torch.randn(3, 1, 16, 16, generator=gen)
    with capture(built, built.taps) as seen:
        logits = built(images)
    assert [value.shape[1] for value in seen.values()] == [48, *[36, 12, 48, 12] * 2, 5]
    raw = nets.Tap("blocks.1.fc2", view="raw")
    with capture(built, [raw]) as whole:
        built(images)
    assert torch.equal(whole[raw][:, 0], seen[built.taps[-2]])
    changed = images.clone()
    changed[:, :, -1, -1] += 1
    swapped = images.roll(2, 3)
    assert not torch.allclose(built(changed), logits, atol=1e-6)
    assert not torch.allclose(built(swapped), logits, atol=1e-6)


def test_vit_attention_is_softmax_of_scaled_products(gen: torch.Generator) -> None:
    block = nets.build(Net("vit_tiny", width=12, depth=2), classes=5, size=16).get_submodule("blocks.0").double()
    x = torch.randn(2, 7, 12, generator=gen, dtype=torch.float64)
    query, key, value = block.get_submodule("qkv")(block.get_submodule("norm1")(x)).chunk(3, -1)
    heads = []
    for head in range(3):
        q, k, v = (part[..., 4 * head : 4 * head + 4] for part in (query, key, value))
        heads.append((q @ k.mT / 2).softmax(-1) @ v)
    y = x + block.get_submodule("proj")(torch.cat(heads, -1))
    hidden = block.get_submodule("fc1")(block.get_submodule("norm2")(y))
    assert block(x).allclose(y + block.get_submodule("fc2")(nn.functional.gelu(hidden)), atol=1e-12)


@pytest.mark.parametrize("net", [Net("vgg19_bn", width=8), Net("vit_tiny", width=24, depth=2), Net("resnet50", width=4)])
def test_nets_learn(net: Net, gen: torch.Generator) -> None:
    built = nets.build(net, classes=5, size=16, channels=1)
    images, labels = torch.randn(30, 1, 16, 16, generator=gen), torch.arange(30) % 5
    optimizer, losses = torch.optim.Adam(built.parameters(), lr=2e-3), []
    for _ in range(40):
        optimizer.zero_grad()
        losses.append(nn.functional.cross_entropy(built(images), labels))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.85 * losses[0]


@pytest.mark.parametrize(
    ("net", "message"),
    [(Net("resnt18"), "did you mean 'resnet18'"), (Net("resnet18", depth=20), "depth is in its name"),
     (Net("vgg19", depth=16), "depth is in its name"), (Net("mlp", stem="small"), "only ResNets have a choice of stem"),
     (Net("vit_tiny", stem="imagenet"), "only ResNets"), (Net("vit_tiny", width=100), "multiple of the 3 heads"),
     (Net(head_rank=3), "head=linear takes no net.head_rank"), (Net(head="bottleneck"), "head=bottleneck needs net.head_rank"),
     (Net(head="circle", head_rank=2), "head=circle takes no"), (Net(head="circle", logit_norm="after"), "the one scale"),
     (Net(logit_norm_init=1.0, logit_norm="after"), "undoes every scale")],
)  # fmt: skip
def test_a_net_that_cannot_be_built_is_named(net: Net, message: str) -> None:
    with pytest.raises(InputError, match=message):
        nets.check(net)
    with pytest.raises(InputError, match=message):
        nets.build(net, classes=10, size=32)


def test_no_classes_or_pixels_are_refused() -> None:
    for shape in ({"classes": 0, "size": 8}, {"classes": 4, "size": 0}, {"classes": 4, "size": 8, "channels": 0}):
        with pytest.raises(InputError, match="must be at least 1, got 0"):
            nets.build(Net("mlp"), **shape)


def test_a_vit_that_cannot_tile_the_image_says_so() -> None:
    with pytest.raises(InputError, match="cannot cut 31 x 31 pixels"):
        nets.build(Net("vit_tiny"), classes=10, size=31)


def test_a_foreign_net_is_told_to_declare_taps() -> None:
    with pytest.raises(InputError, match="declares no taps"):
        nets.taps(nn.Identity())
