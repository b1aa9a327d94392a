"""A model and data of the user's own: any kind of either, measured without a trace left behind."""

import contextlib
import errno
import json
import math
import os
import random
import re
import shutil
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import thermocline as tc
from thermocline import geometry, nets, record, report
from thermocline.cli import common
from thermocline.nets import Tap, find_taps
from thermocline.report import facts
from thermocline.spec import Data, InputError, Net, Run

CLASSES = 4


def tensors(seed: int, n: int = 90, classes: int = CLASSES) -> tuple[torch.Tensor, torch.Tensor]:
    gen = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    centres = torch.randn(classes, 3, 8, 8, generator=torch.Generator().manual_seed(classes))
    return centres[labels] + 0.7 * torch.randn(n, 3, 8, 8, generator=gen), labels


def seeded(build, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


class Foreign(nn.Module):
    """In-place activations, registered out of order, an unused layer, a nested block, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(12, CLASSES)
        self.auxiliary = nn.Linear(12, 9)
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), nn.Sequential(nn.Conv2d(8, 12, 3)))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu_(self.features(x))
        return self.classifier(self.dropout(x.mean((2, 3))))


class Tokens(nn.Module):
    """A small transformer encoder over patches, with a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        x = x + self.down(torch.nn.functional.gelu(self.up(x)))
        return self.head(x.mean(1))


class Two(nn.Module):
    """Two inputs, and a dict out."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(192, 10), nn.Linear(192, 10)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.head((self.left(a.flatten(1)) + self.right(b.flatten(1))).relu())}


class Pairs(Dataset):
    def __init__(self, data: tuple[torch.Tensor, torch.Tensor]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data[1])

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.data[0][i], int(self.data[1][i])


SETS = {"train": tensors(1), "test": tensors(2, 40), "ood": {"other": (tensors(3, 70, 6), tensors(4, 30, 6))}}


def test_a_foreign_net_on_plain_tensors() -> None:
    result = tc.scan(seeded(Foreign), **SETS)
    rows = result.rows.to_pylist()
    assert list(dict.fromkeys(r["layer"] for r in rows if r["measure"] == "rank")) == [
        "features.0", "features.2.0", "classifier",
    ]  # fmt: skip
    assert {r["measure"] for r in rows} == set(tc.MEASURES) - {"fitted_temperature"}  # which a net at chance has not
    assert all(math.isfinite(r["value"]) for r in rows)
    assert 0 < result.effective_depth <= 1
    assert set(result.ood_drop) == {"other"}
    assert 1 <= result.solution_rank <= CLASSES
    assert "Effective depth" in result.table()


OTHER = tensors(4, 30, 6)


@pytest.mark.parametrize(
    "other",
    [
        OTHER[0], OTHER, (None, OTHER), Pairs(OTHER), DataLoader(Pairs(OTHER), 7), TensorDataset(OTHER[0]), list(OTHER),
        DataLoader(OTHER[0], 7), OTHER[0].numpy(), {"x": OTHER[0]}, (OTHER[0], torch.zeros(30, dtype=torch.int64)),
        (OTHER[0], OTHER[1].tolist()),
    ],
)  # fmt: skip
def test_a_test_set_alone_is_enough_for_detection(other) -> None:
    whole = tc.scan(seeded(Foreign), **SETS).rows.to_pylist()
    result = tc.scan(seeded(Foreign), SETS["train"], SETS["test"], ood={"other": other})
    assert result.ood_drop == {}
    rows = result.rows.to_pylist()
    probed = ("probe_accuracy", "ood_drop")
    wanted = [row for row in whole if not (row["split"].startswith("other/") and row["measure"] in probed)]
    for one, row in zip(rows, wanted, strict=True):
        assert {**one, "value": 0, "run": ""} == {**row, "value": 0, "run": ""}, "of other rows the run is another"
        assert math.isclose(one["value"], row["value"], rel_tol=1e-4, abs_tol=1e-5), row
    assert "other, neco" in result.table()


def test_what_other_data_may_be_is_said_with_their_name() -> None:
    for other in (None, "digits", (OTHER[0],) * 3):
        with pytest.raises(InputError, match=r"^ood\['o'\] must be a pair .*, or a test set alone: \(inputs, labels\)"):
            tc.scan(seeded(Foreign), SETS["train"], SETS["test"], ood={"o": other})
    with pytest.raises(InputError, match="^o/test: labels must be one whole number a sample"):
        tc.scan(seeded(Foreign), SETS["train"], SETS["test"], ood={"o": TensorDataset(OTHER[0], OTHER[0])})
    with pytest.raises(InputError, match="^o/train: .*no labels"):
        tc.scan(seeded(Foreign), SETS["train"], SETS["test"], ood={"o": (OTHER[0], OTHER[0])})


@pytest.mark.parametrize("kind", ["dataset", "loader", "tensor dataset", "shuffled"])
def test_every_kind_of_data_gives_the_same_rows(kind: str) -> None:
    def wrap(data: tuple[torch.Tensor, torch.Tensor]):
        return {
            "dataset": lambda: Pairs(data),
            "loader": lambda: DataLoader(Pairs(data), batch_size=7),
            "tensor dataset": lambda: TensorDataset(*data),
            "shuffled": lambda: DataLoader(Pairs(data), batch_size=11, shuffle=True),
        }[kind]()

    sets = {"train": wrap(SETS["train"]), "test": wrap(SETS["test"]), "ood": {"other": tuple(map(wrap, SETS["ood"]["other"]))}}
    plain = tc.scan(seeded(Foreign), **SETS).rows.to_pylist()
    # Which samples stand for all in alignment depends on the order they come in.
    for a, b in zip(plain, tc.scan(seeded(Foreign), **sets).rows.to_pylist()):
        assert {**a, "value": 0, "run": ""} == {**b, "value": 0, "run": ""}
        if not (kind == "shuffled" and a["measure"] == "alignment"):
            assert math.isclose(a["value"], b["value"], rel_tol=1e-3, abs_tol=1e-4), a


def test_logistic_probes_stand_beside_ridge_and_the_first_is_shown() -> None:
    both = tc.scan(seeded(Foreign), **SETS, probes=("logistic", "ridge"))
    ridge = tc.scan(seeded(Foreign), **SETS)
    rows = [row for row in both.rows.to_pylist() if row["measure"] == "probe_accuracy" and row["split"] == "test"]
    kinds = {kind: [r["value"] for r in rows if r["params"].startswith(f"probe={kind}")] for kind in ("ridge", "logistic")}
    assert len(kinds["ridge"]) == len(kinds["logistic"]) == 3
    assert kinds["ridge"] == [
        r["value"] for r in ridge.rows.to_pylist() if r["measure"] == "probe_accuracy" and r["split"] == "test"
    ]
    assert max(kinds["logistic"]) > 0.9, "chance is 0.25"
    shown = [r["value"] for r in both.rows.to_pylist() if r["measure"] == "effective_depth"]
    assert both.effective_depth == shown[0]
    assert both.rows.equals(tc.scan(seeded(Foreign), **SETS, probes=("logistic", "ridge")).rows)
    with pytest.raises(InputError, match="did you mean 'ridge'"):
        tc.scan(seeded(Foreign), **SETS, probes=("rigde",))


def test_a_loader_that_shuffles_draws_from_no_state_of_the_users() -> None:
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    loader = DataLoader(Pairs(SETS["train"]), batch_size=16, shuffle=True)
    tc.scan(seeded(Foreign), loader, SETS["test"])
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert np.array_equal(states[2], np.random.get_state()[1])


@pytest.mark.parametrize("view", ["mean", "cls"])
def test_tokens_are_viewed_by_mean_or_class_token(view: str) -> None:
    net = seeded(Tokens)
    result = tc.scan(net, SETS["train"], SETS["test"], tokens=view, measures=["rank"])
    views = {row["layer"]: row["view"] for row in result.rows.to_pylist()}
    assert views == {"embed": "pool2", "up": view, "down": view, "head": "flatten"}


def test_several_inputs_and_a_dict_out() -> None:
    data = ((SETS["train"][0], SETS["train"][0].flip(0)), SETS["train"][1])
    net = seeded(Two)
    with pytest.raises(InputError, match="returns a dict, not"):
        tc.scan(net, data, data, logits=lambda output: {"scores": output["logits"]})
    result = tc.scan(net, data, data)
    assert {row["layer"] for row in result.rows.to_pylist() if row["measure"] == "rank"} == {"left", "right", "head"}
    assert result.rows.equals(tc.scan(net, data, data, logits=lambda output: output["logits"]).rows)


class Named(nn.Module):
    """Inputs by keyword, and an object with logits out, as transformers has them."""

    def __init__(self) -> None:
        super().__init__()
        self.two = Two()

    def forward(self, *, ids: torch.Tensor, scale: torch.Tensor | None = None) -> SimpleNamespace:
        return SimpleNamespace(logits=self.two(ids, ids if scale is None else ids * scale)["logits"], loss=None)


class Dicts(Dataset):
    def __init__(self, **parts: torch.Tensor) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {name: part[i] for name, part in self.parts.items()}


@pytest.mark.parametrize("name", ["labels", "label"])
def test_inputs_by_name(name: str) -> None:
    x, y = SETS["train"]
    scale = torch.linspace(1, 2, len(y))[:, None, None, None]
    whole = {"ids": x, "scale": scale, name: y}
    net = seeded(Named)
    rows = tc.scan(net, whole, whole).rows
    for data in (Dicts(**whole), DataLoader(Dicts(**whole), 90), ({"ids": x, "scale": scale}, y)):
        assert tc.scan(net, data, data).rows.equals(rows)
    watch = tc.Watch(net, DataLoader(Dicts(**whole), 16, shuffle=True, generator=torch.Generator()))
    assert (watch.step(0) or {}).keys() >= {"accuracy/train"}
    placed = tc.scan(net.two, ((x, x * scale), y), ((x, x * scale), y)).rows.to_pylist()
    for one, other in zip(rows.to_pylist(), placed):
        assert one["value"] == other["value"], one


def test_batches_of_no_known_form_say_what_to_do() -> None:
    x, y = SETS["train"]
    for data in ((x, x, y), TensorDataset(x, x, y)):
        with pytest.raises(InputError, match=r"of 3: several inputs go together, as in \(\(ids, mask\), labels\)"):
            tc.scan(seeded(Two), data, data)
    with pytest.raises(InputError, match="'text' of a batch is a list of 90, not a tensor of samples"):
        tc.scan(seeded(Named), {"ids": x, "text": ["word"] * 90, "labels": y}, SETS["test"])
    with pytest.raises(InputError, match="'flag' of a batch is a int, not a tensor of samples"):
        tc.scan(seeded(Named), {"ids": x, "flag": 3, "labels": y}, SETS["test"])
    with pytest.raises(InputError, match="a list of samples goes into a DataLoader"):
        tc.scan(seeded(Two), list(zip(x, y)), SETS["test"])
    with pytest.raises(InputError, match="it has no labels"):
        tc.scan(seeded(Named), {"ids": x}, SETS["test"])
    uneven = [{"ids": torch.zeros(2, width, 192), "labels": torch.tensor([0, 1])} for width in (1, 2)]
    net = seeded(lambda: nn.Sequential(OrderedDict(flat=Mean(), body=nn.Linear(192, 5), head=nn.Linear(5, 2))))
    with pytest.raises(InputError, match=r"shape from batch to batch, \(1, 192\) and \(2, 192\): pad them"):
        tc.scan(net, Uneven(uneven), SETS["test"])


class Mean(nn.Module):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return ids.mean(1)


class Uneven:
    """Batches as a loader with its own padding gives them."""

    def __init__(self, batches: list[dict[str, torch.Tensor]]) -> None:
        self.batches = [(batch["ids"], batch["labels"]) for batch in batches]

    def __iter__(self):
        return iter(self.batches)


def test_a_bf16_net_is_measured_in_its_own_type() -> None:
    result = tc.scan(seeded(Foreign).bfloat16(), **SETS)
    full = tc.scan(seeded(Foreign), **SETS)
    assert abs(result.summary.train_accuracy - full.summary.train_accuracy) < 0.15
    assert all(math.isfinite(value) for value in result.rows["value"].to_pylist())


def test_a_compiled_net_is_read_through_what_it_wraps() -> None:
    net = seeded(Foreign)
    compiled = torch.compile(net, backend="eager")
    assert tc.scan(compiled, **SETS).rows.equals(tc.scan(net, **SETS).rows)


def test_pattern_picks_layers_and_keeps_the_head() -> None:
    result = tc.scan(seeded(Foreign), SETS["train"], SETS["test"], pattern="features.2.*", measures=["rank"])
    assert {row["layer"] for row in result.rows.to_pylist()} == {"features.2.0", "classifier"}
    with pytest.raises(InputError, match="no layer but the head matches 'nothing'"):
        tc.scan(seeded(Foreign), SETS["train"], SETS["test"], pattern="nothing")


class Reused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(192, 192), nn.Linear(192, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.layer(x.flatten(1)).relu()))


def test_a_reused_layer_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="layer runs more than once.* or name the others in taps="):
        tc.scan(seeded(Reused), SETS["train"], SETS["test"])


def test_a_scan_without_a_headline_number_says_so_and_shows_no_empty_table() -> None:
    told = tc.scan(seeded(Foreign), SETS["train"], SETS["test"], measures="stable_rank").table()
    assert " ".join(told.split()).startswith("Foreign on data: no headline number was measured; the rows have what was")


def test_a_head_that_is_not_the_output_is_said() -> None:
    net = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 9), nn.Linear(9, CLASSES), nn.Tanh()))
    with pytest.raises(InputError, match="the head is not known"):
        tc.scan(net, SETS["train"], SETS["test"])


def test_a_wide_layer_is_read_through_a_fixed_subset_that_rows_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermocline.nets.tap.WIDEST", 50)
    net = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 300), nn.ReLU(), nn.Linear(300, CLASSES)))
    taps = find_taps(net, lambda: net(SETS["train"][0][:4]))
    assert taps == (Tap("1", subset=50), Tap("3"))
    rows = tc.scan(net, SETS["train"], SETS["test"], taps=taps, measures=["singular_value"]).rows.to_pylist()
    assert sum(row["view"] == "flatten/50" for row in rows) == 50


def test_our_own_nets_and_values_against_the_obvious_code() -> None:
    net = nets.build(Net("mlp", depth=3, width=20), classes=CLASSES, size=8)
    train = SETS["train"]
    result = tc.scan(net, train, SETS["test"], temperature=7.0)
    rows = {(r["layer"], r["measure"], r["params"]): r["value"] for r in result.rows.to_pylist() if r["split"] == "train"}
    hidden = [train[0].flatten(1)]
    for layer in net.layers:
        hidden.append(layer(hidden[-1]).detach().relu())
    collapse = geometry.neural_collapse(hidden[-1], train[1], net.head.weight.detach(), net.head.bias.detach())
    for part, value in collapse._asdict().items():
        assert math.isclose(rows["head", "neural_collapse", f"part={part}"], value, rel_tol=1e-5, abs_tol=1e-9)
    aligned = geometry.alignment(net.layers[1].weight, hidden[1].double())
    assert math.isclose(rows["layers.1", "alignment", "part=max,top=15"], aligned.max, rel_tol=1e-5)
    (net(train[0]) / 7.0).log_softmax(1)[torch.arange(90), train[1]].mean().neg().backward()
    for tap in ("layers.0", "layers.1", "head"):
        gradient = net.get_submodule(tap).weight.grad
        expected = geometry.gradient_rank(gradient.double(), of="covariance", rtol=1e-3)
        assert rows[tap, "gradient_rank", "of=covariance,rtol=0.001"] == expected


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ((torch.zeros(0, 3, 8, 8), torch.zeros(0, dtype=torch.int64)), "empty"),
        (DataLoader(TensorDataset(torch.zeros(0, 3, 8, 8), torch.zeros(0, dtype=torch.int64))), "empty"),
        ((torch.zeros(5, 3, 8, 8), torch.zeros(4, dtype=torch.int64)), "4 labels for 5 inputs"),
        ((torch.zeros(5, 3, 8, 8), torch.zeros(5)), "whole number a sample"),
        ((torch.zeros(5, 3, 8, 8), torch.full((5,), -1)), "0 or more"),
        ((torch.zeros(5, 3, 8, 8), torch.arange(5) * 10**13), "from 0 on, and be below 1048576, got 40000000000000"),
        ((torch.zeros(5, 3, 8, 8, dtype=torch.uint8), torch.zeros(5, dtype=torch.int64)), "uint8"),
        (torch.zeros(5, 3, 8, 8), "a batch must be a pair"),
        (42, "data must be"),
        ("cifar10", r"got the name 'cifar10': train, test = thermocline.load\('cifar10'\)$"),
        (DataLoader(Dicts(image=torch.zeros(5, 3, 8, 8), label=torch.arange(5) % 4)), r"forward\(x\), .* are 'image': name"),
        (((torch.zeros(5, 3, 8, 8), torch.zeros(5)), torch.arange(5) % 4), "the inputs are 2 without names"),
        ((torch.zeros(5, 3, 8, 8).int(), torch.arange(5) % 4), r"not run on inputs of \(5, 3, 8, 8\) torch.int32: Input type"),
        (TensorDataset(torch.zeros(5, 3, 8, 8)), "a batch must be a pair"),
    ],
)
def test_bad_data_is_said(train, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tc.scan(seeded(Foreign), train, SETS["test"])


def test_a_split_that_the_net_does_not_take_is_named_with_its_shape() -> None:
    for other in (torch.zeros(6, 1, 8, 8), torch.zeros(6, 3, 2, 2)):
        shape = re.escape(str(tuple(other.shape)))
        with pytest.raises(InputError, match=rf"^o/test: the net does not run on inputs of {shape} torch.float32: \w+") as said:
            tc.scan(seeded(Foreign), SETS["train"], SETS["test"], ood={"o": other}, measures=["auroc"])
        assert isinstance(said.value.__cause__, RuntimeError)
    with pytest.raises(InputError, match="^test: the net takes forward"):
        tc.scan(seeded(Foreign), SETS["train"], {"image": SETS["test"][0], "label": SETS["test"][1]}, measures=["accuracy"])


def test_a_net_that_refuses_its_inputs_without_a_word_is_named_by_its_error() -> None:
    class Silent(Foreign):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError

    with pytest.raises(InputError, match=r"does not run on inputs of \(8, 3, 8, 8\) torch.float32: AssertionError"):
        tc.scan(seeded(Silent), SETS["train"], SETS["test"])


def test_an_error_inside_the_net_stays_what_it_is() -> None:
    class Broken(Foreign):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x + None)

    with pytest.raises(TypeError, match="NoneType"):
        tc.scan(seeded(Broken), SETS["train"], SETS["test"])


def test_a_net_whose_lazy_layers_have_no_shape_is_told_to_run_first() -> None:
    net = seeded(lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, CLASSES)))
    with pytest.raises(InputError, match="^1.weight has no values yet: run the net on a batch once"):
        tc.scan(net, SETS["train"], SETS["test"])
    seeded(lambda: net(SETS["train"][0]))
    wide = SETS["train"][0], SETS["train"][1].numpy().astype(np.uint16)
    one, several = (tc.scan(net, wide, SETS["test"], measures="effective_depth", probes=it).rows for it in ("ridge", ["ridge"]))
    assert one.equals(several)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_a_net_of_torchscript_is_refused() -> None:
    width = SETS["train"][0][0].numel()
    net = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(width, 8), nn.ReLU()), nn.Linear(8, CLASSES)))
    for scripted in (nn.Sequential(net[0], torch.jit.script(net[1]), net[2]), torch.jit.script(net)):
        with pytest.raises(InputError, match="a layer of TorchScript, which cannot be looked into: give the net before"):
            tc.scan(scripted, SETS["train"], SETS["test"])


def test_one_class_is_refused_where_classes_are_told_apart() -> None:
    one = (SETS["train"][0][:6], torch.full((6,), 2))
    with pytest.raises(InputError, match="^train has one class only; probes need at least two$"):
        tc.scan(seeded(Foreign), one, one)
    with pytest.raises(InputError, match=r"^o/train has one class only.*ood=\{'o': test\}$"):
        tc.scan(seeded(Foreign), SETS["train"], SETS["test"], ood={"o": (one, one)})


def test_test_labels_that_no_probe_has_seen_are_refused() -> None:
    (train, (x, y)), other = SETS["ood"]["other"], torch.arange(30) % 6
    with pytest.raises(InputError, match=r"^no label of o/test is in o/train: probes can get none right.*ood=\{'o': test\}$"):
        tc.scan(seeded(Foreign), SETS["train"], SETS["test"], ood={"o": (train, (x, y + 10))}, measures=["ood_drop"])
    kept = tc.scan(seeded(Foreign), SETS["train"], SETS["test"], ood={"o": (x, y + 10)})
    assert not kept.ood_drop, "a test set alone is for detectors"
    mixed = tc.scan(seeded(Foreign), SETS["train"], SETS["test"], ood={"o": (train, (x, torch.where(other > 0, y + 10, y)))})
    assert 0 <= mixed.ood_drop["o"] <= 1


def test_one_class_and_few_samples_give_documented_values() -> None:
    one = (SETS["train"][0][:6], torch.zeros(6, dtype=torch.int64))
    without = [name for name, one in tc.MEASURES.items() if "probes" not in one.needs]
    rows = tc.scan(seeded(Foreign), one, one, measures=without).rows.to_pylist()
    assert all(math.isfinite(row["value"]) for row in rows)
    assert not [row for row in rows if row["measure"] == "neural_collapse"], "collapse compares classes"
    assert max(row["value"] for row in rows if row["measure"] == "rank") <= 5, "six centred samples have rank 5"


def test_a_scan_is_saved_as_a_run_and_reported(tmp_path: Path) -> None:
    result = tc.scan(seeded(Foreign), **SETS, name="mine")
    assert re.match(r"Scan\(mine on data, T = 1: training accuracy .*, rank . \(classes - 1 = 3\), effective", repr(result))
    assert len(repr(result)) < 256
    assert result.layers == ["features.0", "features.2.0", "classifier"]
    path = result.save(tmp_path / "mine")
    assert record.load_rows(path).equals(result.rows)
    page = result.report(tmp_path / "page.html")
    assert "mine" in page.read_text()
    assert "<code>null</code> is what chance would give" in page.read_text()
    for name in ("page.pdf", "page.md"):
        with pytest.raises(InputError, match=f"{name} would hold html: end its name in .html"):
            result.report(tmp_path / name)


def test_a_scan_that_was_killed_while_it_was_saved_can_be_saved_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, real = tc.scan(seeded(Foreign), SETS["train"], SETS["test"], measures=["accuracy"]), os.replace
    for name in ("spec.json", "provenance.json", "rows.parquet"):

        def killed(draft: Path, file: Path, last: str = name) -> None:
            if file.name == last:
                raise KeyboardInterrupt
            real(draft, file)

        monkeypatch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            result.save(tmp_path / "mine")
    monkeypatch.setattr(os, "replace", real)
    common.require_unused(tmp_path / "mine")  # as thermocline scan asks before it begins
    with (
        record.open_run(tmp_path / "busy", Run(Data("runes"))),
        pytest.raises(InputError, match="is being written by another process"),
    ):
        common.require_unused(tmp_path / "busy")
    assert record.load_run(result.save(tmp_path / "mine")).finished
    assert not list(tmp_path.rglob("*.draft"))
    with pytest.raises(InputError, match="holds an earlier scan"):
        common.require_unused(tmp_path / "mine")


def test_the_report_of_a_scan_has_nothing_over_training_and_true_reasons(tmp_path: Path) -> None:
    """A net that is always right: nothing is confused, and no temperature is likeliest."""
    labels = torch.arange(60) % CLASSES
    data = 9.0 * torch.eye(CLASSES)[labels], labels
    net = seeded(lambda: nn.Sequential(nn.Linear(CLASSES, 5), nn.Linear(5, CLASSES)))
    nn.init.eye_(net[0].weight)
    nn.init.eye_(net[1].weight)
    result = tc.scan(net, data, data, {"other": torch.ones(60, CLASSES)})
    assert result.summary.test_accuracy == 1
    page = result.report(tmp_path / "page.html").read_text()
    made = report.render(result.save(tmp_path / "run"), tmp_path / "page.md", format="md", figures=tmp_path / "figures")
    for text in (page, made.read_text()):
        assert "over training" not in text
        assert "Every test image is given its own class." in text
        assert "No temperature fits best where test images are all classified correctly" in text
        assert ("The tolerance slider moves" in text, "can be chosen above" in text) == (text is page,) * 2
    with tc.Watch(net, data, directory=tmp_path / "watch", every=1) as watch:
        watch.step(0)
        watch.step(1)
    text = report.render(tmp_path / "watch", tmp_path / "watch.md", format="md", figures=tmp_path / "figures").read_text()
    assert "Rank of the logits over training" in text
    assert text.count("Alignment and OrthoDev over training") == 1


def test_scans_are_told_apart_by_weights_and_by_what_was_found(tmp_path: Path) -> None:
    few = {"measures": ["accuracy"]}
    nets_ = [seeded(Foreign, seed) for seed in range(3)]
    for number, net in enumerate(nets_):
        tc.scan(net, SETS["train"], SETS["test"], **few).save(tmp_path / str(number))
    again = tc.scan(nets_[0], SETS["train"], SETS["test"], **few).found.spec
    first = record.load_run(tmp_path / "0").spec
    assert again == first
    assert re.fullmatch("[0-9a-f]{12}", first.scanned)
    assert tc.scan(nets_[0], SETS["test"], SETS["test"], **few).found.spec.scanned != first.scanned
    assert len(set(record.load_rows(tmp_path)["run"].to_pylist())) == 3
    shutil.copytree(tmp_path / "0", tmp_path / "copy")
    with pytest.warns(UserWarning, match="copy is the same run as"):
        assert len(record.load_runs(tmp_path)) == 3
    with pytest.raises(InputError, match="holds an earlier scan"):
        tc.scan(nets_[1], SETS["train"], SETS["test"], **few).save(tmp_path / "0")


def test_three_scans_with_seeds_are_one_setting_and_a_watch_stands_apart(tmp_path: Path) -> None:
    for seed in range(3):
        net = seeded(Foreign, seed)
        with tc.Watch(net, SETS["train"], directory=tmp_path / f"watch{seed}", seed=seed) as watch:
            watch.step(0)
        tc.scan(net, SETS["train"], SETS["test"], measures=["accuracy"], seed=seed).save(tmp_path / f"scan{seed}")
    runs, notes = report.load(tmp_path)
    found = {case.title: [group.seeds for group in case.groups] for case in facts.cases(report.summary(runs))}
    assert found == {"Foreign on data": [3], "Foreign (watched) on data": [3]}
    assert notes == []


def test_a_scan_says_how_it_was_made_and_no_recipe_that_nobody_gave(tmp_path: Path) -> None:
    result = tc.scan(seeded(Foreign), SETS["train"], SETS["test"], measures=["accuracy"], temperature=3.0)
    with tc.Watch(seeded(Foreign), SETS["train"], directory=tmp_path / "watch", temperature=3.0) as watch:
        watch.step(0)
    for path in (result.save(tmp_path / "scan"), tmp_path / "watch"):
        plain = json.loads((path / "spec.json").read_text())
        assert (plain["train"], plain["net"]) == ({"temperature": 3.0}, {"name": "Foreign"})
        known = record.load_run(path).provenance
        assert {"command", "device", "hardware", "versions", "commit", "source", "wall_seconds", "measures"} <= known.keys()
        assert known["versions"]["torch"] == torch.__version__
        html = report.render(path, tmp_path / "page.html").read_text()
        assert "<code>train.temperature</code> 3" in html
        assert "<code>train.epochs</code>" not in html
        assert "<code>scanned</code>" not in html
    assert plain["probes"] == [], "a watch has none"


def train_some(net: nn.Module, steps: int, after) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(steps):
        net.train()
        loss = nn.functional.cross_entropy(net(SETS["train"][0][:32]), SETS["train"][1][:32])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after(step)


def test_watch_does_not_disturb_training(tmp_path: Path) -> None:
    alone, watched = (seeded(lambda: nets.build(Net("resnet8", width=4), classes=CLASSES, size=8)) for _ in range(2))
    train_some(alone, 7, lambda step: None)
    drawn = []

    class Writer:
        def add_scalar(self, tag: str, value: float, step: int) -> None:
            drawn.append((tag, value, step))

    with tc.Watch(watched, SETS["train"], every=3, samples=40, directory=tmp_path / "watch", writer=Writer()) as watch:
        train_some(watched, 7, lambda step: None)
    assert all(torch.equal(value, watched.state_dict()[name]) for name, value in alone.state_dict().items())
    assert sorted(set(watch.rows["step"].to_pylist())) == [0, 3, 6, 7]  # and the end
    assert 0 < watch.overhead < 1
    assert ("accuracy/train", drawn[0][1], 0) == drawn[0]
    assert record.load_run(tmp_path / "watch").finished
    assert record.load_rows(tmp_path / "watch").num_rows == watch.rows.num_rows
    assert not any(m._forward_pre_hooks for m in watched.modules())


def test_watch_by_hand() -> None:
    net = nets.build(Net("resnet8", width=4), classes=CLASSES, size=8)
    watch = tc.Watch(net, DataLoader(Pairs(SETS["train"]), 16), every=2, measures=["accuracy", "rank"])
    found = {}
    train_some(net, 5, lambda step: found.update({step: watch.step(step)}))
    assert [step for step, numbers in found.items() if numbers] == [0, 2, 4]
    assert "rank/train/head/of-covariance/rtol-0.001" in found[4]
    assert all(re.fullmatch(r"[/\w.\- ]*", key) for key in found[4])  # what MLflow takes; TensorBoard and W&B take more
    assert set(watch.rows["measure"].to_pylist()) == {"accuracy", "rank"}
    with pytest.raises(InputError, match="did you mean 'rank'"):
        tc.Watch(net, SETS["train"], measures=["rnk"])


@pytest.mark.parametrize("way", ["given", "set"])
def test_watch_follows_a_temperature_that_moves(way: str) -> None:
    net, (x, y) = seeded(Foreign).eval(), SETS["train"]
    watch = tc.Watch(net, (x, y), every=1)
    for step, temperature in enumerate((1.0, 20.0, 4.0)):
        if way == "given":
            watch.step(step, temperature=torch.tensor(temperature, requires_grad=True))  # as `temperature_for_norm` gives it
        else:
            watch.temperature = temperature
            watch.step(step)
    watch.step(3)
    found = {(row["measure"], row["step"]): row["value"] for row in watch.rows.to_pylist() if row["split"] == "train"}
    with torch.no_grad():
        logits = net(x)
    for step, temperature in enumerate((1.0, 20.0, 4.0, 4.0)):
        tempered = logits / temperature
        assert found["temperature", step] == temperature
        assert found["loss", step] == pytest.approx(float(nn.functional.cross_entropy(tempered, y)), rel=1e-5)
        assert found["logit_norm", step] == found["logit_norm", 0]
        assert found["tempered_logit_norm", step] == pytest.approx(found["logit_norm", 0] / temperature)
    with pytest.raises(InputError, match="temperature must be above 0"):
        watch.temperature = 0.0
    with pytest.raises(InputError, match="temperature must be above 0"):
        watch.step(4, temperature=-1.0)


def test_a_report_says_which_temperature_a_watch_is_named_by(tmp_path: Path) -> None:
    """It may have been set before the first step, and after the watch was opened."""
    with tc.Watch(seeded(Foreign), SETS["train"], every=1, directory=tmp_path / "watch", temperature=2.0) as watch:
        for step, temperature in enumerate((100.0, 50.0)):
            watch.step(step, temperature=temperature)
    (note,) = report.load(tmp_path)[1]
    assert note.endswith("went from 100 to 50 while watched; it is named T = 2, which it was opened with (temperature=)")


def test_a_watch_that_counts_measures_at_the_temperature_that_is_set() -> None:
    net = seeded(Foreign).train()
    net.dropout.eval()
    with tc.Watch(net, SETS["train"], every=1) as watch:
        for temperature in (2.0, 8.0):
            watch.temperature = temperature
            net(SETS["train"][0][:8])
    found = {row["step"]: row["value"] for row in watch.rows.to_pylist() if row["measure"] == "temperature"}
    assert found == {0: 2.0, 1: 8.0, 2: 8.0}


@pytest.mark.parametrize("way", ["with", "closed within", "hand"])
def test_a_watch_measures_the_end_of_training_once(way: str, tmp_path: Path) -> None:
    net = seeded(lambda: nets.build(Net("resnet8", width=4), classes=CLASSES, size=8))
    watch = tc.Watch(net, SETS["train"], every=200, directory=tmp_path / "w")
    if way == "hand":
        train_some(net, 25, watch.step)
        watch.close()
    else:
        with watch:
            train_some(net, 25, lambda step: None)
            if way == "closed within":
                watch.close()
    spent = watch.spent
    watch.close()
    assert watch.spent == spent
    rows = [row for row in record.load_rows(tmp_path / "w").to_pylist() if row["measure"] == "accuracy"]
    assert [row["step"] for row in rows] == [0, 24 if way == "hand" else 25]
    with torch.no_grad():
        right = (net.eval()(SETS["train"][0]).argmax(1) == SETS["train"][1]).double().mean()
    assert rows[-1]["value"] == pytest.approx(float(right))
    assert len({row["run"] for row in rows}) == 1


def test_a_watch_goes_on_when_a_full_disk_has_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, sync = seeded(Foreign), os.fsync

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with tc.Watch(net, SETS["train"], every=1, directory=tmp_path / "w") as watch:
        watch.step(0)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"cannot write .*rows\.log: No space left"):
            watch.step(1)
        monkeypatch.setattr(os, "fsync", sync)
        watch.step(2)
    assert set(record.load_rows(tmp_path / "w")["step"].to_pylist()) == {0, 2}


def test_a_watch_left_by_an_error_measures_no_end(tmp_path: Path) -> None:
    net = seeded(Foreign).train()
    net.dropout.eval()
    watch = tc.Watch(net, SETS["train"], directory=tmp_path / "w")
    with contextlib.suppress(ZeroDivisionError), watch:
        net(SETS["train"][0][:8])
        raise ZeroDivisionError
    watch.close()
    assert set(watch.rows["step"].to_pylist()) == {0}
    assert record.load_run(tmp_path / "w").finished
    average = torch.optim.swa_utils.AveragedModel(net)  # which is not what is trained
    with pytest.warns(UserWarning, match=r"AveragedModel made no .*watch\.step"), tc.Watch(average, SETS["train"]) as idle:
        net(SETS["train"][0][:8])
    assert idle.rows.num_rows == 0
