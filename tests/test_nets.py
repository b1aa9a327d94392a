"""Taps are one a weight layer, in order; building is a function of the seed."""

import pytest
import torch
from torch import nn

from thermocline import nets
from thermocline.measure import capture
from thermocline.spec import InputError, Net


@pytest.mark.parametrize(
    ("net", "layers"),
    [(Net("mlp"), 8), (Net("mlp", depth=3, width=20), 3), (Net("resnet8", width=4), 8), (Net("resnet20", width=4), 20),
     (Net("resnet18", width=4), 18), (Net("resnet34", width=4), 34)],
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


@pytest.mark.parametrize(
    ("net", "message"),
    [(Net("resnt18"), "did you mean 'resnet18'"), (Net("resnet18", depth=20), "depth is in its name")],
)
def test_a_net_that_cannot_be_built_is_named(net: Net, message: str) -> None:
    with pytest.raises(InputError, match=message):
        nets.build(net, classes=10, size=32)


def test_a_foreign_net_is_told_to_declare_taps() -> None:
    with pytest.raises(InputError, match="declares no taps"):
        nets.taps(nn.Identity())
