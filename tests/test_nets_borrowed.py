"""Nets of timm and torchvision by name: through stand-ins for both libraries, and the real ones where they are installed."""

import importlib
import sys
import types

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from thermocline import nets
from thermocline.nets import borrowed
from thermocline.spec import InputError, Net


class Basic(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, 2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, 2, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.bn1(self.conv1(x)) + self.downsample(x), inplace=True)


class ResNet(nn.Module):
    """As both libraries name its parts."""

    def __init__(self, num_classes: int = 1000, in_chans: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_chans, 6, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = nn.Sequential(Basic(6, 9))
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(9, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer1(self.maxpool(functional.relu(self.bn1(self.conv1(x)))))
        return self.fc(self.drop(x.mean((2, 3))))


class Tokens(nn.Module):
    def __init__(self, size: int, num_classes: int = 1000, in_chans: int = 3) -> None:
        super().__init__()
        if size % 8:
            raise AssertionError("Wrong image height!\nand more")
        self.patch_embed = nn.Conv2d(in_chans, 10, 8, 8)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 10))
        self.mlp = nn.Linear(10, 10)
        self.head = nn.Linear(10, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = self.mlp(torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1))
        return self.head(x[:, 0])


class Headless(nn.Sequential):
    """Gives the logits by pooling, as squeezenet does."""

    def __init__(self, num_classes: int = 1000, in_chans: int = 3) -> None:
        super().__init__(nn.Conv2d(in_chans, num_classes, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def create_model(name: str, *, pretrained: bool, **options: object) -> nn.Module:
    if name == "vit_small_test":
        return Tokens(options.pop("img_size"), **options)  # pyright: ignore[reportArgumentType]
    return {"resnet18": ResNet, "squeezenet": Headless}[name](**options)  # pyright: ignore[reportArgumentType]


def get_model(name: str, *, weights: None, **options: object) -> nn.Module:
    return {"resnet18": ResNet}[name](**options)  # pyright: ignore[reportArgumentType]


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "real" in request.node.name or "installed" in request.node.name:
        return
    timm, models = types.ModuleType("timm"), types.ModuleType("torchvision.models")
    vars(timm).update(create_model=create_model, list_models=lambda: ["resnet18", "squeezenet", "vit_small_test"])
    vars(models).update(get_model=get_model, list_models=lambda module: ["resnet18"] if module is models else ["fcn"])
    for module in (timm, types.ModuleType("torchvision"), models):
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_borrowed_resnet_has_taps_without_shortcuts(library: str) -> None:
    net = nets.build(Net(f"{library}:resnet18"), classes=7, size=32)
    assert [tap.path for tap in net.taps] == ["net.conv1", "net.layer1.0.conv1", "net.fc"]
    assert [tap.view for tap in net.taps] == ["pool2", "pool2", "flatten"]
    assert net.training
    assert all(module.training for module in net.modules())
    assert net(torch.zeros(4, 3, 32, 32)).shape == (4, 7)  # in training mode, and the random state is untouched
    assert int(net.get_submodule("net.bn1").num_batches_tracked) == 1, "finding taps leaves statistics alone"


def test_the_seed_decides_a_borrowed_net() -> None:
    a, b, c = (nets.build(Net("timm:resnet18"), classes=7, size=32, channels=1, seed=s).state_dict() for s in (1, 1, 2))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["net.fc.weight"], c["net.fc.weight"])


@pytest.mark.parametrize(("stem", "kernel", "places"), [("auto", 7, 8), ("imagenet", 7, 8), ("small", 3, 32)])
def test_a_borrowed_resnet_takes_a_small_stem(stem: str, kernel: int, places: int) -> None:
    net = nets.build(Net("timm:resnet18", stem=stem), classes=7, size=32, channels=1)  # pyright: ignore[reportArgumentType]
    assert net.get_submodule("net.conv1").kernel_size == (kernel, kernel)
    shapes = []
    net.get_submodule("net.layer1").register_forward_pre_hook(lambda module, inputs: shapes.append(inputs[0].shape[2:]))
    net(torch.zeros(2, 1, 32, 32))
    assert shapes == [(places, places)]


def test_a_borrowed_transformer_is_told_the_size_and_read_at_its_class_token() -> None:
    net = nets.build(Net("timm:vit_small_test"), classes=7, size=16, channels=2)
    assert [(tap.path, tap.view) for tap in net.taps] == [
        ("net.patch_embed", "pool2"), ("net.mlp", "cls"), ("net.head", "flatten"),
    ]  # fmt: skip


def test_heads_and_initialisation_apply_to_a_borrowed_net() -> None:
    wanted = Net("timm:resnet18", head="bottleneck", head_rank=2, init="orthogonal", logit_norm="before")
    net = nets.build(wanted, classes=7, size=32)
    assert [tap.path for tap in net.taps[-2:]] == ["net.fc.down", "net.fc.out"]
    down = net.get_submodule("net.fc.down").weight
    assert torch.allclose(down @ down.T, torch.eye(2), atol=1e-6)
    nets.set_logit_norm(net, torch.linspace(-1, 1, 8 * 3 * 1024).view(8, 3, 32, 32), 2.0)


@pytest.mark.parametrize(
    ("net", "channels", "size", "message"),
    [
        (Net("timm:resnet81"), 3, 32, "unknown net 'timm:resnet81'; did you mean 'timm:resnet18'?"),
        (Net("timm:qqq"), 3, 32, "timm.list_models() lists them"),
        (Net("tim:resnet18"), 3, 32, "unknown net 'tim:resnet18'"),
        (Net("timm:resnet18", depth=3), 3, 32, "net.depth=3 does not apply"),
        (Net("timm:resnet18", widen=2.0), 3, 32, "net.width and net.widen do not apply"),
        (Net("timm:vit_small_test", stem="small"), 3, 32, "it is no ResNet with a 7 x 7 stem"),
        (Net("timm:vit_small_test"), 3, 20, "cannot be used on 3 x 20 x 20 images: Wrong image height!"),
        (Net("timm:squeezenet"), 3, 32, "no layer gives the logits as they are"),
        (Net("torchvision:resnet18"), 1, 32, "read 3 channels, and the images have 1"),
    ],
)
def test_what_cannot_be_borrowed_says_why(net: Net, channels: int, size: int, message: str) -> None:
    with pytest.raises(InputError) as error:
        nets.build(net, classes=7, size=size, channels=channels)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_library_that_is_not_installed_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in {library, borrowed.LIBRARIES[library]}:  # either may have been imported by another test
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"needs {library}, which does not import here.*pip install '.\[vision\]'"):
        nets.check(Net(f"{library}:resnet18"))


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18"])
def test_real_libraries(name: str) -> None:
    try:
        importlib.import_module(name.partition(":")[0])
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"not importable here: {error}")
    net = nets.build(Net(name, stem="small"), classes=7, size=32)
    assert len(net.taps) == 18
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
