"""Capture sees what was there, once; every registered measure is finite, deterministic and explained."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from thermocline import geometry, measure, nets
from thermocline.data import Split
from thermocline.measure import MEASURES, capture, catalogue, subject
from thermocline.nets import Tap
from thermocline.record import Row
from thermocline.spec import Failure, InputError, Net


def split(seed: int, n: int = 60, classes: int = 4) -> Split:
    gen = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    centres = torch.randint(0, 256, (classes, 1, 8, 8), generator=gen)
    images = (centres[labels] + torch.randint(-60, 61, (n, 1, 8, 8), generator=gen)).clamp(0, 255).to(torch.uint8)
    return Split(images, labels, f"toy{seed}", classes, torch.tensor([0.5]), torch.tensor([0.25]))


def scene(name: str = "mlp"):
    net = nets.build(Net("mlp", depth=4, width=16) if name == "mlp" else Net(name, width=4), classes=4, size=8, channels=1)
    return (
        net,
        split(1),
        known(net, split(2, 31)),
        {"far": (split(3), split(4, 23)), "near": (split(5, 50, 7), split(6, 29, 7))},
    )


def known(net: nn.Module, test: Split) -> Split:
    """The images of a split under labels that the net gets right two times of three: one at chance has no best temperature."""
    with torch.no_grad():
        said = net.eval()(test.take(torch.arange(len(test))).images).argmax(1)
    wrong = torch.arange(len(test)) % 3 == 0
    return dataclasses.replace(test, labels=torch.where(wrong, (said + 1) % test.classes, said))


def rows_of(name: str = "mlp", **options) -> list[Row]:
    return measure.measure(*scene(name), temperature=options.pop("temperature", 10.0), **options)


def test_in_place_activations_are_seen_as_they_were(gen: torch.Generator) -> None:
    net = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    x = torch.randn(50, 6, generator=gen)
    with capture(net, [Tap("0")]) as seen:
        net(x.clone())
    assert torch.equal(seen[Tap("0")], x)
    assert (seen[Tap("0")] < 0).any()


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Identity(), nn.Identity()

    def forward(self, x):
        return self.used(self.used(x))


@pytest.mark.parametrize(("path", "times"), [("used", 2), ("unused", 0)])
def test_a_tap_that_fires_twice_or_never_raises(path: str, times: int) -> None:
    net = Odd()
    with pytest.raises(RuntimeError, match=f"{path} {times} times"), capture(net, [Tap(path)]):
        net(torch.zeros(2, 3))
    assert not net.used._forward_hooks, "hooks are gone"


def test_a_tap_on_nothing_names_the_nearest_module() -> None:
    with pytest.raises(InputError, match="did you mean 'unused'"), capture(Odd(), [Tap("unusd")]):
        pass


def test_an_error_inside_the_block_is_the_one_seen() -> None:
    net = Odd()
    with pytest.raises(ZeroDivisionError), capture(net, [Tap("used")]):
        raise ZeroDivisionError
    assert not net.used._forward_hooks


@pytest.mark.parametrize("name", ["mlp", "resnet8"])
def test_every_measure_is_finite_and_deterministic(name: str) -> None:
    rows = rows_of(name)
    assert {row.measure for row in rows} == set(MEASURES)
    assert all(math.isfinite(row.value) for row in rows)
    assert len({row[:-1] for row in rows}) == len(rows), "a row is told apart by its columns"
    assert rows == rows_of(name)


@pytest.mark.parametrize("name", ["mlp", "resnet8"])
def test_how_data_is_cut_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows_of(name)
    monkeypatch.setattr(subject, "BATCH", 7)
    for a, b in zip(whole, rows_of(name)):
        assert a[:-1] == b[:-1]
        assert math.isclose(a.value, b.value, rel_tol=1e-4, abs_tol=1e-4), a


def test_rank_by_samples_is_the_rank_of_those_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "SAMPLES", (7, 30, 600))
    net, train, *_ = scene()
    with torch.no_grad():
        logits = net.eval()(train.take(torch.arange(60)).images)
    kept = [i for i in range(60) if i // 4 < math.ceil(15 * 100 ** (-(i % 4) / 3))]  # labels are i % 4, 15 of each
    expected = {"n=7": [i * 60 // 7 for i in range(7)], "n=30": list(range(0, 60, 2)), "balance=tail100": kept}
    found = {row.params.split(",")[-1]: row.value for row in rows_of(measures=("rank_by_samples",))}
    rule = {"of": "covariance", "rtol": 1e-3}
    assert found == {how: float(geometry.numerical_rank(logits[some], **rule)) for how, some in expected.items()}


@pytest.mark.parametrize("name", MEASURES)
def test_each_measure_alone_gives_the_rows_it_gives_in_company(name: str) -> None:
    together = [row for row in rows_of() if row.measure == name]
    assert rows_of(measures=(name,)) == together
    assert together


def test_every_measure_is_explained() -> None:
    for name, one in MEASURES.items():
        parts = one.explain()
        assert parts["meaning"].endswith("."), name
        assert len(parts["meaning"]) > 30, name
        assert parts["formula"], name
        assert parts["reference"].startswith("["), name
        assert parts["reference"].endswith("]"), name


def test_snapshots_take_only_what_is_cheap() -> None:
    early = {row.measure for row in rows_of(final=False)}
    assert early == {name for name, one in MEASURES.items() if one.throughout}
    assert {row.split for row in rows_of(final=False)} == {"train", "test"}
    assert max(sum(r.measure == "singular_value" and r.depth == d for r in rows_of(final=False)) for d in range(1, 5)) == 5


def test_values_against_the_obvious_code() -> None:
    net, train, *_ = scene()
    rows = {row[:-1]: row.value for row in rows_of(temperature=10.0)}
    images = train.take(torch.arange(len(train))).images
    logits = net(images).detach().double()
    assert math.isclose(rows["train", "", 0, "", "accuracy", ""], (logits.argmax(1) == train.labels).double().mean())
    assert math.isclose(rows["train", "", 0, "", "logit_norm", ""], logits.norm() / 60**0.5, rel_tol=1e-6)
    assert math.isclose(rows["train", "", 0, "", "tempered_logit_norm", ""], logits.norm() / 60**0.5 / 10, rel_tol=1e-6)
    hidden = net.layers[1](net.layers[0](images.flatten(1)).relu()).detach()
    for of, rtol in (("covariance", 1e-3), ("features", 0.1)):
        key = ("train", "layers.1", 2, "flatten", "rank", f"of={of},rtol={rtol:g}")
        assert rows[key] == int(geometry.numerical_rank(hidden, of=of, rtol=rtol))
    assert rows["train", "head", 4, "flatten", "solution_rank", "of=covariance,rtol=0.001"] == int(
        geometry.numerical_rank(logits, of="covariance", rtol=1e-3)
    )


def test_the_net_is_left_as_it_was() -> None:
    net, *rest = scene("resnet8")
    before = {name: value.clone() for name, value in net.state_dict().items()}
    for mode in (True, False):
        net.train(mode)
        measure.measure(net, *rest, temperature=1.0)
        assert net.training is mode
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_a_net_that_gives_nan_is_named() -> None:
    net, *rest = scene()
    with torch.no_grad():
        net.layers[1].weight[0, 0] = math.nan
    with pytest.raises(Failure, match="NaN or infinite values on train, first in the output of layers.1:"):
        measure.measure(net, *rest, temperature=1.0)


def test_an_unknown_measure_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'solution_rank'"):
        measure.select(["solution_rnk"])


def test_dead_layers_have_documented_values() -> None:
    """All units dead: rank 0, and a probe that knows only how frequent the classes are."""
    net, *rest = scene()
    with torch.no_grad():
        net.layers[1].weight.zero_()
    rows = measure.measure(net, *rest, temperature=1.0)
    assert all(math.isfinite(row.value) for row in rows)
    dead = [row.value for row in rows if row.layer == "layers.1" and row.measure in ("rank", "stable_rank", "entropy_rank")]
    assert set(dead) == {0.0}
