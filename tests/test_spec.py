"""Equal specs have equal keys; a wrong one fails at once and says what was meant."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline import spec
from thermocline.spec import Data, InputError, Net, Run, Train, grid


def test_number_types_do_not_change_the_key() -> None:
    assert Run(train=Train(temperature=1)).key == Run(train=Train(temperature=1.0)).key == Run().key
    assert Run(train=Train(temperature=100)) == Run(train=Train(temperature=100.0))
    assert isinstance(Train(temperature=2).temperature, float)


def test_keys_are_stable_across_versions() -> None:
    """If one of these moves, every stored run is orphaned."""
    assert Run().key == "44136fa355b3"
    assert (
        Run(Data("cifar100", ood=("svhn",)), Net("resnet18"), Train(epochs=164, temperature=100), seed=3).key == "198f938a15c1"
    )


def test_every_setting_changes_the_key() -> None:
    other = {
        "data.ood": ("digits",),
        "train.milestones": (0.3,),
        "measures": ("rank",),
        "follow": ("rank",),
        "scanned": "0123456789ab",
        "probes": ("logistic", "ridge"),
        "train.nesterov": True,
        "train.compile": True,
        "data.name": "digits",
        "net.name": "resnet8",
    }
    shares = ("train.momentum", "train.label_smoothing", "train.temperature_at", "data.label_noise")
    bound = {"train.temperature_end": "linear", "train.temperature_target": "hold-norm"}  # needs its schedule, which needs it
    staircase = {"train.schedule": "step"}
    jump = {"train.temperature_schedule": "step", "train.temperature_end": 5.0}
    beside = {"train.milestones": staircase, "train.decay": staircase, "train.temperature_at": jump}  # or they would do nothing
    types = {path: words for path, words, _, _ in spec.describe()}
    for path, value in spec.leaves(Run()):
        changes = {path: 0.3 if path in shares else other.get(path)}
        if changes[path] is None:
            words = [word for word in types[path].split(" | ") if word != value]
            changes[path] = words[0] if isinstance(value, str) else (value or 3) + 1
        if path in bound:
            changes["train.temperature_schedule"] = bound[path]
        if path == "train.temperature_schedule":
            changes[path] = "learned"
        base = spec.replace(Run(), beside.get(path, {}))
        assert spec.replace(base, changes).key != base.key, path


@given(
    st.floats(1e-3, 1e4),
    st.integers(0, 9),
    st.sampled_from(["step", "cosine"]),
    st.lists(st.sampled_from(["digits", "runes:1"])),
)
def test_json_round_trip(temperature: float, seed: int, schedule: str, ood: list[str]) -> None:
    changes = {"train.temperature": temperature, "seed": seed, "train.schedule": schedule, "data.ood": tuple(ood)}
    run = spec.replace(Run(), changes)
    again = spec.from_json(json.loads(json.dumps(spec.to_json(run))))
    assert again == run
    assert again.key == run.key


def test_grid_is_a_product_in_order() -> None:
    runs = grid(Run(), {"train.temperature": [1, 100], "seed": range(3)})
    assert [(run.train.temperature, run.seed) for run in runs] == [(t, s) for t in (1.0, 100.0) for s in range(3)]
    assert len({run.key for run in runs}) == 6


@pytest.mark.parametrize("values", ["cifar10", 3])
def test_an_axis_of_a_grid_is_a_sequence(values: object) -> None:
    with pytest.raises(InputError, match=rf"^grid takes a sequence of values for data\.name, got {values!r}$"):
        grid(Run(), {"data.name": values})


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("train.lr=0.5", "train.lr", 0.5),
        ("train.clip=none", "train.clip", None),
        ("train.clip=2", "train.clip", 2.0),
        ("train.nesterov=true", "train.nesterov", True),
        ("data.ood=digits, runes:1", "data.ood", ("digits", "runes:1")),
        ("data.name=arrays:a=b.npz", "data.name", "arrays:a=b.npz"),
        ("train.milestones=0.5,0.75", "train.milestones", (0.5, 0.75)),
    ],
)
def test_set_parses_by_type(text: str, path: str, value: object) -> None:
    assert dict(spec.leaves(spec.parse(Run(), [text])))[path] == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.temprature=3", "did you mean 'train.temperature'"),
        ("train.schedule=cosin", "did you mean 'cosine'"),
        ("train.optimizer=SGD", "did you mean 'sgd'"),
        ("train.lr=fast", "train.lr takes float, got 'fast'"),
        ("train.lr=nan", "lr must be finite"),
        ("train.epochs=1.5", "train.epochs takes int"),
        ("train.temperature=0", "temperature must be above 0"),
        ("train.momentum=1", "momentum must be below 1"),
        ("train.nesterov=yes", "takes true or false"),
        ("train.milestones=82,123", "each of milestones must be below 1, got 82.0"),
        ("seed=9223372036854775808", "seed must be below"),
        ("probes=ridg", "did you mean 'ridge'"),
        ("net=mlp", "did you mean 'net.name'"),
        ("lr=1", "unknown setting 'lr'; did you mean 'train.lr'?"),
        ("name=mlp", "did you mean 'data.name' or 'net.name'?"),
        ("wd=1", "unknown setting 'wd'; see: thermocline list settings"),
        ("temperature", "has no '='"),
        ("scanned=0123456789ab", "scanned is found by scan and Watch, and cannot be set"),
        ("scaned=1", "did you mean 'seed'"),
    ],
)
def test_a_typo_is_named(text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        spec.parse(Run(), [text])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Train(temperature="hot"),
        lambda: Train(epochs=2.5),
        lambda: Train(epochs=True),
        lambda: Data(ood="digits"),
        lambda: Run(data="runes"),
        lambda: Net(width=0),
        lambda: Train(nesterov=True, momentum=0),
    ],
)
def test_construction_is_typed(build) -> None:
    with pytest.raises(InputError):
        build()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["train.milestones=0.3,0.6"], "milestones is for schedule=step, not cosine"),
        (["train.decay=0.2", "train.schedule=constant"], "decay is for schedule=step, not constant"),
        (["train.temperature_at=0.3"], "temperature_at is for temperature_schedule=step, not constant"),
        (["train.warmup=500"], "warmup=500 epochs are more than the epochs=30 of training"),
        (
            ["train.temperature=100", "train.temperature_schedule=hold-norm", "train.temperature_target=0.1"],
            "temperature_schedule=hold-norm finds the temperature: leave out temperature=100, which would have no effect",
        ),
    ],
)
def test_what_would_have_no_effect_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        spec.parse(Run(), texts)


def test_names_are_readable_and_safe() -> None:
    name = Run(Data("folder:/my data/../x"), train=Train(temperature=0.5)).name
    assert "/" not in name
    assert " " not in name
    assert name.startswith("folder-my-data-x-mlp")
    assert "-T0.5-s0-" in name


def test_a_scan_keeps_to_what_is_known_and_comes_back() -> None:
    run = Run(Data("mine", ood=("other",)), Net("Mine"), Train(temperature=3), seed=2, scanned="0123456789ab")
    plain = spec.to_json(run)
    assert plain["train"] == {"temperature": 3.0}
    assert spec.from_json(plain) == run
    assert spec.from_json(spec.to_json(spec.replace(run, {"train.lr": 0.7}))).train.lr == 0.7
    assert "scanned" not in spec.to_json(Run())
    assert "scanned" not in [path for path, *_ in spec.describe()]
