"""What passes gather stays bounded, and logistic probes are the same whether features are held or made again."""

import pytest
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from thermocline import measure, nets, probes, record
from thermocline.measure import collect, probing, source
from thermocline.measure.spread import Spread
from thermocline.record import Row
from thermocline.spec import InputError, Net

CLASSES, SIZE = 4, 8


def labelled(seed: int, n: int = 120, classes: int = CLASSES) -> tuple[torch.Tensor, torch.Tensor]:
    gen = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) * classes // n  # sorted by class, as files are
    centres = torch.randn(classes, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(9))
    return centres[labels] + torch.randn(n, 1, SIZE, SIZE, generator=gen), labels


TRAIN, TEST = labelled(1), labelled(2, 60)


class Endless(IterableDataset):
    def __init__(self, pair: tuple[torch.Tensor, torch.Tensor]) -> None:
        self.pair = pair

    def __iter__(self):
        order = torch.randperm(len(self.pair[1]), generator=torch.Generator().manual_seed(3))
        return iter([(self.pair[0][i], int(self.pair[1][i])) for i in order])


def rows_of(train=TRAIN, test=TEST, net: str = "resnet8", **options) -> list[Row]:
    chosen = Net("mlp", depth=3, width=16) if net == "mlp" else Net(net, width=4)
    model = nets.build(chosen, classes=CLASSES, size=SIZE, channels=1)
    with torch.random.fork_rng(devices=[]):  # a user's own loader draws a seed for its workers each time it is begun
        return measure.measure(model, train, test, {}, temperature=1.0, **options)


def accuracies(rows: list[Row]) -> list[float]:
    return [row.value for row in rows if row.measure == "probe_accuracy"]


def test_rows_of_probes_say_what_guessing_gets_and_of_how_many() -> None:
    """However the set is cut: the most frequent class of 60 is 30 of them, in no batch of 7 the last label seen."""
    labels = torch.tensor([0] * 15 + [2] * 30 + [1] * 10 + [3] * 5)
    for test in ((TEST[0], labels), DataLoader(TensorDataset(TEST[0], labels), 7)):
        rows = [row for row in rows_of(test=test, measures=("probe_accuracy",)) if row.measure == "probe_accuracy"]
        assert {record.parameters(row.params)["guessing"] for row in rows} == {"0.5"}
        assert {record.parameters(row.params)["tested"] for row in rows} == {"60"}


def test_spread_is_bounded_and_does_not_depend_on_how_the_stream_is_cut() -> None:
    kept = []
    for size in (1, 3, 7, 50, 1000):
        some = Spread(limit=16)
        for start in range(0, 333, size):
            some.add(start, torch.arange(start, min(start + size, 333)))
        kept.append(some.values[0].tolist())
    assert all(one == source.some(16, of=333).tolist() for one in kept)
    everything = Spread(limit=333)
    everything.add(0, torch.arange(333))
    assert everything.thinned == {}
    assert some.thinned == {"samples": 16}


@pytest.mark.parametrize("labels", [torch.arange(12_000) % 100, torch.arange(12_000) // 120], ids=["in turn", "sorted"])
def test_some_samples_are_of_all_classes_whatever_order_these_come_in(labels: Tensor) -> None:
    """As a random choice has them: of 100 classes 2,048 samples have about 20 each."""
    chosen = source.some(2048, of=len(labels))
    assert len(chosen.unique()) == 2048
    counts = labels[chosen].bincount(minlength=100)
    expected = 2048 / 100
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert 60 < chi2 < 145  # of 99 degrees of freedom, shrunk by a sixth: drawn without replacement
    halves = torch.zeros(len(labels), dtype=torch.bool)
    halves[source.some(6000, of=len(labels))] = True
    assert int(labels[halves].bincount(minlength=100).min()) > 30


WRAPS = {
    "tensors": lambda pair: pair,
    "dataset": lambda pair: TensorDataset(*pair),
    "loader": lambda pair: DataLoader(TensorDataset(*pair), 17),
}


@pytest.mark.parametrize("kind", WRAPS)
@pytest.mark.parametrize("probe", ["logistic", "logistic-grid", "logistic-smooth", "logistic-standard"])
def test_probes_are_the_same_from_held_features_and_from_passes_over_the_net(
    kind: str, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"measures": ("probe_accuracy", "effective_depth"), "probes": (probe,)}
    held = rows_of(**options)
    assert max(accuracies(held)) > 0.5, "chance is 0.25"
    monkeypatch.setattr(collect, "HELD", 0)
    assert rows_of(WRAPS[kind](TRAIN), **options) == held


def test_a_stream_of_unknown_length_is_probed_in_its_own_order() -> None:
    found = accuracies(rows_of(DataLoader(Endless(TRAIN), 32), measures=("probe_accuracy",), probes=("logistic",)))
    assert max(found) > 0.5
    with pytest.raises(InputError, match="any order"):
        rows_of(DataLoader(Endless(TRAIN), 32), measures=("probe_accuracy",), probes=("logistic-grid",))


def test_flatten_reads_every_activation_and_rows_say_so() -> None:
    rows = rows_of(measures=("probe_accuracy",), probes=("logistic", "logistic-flatten"))
    views = {row.params.split(",")[0]: row.view for row in rows if row.layer == "stem"}
    assert views == {"probe=logistic": "pool2", "probe=logistic-flatten": "flatten"}
    assert [row.depth for row in rows] == 2 * list(range(1, 9))


def test_a_weak_penalty_reads_what_varies_little_and_is_scikit_learns(gen: torch.Generator) -> None:
    small = torch.ones(SIZE * SIZE)
    small[0] = 1e-3  # of the one pixel that tells classes apart
    splits = []
    for count in (1000, 200):
        x = torch.randn(count, 1, SIZE, SIZE, generator=gen)
        splits.append((x, (x[:, 0, 0, 0] > 0).long()))
    with torch.random.fork_rng(devices=[]):
        net = Stretched(small, torch.zeros_like(small))
    options = {
        "taps": (nets.Tap("first"), nets.Tap("head")),
        "measures": ("probe_accuracy",),
        "probes": ("ridge", "ridge-weak"),
    }
    rows = measure.measure(net, *splits, {}, temperature=1.0, **options)
    found = {row.params.partition(",guessing")[0]: row.value for row in rows if row.layer == "first"}
    (x, labels), (unseen, truth) = ((images.flatten(1) * small, labels) for images, labels in splits)
    for penalty, kind in ((1e-3, "ridge"), (1e-8, "ridge-weak")):
        mean = float(x.double().var(0, correction=0).mean()) * len(x)
        other = RidgeClassifier(alpha=penalty * mean).fit(x.double().numpy(), labels.numpy())
        score = other.score(unseen.double().numpy(), truth.numpy())
        assert found.pop(f"probe={kind},penalty={penalty:g}") == pytest.approx(score, abs=1e-9)
        assert (score > 0.9) == (kind == "ridge-weak")
    assert not found


class Stretched(torch.nn.Module):
    """Two layers of which the first gives every feature another size and place."""

    def __init__(self, size: torch.Tensor, place: torch.Tensor) -> None:
        super().__init__()
        self.first, self.head = torch.nn.Linear(SIZE * SIZE, SIZE * SIZE), torch.nn.Linear(SIZE * SIZE, CLASSES)
        with torch.no_grad():
            self.first.weight.copy_(size.diag())
            self.first.bias.copy_(place)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.first(x.flatten(1)))


def test_standardised_probes_see_neither_size_nor_place_and_are_those_of_scikit_learns_scaler() -> None:
    taps = (nets.Tap("first"), nets.Tap("head"))
    spread = torch.logspace(-2, 4, SIZE * SIZE)
    found = {}
    for probe in ("logistic", "logistic-standard"):
        for name, size in (("even", torch.ones_like(spread)), ("stretched", spread)):
            with torch.random.fork_rng(devices=[]):
                net = Stretched(size, 100 * size - 99)
            rows = measure.measure(
                net, TRAIN, TEST, {}, temperature=1.0, taps=taps, measures=("probe_accuracy",), probes=(probe,)
            )
            found[probe, name] = rows[0].value
    assert found["logistic-standard", "stretched"] == found["logistic-standard", "even"]
    assert found["logistic", "stretched"] < found["logistic-standard", "stretched"] - 0.1
    x, labels = TRAIN[0].flatten(1).numpy(), TRAIN[1]
    scaler = StandardScaler().fit(x)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))  # one batch: the order of rows is no matter
    scaled = torch.from_numpy(scaler.transform(x))[order]
    probe = probes.fit_probes(lambda: [({"first": scaled}, labels[order])], classes=CLASSES)["first"].probe
    unseen = torch.from_numpy(scaler.transform(TEST[0].flatten(1).numpy()))
    assert found["logistic-standard", "even"] == pytest.approx(float((probe.predict(unseen) == TEST[1]).double().mean()))


def test_a_grid_point_is_chosen_without_the_test_set() -> None:
    options = {"measures": ("probe_accuracy",), "probes": ("logistic-grid",), "net": "mlp"}
    chosen = [row.params for row in rows_of(**options)]
    other = (TEST[0].flip(0), TEST[1].roll(7))
    assert [row.params for row in rows_of(test=other, **options)] == chosen
    assert all("lr=" in params and "weight_decay=" in params for params in chosen)
    with pytest.raises(InputError, match="fewer than 10"):
        rows_of(labelled(1, 8), **options)


def test_probes_on_shuffled_labels_are_at_chance() -> None:
    shuffled = torch.randperm(len(TRAIN[1]), generator=torch.Generator().manual_seed(5))
    for probe in ("ridge", *probing.PROTOCOLS):
        found = accuracies(rows_of((TRAIN[0], TRAIN[1][shuffled]), measures=("probe_accuracy",), probes=(probe,)))
        assert sum(found) / len(found) < 0.45, probe


def test_beyond_a_bound_only_some_samples_are_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    measures = ("functional_rank", "neural_collapse", "accuracy", "solution_rank")
    whole = {row[:-1]: row.value for row in rows_of(measures=measures)}
    monkeypatch.setattr(collect, "KEPT", 50)
    thin = rows_of(measures=measures)
    touched = {row.params for row in thin if row[:-1] not in whole}
    assert touched == {"keep=0.99,samples=50", "part=nc4,samples=50"}
    assert all(row.value == whole[row[:-1]] for row in thin if row[:-1] in whole), "the rest is of all samples"


def test_a_label_the_net_has_no_class_for_is_said() -> None:
    with pytest.raises(InputError, match="label 4, but the net tells 4 classes apart"):
        rows_of((TRAIN[0], TRAIN[1] + 1))
