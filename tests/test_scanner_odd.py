"""Models and data as users have them: odd heads, odd layers, odd loaders. Each is measured rightly or refused by name."""

import numpy as np
import pytest
import torch
from test_scanner import CLASSES, seeded
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset

import thermocline as tc
from thermocline import geometry, measure, scanner, screening
from thermocline.measure import again, collect, detecting, source
from thermocline.nets import Tap, find_taps, named_taps
from thermocline.spec import Failure, InputError


def vectors(n: int = 90, d: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(n) * CLASSES // n  # sorted by class
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    return x + 2 * torch.eye(CLASSES, d)[labels], labels


def images(n: int = 24, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed)), torch.arange(n) % CLASSES


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, CLASSES))


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, CLASSES))


def rows(net: nn.Module, data, measures, **options) -> list[dict]:
    with torch.random.fork_rng(devices=[]):
        return tc.scan(net, data, data, measures=measures, **options).rows.to_pylist()


def test_alignment_of_a_convolution_is_of_all_images_and_patches() -> None:
    net, (x, y) = seeded(convolutional), images()
    wanted = geometry.alignment(net[0].weight, geometry.unfold_patches(x, net[0]))
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
    for data in ((x, y), (x[order], y[order])):
        found = {r["params"]: r["value"] for r in rows(net, data, ["alignment"]) if r["layer"] == "0"}
        assert found["part=max,top=15"] == pytest.approx(float(wanted.max))
        assert found["part=first,top=15"] == pytest.approx(float(wanted.first))


def test_rows_made_from_some_samples_say_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "ROWS", 36 * 5)  # five images' worth of patches
    monkeypatch.setattr(collect, "FEW", 12)
    found = {
        (r["measure"], r["layer"], r["params"]) for r in rows(seeded(convolutional), images(), ["alignment", "gradient_rank"])
    }
    assert ("alignment", "0", "part=max,top=15,samples=4") in found
    assert ("alignment", "3", "part=max,top=15,samples=12") in found
    assert ("gradient_rank", "0", "of=covariance,rtol=0.001,samples=12") in found


class OneDimensional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix, self.head = nn.Conv1d(3, 24, 3, padding=1), nn.Linear(24, 10), nn.Linear(10, CLASSES)

    def forward(self, x):
        x = self.conv(x.flatten(2)).relu()  # n, 24, 64
        return self.head(self.mix(x.mT.unflatten(1, (8, 8))).mean((1, 2)))  # n, 8, 8, 10: features last


def test_views_go_by_the_kind_of_layer() -> None:
    net, (x, _) = seeded(OneDimensional), images()
    taps = find_taps(net, lambda: net(x))
    assert [(tap.path, tap.view) for tap in taps] == [("conv", "pool2"), ("mix", "mean"), ("head", "flatten")]
    with measure.capture(net, taps) as seen:
        net(x)
    assert [tuple(value.shape) for value in seen.values()] == [(24, 48), (24, 10), (24, CLASSES)]


def test_what_can_be_read_only_once_is_refused() -> None:
    x, y = vectors()
    with pytest.raises(InputError, match="only once"):
        rows(seeded(mlp), ((x[i : i + 30], y[i : i + 30]) for i in range(0, 90, 30)), ["accuracy"])

    class Once(IterableDataset):
        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration

    with pytest.raises(InputError, match="only once"):
        rows(seeded(mlp), DataLoader(Once(), 8), ["accuracy"])

    class Stream:
        """Goes on where it was: whoever looks at a batch of it has taken that from everyone else."""

        def __init__(self) -> None:
            self.left = iter(zip(x.split(30), y.split(30)))

        def __iter__(self):
            return self.left

    with pytest.raises(InputError, match="only once"):
        rows(seeded(mlp), Stream(), ["accuracy"])


def test_batches_that_a_filter_left_empty_are_passed_over() -> None:
    x, y = vectors()
    batches = [(x[:0], y[:0]), (x[:50], y[:50]), (x[:0], y[:0]), (x[50:], y[50:])]

    class Filtered(IterableDataset):
        def __iter__(self):
            yield from batches

    wanted = rows(seeded(mlp), (x, y), ["accuracy", "loss"])
    assert rows(seeded(mlp), DataLoader(Filtered(), batch_size=None), ["accuracy", "loss"]) == wanted
    del batches[1:]
    with pytest.raises(InputError, match="gave no sample"):
        rows(seeded(mlp), DataLoader(Filtered(), batch_size=None), ["accuracy"])


def test_a_stream_over_persistent_workers_can_be_read_again() -> None:
    class Stream:
        """As of libraries that wrap a loader: its workers' iterator is one object, which begins anew."""

        def __init__(self) -> None:
            alone = {"num_workers": 1, "persistent_workers": True, "generator": torch.Generator()}
            self.loader = DataLoader(TensorDataset(*vectors()), 16, **alone)

        def __iter__(self):
            return iter(self.loader)

    assert rows(seeded(mlp), Stream(), ["accuracy"]) == rows(seeded(mlp), vectors(), ["accuracy"])


def test_a_loop_over_persistent_workers_goes_on_after_a_scan_of_its_loader() -> None:
    x, y = vectors()
    alone = {"num_workers": 1, "persistent_workers": True, "generator": torch.Generator()}
    loader = DataLoader(TensorDataset(x, y), 30, **alone)
    seen = []
    for _, labels in loader:
        seen.append(labels)
        if len(seen) == 1:
            rows(seeded(mlp), loader, ["accuracy"])
        assert len(seen) < 5, "it began anew"
    assert torch.equal(torch.cat(seen), y)


class Quantised(nn.Module):
    """Whole numbers come first among its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.zeros(3, dtype=torch.int8), requires_grad=False)
        self.body = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.is_floating_point()
        return self.body(x)


def test_inputs_are_not_cut_to_whole_numbers_where_the_first_weight_is_one() -> None:
    net, data = seeded(Quantised), vectors()
    wanted = {r["params"]: r["value"] for r in rows(net.body, data, ["loss"])}
    assert {r["params"]: r["value"] for r in rows(net, data, ["loss"])} == wanted


class Sparing(nn.Module):
    """Spares a large batch one of its layers, as experts are spared what no sample asks them for."""

    def __init__(self) -> None:
        super().__init__()
        self.expert, self.body = nn.Linear(6, 6), mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.expert(x) if len(x) < 20 else x)


def test_a_layer_that_does_not_run_in_every_pass_is_said_in_a_line() -> None:
    with pytest.raises(Failure, match="expert 0 times; leave out by pattern="):
        rows(seeded(Sparing), vectors(), ["rank"])
    assert rows(seeded(Sparing), vectors(), ["rank"], pattern="body.*")


def test_as_many_logits_as_labels_are_needed() -> None:
    x, y = vectors()
    loader = DataLoader([(x[:8], y[:8]), (x[8:], y[8:-1])], batch_size=None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="train: the net gives logits of 82 samples, and there are 81 labels"):
        rows(seeded(mlp), loader, ["accuracy"])


def test_a_net_without_values_is_said() -> None:
    net = seeded(mlp)
    net[2].to("meta")
    with pytest.raises(InputError, match=r"2\.weight has no values, as it is on the meta device"):
        tc.scan(net, vectors(), vectors())


def test_a_net_in_parallel_is_read_by_itself() -> None:
    """Each of several copies would fire a hook; of several processes all would have to scan at once."""
    net, data = seeded(mlp), vectors()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        for parallel in (nn.DataParallel(net), nn.parallel.DistributedDataParallel(net)):
            parallel.register_forward_pre_hook(lambda *_: pytest.fail("it was run in parallel"))
            assert tc.scan(parallel, data, data, measures=["rank"]).layers == ["0", "2"]
    finally:
        torch.distributed.destroy_process_group()


def test_a_batch_sampler_of_the_users_own_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = vectors(90)
    some = BatchSampler(SubsetRandomSampler(range(60, 90), generator=torch.Generator().manual_seed(2)), 8, False)
    loader = DataLoader(TensorDataset(x, y), batch_sampler=some)
    assert source.count(loader) == 30
    assert not source.indexable(loader)
    assert not source.indexable(DataLoader(TensorDataset(x.unflatten(0, (9, 10)), y.view(9, 10)), batch_size=None))
    assert source.count(DataLoader(TensorDataset(x.unflatten(0, (9, 10)), y.view(9, 10)), batch_size=None)) is None
    monkeypatch.setattr(collect, "HELD", 0)
    found = rows(seeded(mlp), loader, ["probe_accuracy"], probes=("logistic",))
    assert len(found) == 2


def test_a_loaders_own_generator_goes_on_as_if_nothing_had_drawn() -> None:
    x, y = vectors()
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(TensorDataset(x, y), 16, shuffle=True, generator=generator)
    before = generator.get_state()
    tc.scan(seeded(mlp), loader, (x, y), measures=["accuracy"])
    tc.Watch(seeded(mlp), loader)
    assert torch.equal(before, generator.get_state())


@pytest.mark.parametrize("kind", ["tensors", "stream"])
def test_a_watch_sees_every_class_of_a_sorted_set(kind: str) -> None:
    x, y = vectors(4000)

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(zip(x, y))

    with torch.random.fork_rng(devices=[]):
        watch = tc.Watch(seeded(mlp), (x, y) if kind == "tensors" else DataLoader(Stream(), 100), samples=300)
    labels = watch._sample[1]
    assert labels.unique().tolist() == [0, 1, 2, 3]
    assert 150 <= len(labels) <= 300


def test_a_watch_follows_dear_measures_and_refuses_what_it_has_no_data_for() -> None:
    watch = tc.Watch(seeded(mlp), vectors(), measures=["neural_collapse", "alignment"])
    assert any(key.startswith("neural_collapse/") for key in watch.step(0) or {})
    with pytest.raises(InputError, match="probe_accuracy needs test or other data"):
        tc.Watch(seeded(mlp), vectors(), measures=["probe_accuracy"])
    with pytest.raises(InputError, match=r"writer must have add_scalar\(.*\), which a module has not: log what step\(\) gives"):
        tc.Watch(seeded(mlp), vectors(), writer=tc)
    with pytest.raises(InputError, match="samples must be at least 1"):
        tc.Watch(seeded(mlp), vectors(), samples=0)


def test_a_watch_does_not_write_over_an_earlier_one(tmp_path) -> None:
    with tc.Watch(seeded(mlp), vectors(), directory=tmp_path / "w") as watch:
        watch.step(0)
    with pytest.raises(InputError, match="holds an earlier watch"):
        tc.Watch(seeded(mlp, 1), vectors(), directory=tmp_path / "w")


def test_a_watch_counts_the_passes_of_a_compiled_net() -> None:
    net, (x, _) = seeded(mlp), vectors()
    compiled = torch.compile(net, backend="eager")
    compiled(x)
    with tc.Watch(compiled, vectors(), every=1) as watch:
        compiled(x)
        compiled(x)
    assert watch.count == 2
    with pytest.raises(RuntimeError, match="compiled part"), tc.capture(compiled, [Tap("_orig_mod.0")]):
        compiled(x)


@pytest.mark.parametrize("what", ["net", "part", "forward"])
def test_what_is_compiled_within_a_net_is_compiled_once_and_the_measuring_never(what: str) -> None:
    net, (x, y), graphs, runs = seeded(lambda: nn.Sequential(mlp())), vectors(), [], []

    def backend(graph, inputs):
        graphs.append([getattr(node.target, "__name__", "") for node in graph.graph.nodes if "call" in node.op])
        return lambda *values: runs.append(1) or graph(*values)

    if what == "net":
        net.compile(backend=backend)
    elif what == "part":
        net[0] = torch.compile(net[0], backend=backend)
    else:
        net[0].forward = torch.compile(net[0].forward, backend=backend)
    with tc.Watch(net, (x, y), every=2) as watch:
        for _ in range(4):
            net(x)
    rows(net, (x, y), ["all"])
    net(x)
    assert (watch.count, len(runs)) == (4, 5)
    assert graphs == [["linear", "relu", "linear"]], "the net, whole"


def test_a_sweep_does_not_go_beyond_the_format_of_the_net() -> None:
    x, y = vectors()
    found = rows(seeded(mlp).bfloat16(), (x, y), ["rank", "solution_rank"])
    assert {r["params"] for r in found} == {"of=covariance,rtol=0.001", "of=features,rtol=0.1", "of=features,rtol=0.01"}


class TwoFormats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 8).half(), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(1e6 * self.body(x.half()).float())  # more than a half can hold


def test_features_are_held_in_a_format_that_has_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    net, data = seeded(TwoFormats), vectors()
    held = rows(net, data, ["probe_accuracy"], probes=("logistic", "logistic-grid"))
    monkeypatch.setattr(collect, "HELD", 0)
    assert rows(net, data, ["probe_accuracy"], probes=("logistic", "logistic-grid")) == held


def blocks() -> nn.Module:
    return nn.Sequential(nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8)), nn.ReLU(), nn.Linear(8, CLASSES))


def normed() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, CLASSES))


def spectral() -> nn.Module:
    norm = nn.utils.parametrizations.spectral_norm  # whose estimate of the norm moves on when the weight is read in training
    return nn.Sequential(norm(nn.Linear(6, 8)), nn.ReLU(), norm(nn.Linear(8, CLASSES)))


def test_a_weight_that_is_computed_is_left_as_it_was() -> None:
    net, (x, y) = seeded(spectral).train(), vectors()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    rows(net, (x, y), ["all"])
    screening.features_of(net, (x, y))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())

    def trained(watch: tc.Watch | None, net: nn.Module) -> dict[str, torch.Tensor]:
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            if watch is not None:
                watch.step(step)
        return net.state_dict()

    alone, watched = trained(None, seeded(spectral)), seeded(spectral)
    with_it = trained(tc.Watch(watched, (x, y), every=1, measures=["accuracy", "alignment", "neural_collapse"]), watched)
    assert all(torch.equal(value, with_it[name]) for name, value in alone.items())


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(input=self.body(x).detach().relu())


def frozen_forward() -> nn.Module:
    net = mlp()
    net.forward = torch.no_grad()(net.forward)
    return net


@pytest.mark.parametrize(
    ("build", "taps", "with_gradient"),
    [
        (blocks, (Tap("0"), Tap("0.1"), Tap("2")), {"2"}),
        (normed, (), {"2"}),
        (Detached, (), {"head"}),
        (frozen_forward, (), set()),
    ],
)
def test_layers_without_a_gradient_have_no_row_of_one(build, taps, with_gradient: set[str]) -> None:
    found = rows(seeded(build), vectors(), ["all"], taps=taps)
    assert {r["layer"] for r in found if r["measure"] == "gradient_rank"} == with_gradient
    assert {r["measure"] for r in found} >= {"rank", "neural_collapse", "alignment"}


def test_a_net_that_cannot_be_differentiated_is_measured_without_its_gradients() -> None:
    class Overwriting(Detached):
        def forward(self, x):
            logits = self.head(h := self.body(x).relu())
            h.zero_()
            return logits

    with pytest.warns(UserWarning, match=r"gradient_rank is left out, as .* no gradients: .* inplace .* version 0 instead$"):
        found = rows(seeded(Overwriting), vectors(), ["rank", "alignment", "gradient_rank"])
    plain = rows(seeded(Overwriting), vectors(), ["rank", "alignment"])
    assert [{**row, "run": ""} for row in found] == [{**row, "run": ""} for row in plain]


def test_inference_mode_changes_nothing() -> None:
    net = seeded(mlp)
    plain = rows(net, vectors(), ["all"])
    with torch.inference_mode():
        assert rows(net, vectors(), ["all"]) == plain


def test_a_net_made_in_inference_mode_has_all_rows_but_those_of_gradients() -> None:
    plain = rows(seeded(mlp), vectors(), ["all"])
    with torch.inference_mode():
        net = seeded(mlp)
    found = [{**row, "run": ""} for row in rows(net, vectors(), ["all"])]
    assert found == [{**row, "run": ""} for row in plain if row["measure"] != "gradient_rank"]


def test_wide_inputs_are_read_through_a_subset_that_rows_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "COLUMNS", 5)
    monkeypatch.setattr(collect, "WIDEST", 5)
    data = vectors(), vectors(seed=1)
    asked = ["alignment", "neural_collapse", "auroc"]
    with pytest.warns(UserWarning, match="the head 2 reads 8 features, more than 5: residual, vim, react"):
        found = tc.scan(seeded(mlp), *data, {"other": data}, measures=asked).rows.to_pylist()
    assert {r["params"] for r in found if r["measure"] == "alignment"} >= {"part=max,top=15,subset=5"}
    assert {r["view"] for r in found if r["measure"] == "auroc"} == {"input/5"}
    assert any("part=nc3,subset=5" in r["params"] for r in found)


def test_missing_test_data_leave_out_what_they_are_needed_for() -> None:
    net, data = seeded(mlp), vectors()
    found = {r["measure"] for r in tc.scan(net, data, None, {"other": (data, None)}).rows.to_pylist()}
    assert {"rank", "neural_collapse", "accuracy"} <= found
    assert not found & {"probe_accuracy", "ood_drop", "auroc", "orthodev"}


def pooled() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), nn.ReLU(), nn.Conv2d(6, CLASSES, 1), nn.Flatten())


def test_detectors_that_dead_units_leave_nothing_to_are_left_out(tmp_path) -> None:
    net = seeded(mlp)
    net[0].bias.data[3:] = -100.0  # 3 of 8 units are alive, and ViM takes 4 axes
    found = tc.scan(net, vectors(), vectors(seed=1), ood={"o": torch.randn(40, 6, generator=torch.Generator().manual_seed(2))})
    detectors = {row["params"].split(",")[0] for row in found.rows.to_pylist() if row["measure"] == "auroc"}
    assert not detectors & {"detector=vim", "detector=residual"}
    assert {"detector=neco", "detector=msp", "detector=knn"} <= detectors
    assert found.report(tmp_path / "report.html").exists()


def test_heads_of_other_kinds() -> None:
    found = rows(seeded(pooled), images(), ["neural_collapse", "rank"])
    assert {r["layer"] for r in found} == {"0", "3"}
    assert len([r for r in found if r["measure"] == "neural_collapse"]) == 8
    alone = rows(seeded(lambda: nn.Sequential(nn.Linear(6, CLASSES))), vectors(), ["effective_depth"])
    assert [r["value"] for r in alone] == [1.0]


def test_a_class_without_training_samples_is_said_and_no_rank_deficit() -> None:
    train, test = vectors(), vectors()
    few = tuple(part[train[1] < CLASSES - 1] for part in train)
    with pytest.warns(UserWarning, match=f"test has label {CLASSES - 1}, which no sample of train has"):
        result = tc.scan(seeded(mlp), few, test, measures=["solution_rank", "singular_value"])
    assert (result.summary.classes, result.summary.unmet) == (CLASSES - 1, 1)
    whole = tc.scan(seeded(mlp), train, few, measures=["solution_rank", "singular_value"])
    assert (whole.summary.classes, whole.summary.unmet) == (CLASSES, 0)
    assert not any("classes=" in params for params in whole.rows["params"].to_pylist())
    assert not any("classes" in key for key in tc.Watch(seeded(mlp), few).step(0) or {})


def test_orthodev_is_of_the_classes_that_training_has() -> None:
    net, (x, y) = seeded(mlp), vectors()
    few, other = (x[y < CLASSES - 1], y[y < CLASSES - 1]), torch.randn(40, 6, generator=torch.Generator().manual_seed(2))
    found = {r["params"]: r["value"] for r in tc.scan(net, few, few, ood={"o": other}, measures=["orthodev"]).rows.to_pylist()}
    with torch.no_grad():
        read, mean = net[:2](few[0]), net[:2](other).mean(0)
    means = torch.stack([read[few[1] == c].mean(0) for c in range(CLASSES - 1)])
    for centered in (False, True):
        wanted = float(geometry.orthodev(means, mean, centered=centered))
        assert found[f"centered={str(centered).lower()}"] == pytest.approx(wanted, rel=1e-5)


def test_compression_by_definition() -> None:
    """Of a net that is always right: the fewest directions it stays right with, how often it then is on other samples, and
    how many those need."""
    net = seeded(mlp)
    net[0].weight.data[3:] *= 1e-3
    net[0].bias.data[3:] *= 1e-3
    with torch.no_grad():
        splits = [(x, net(x).argmax(1)) for x in (vectors()[0], vectors(60, seed=1)[0])]
        splits[1] = splits[1][0], splits[1][1].roll(1)  # and there seldom
        (h, y), (other, wanted) = ((net[:2](x).double(), labels) for x, labels in splits)
        weight, bias = net[2].weight.double(), net[2].bias.double()
    axes = torch.linalg.svd(h - h.mean(0)).Vh

    def right(x: torch.Tensor, labels: torch.Tensor, k: int) -> float:
        kept = h.mean(0) + (x - h.mean(0)) @ axes[:k].T @ axes[:k]
        return ((kept @ weight.T + bias).argmax(1) == labels).double().mean().item()

    k = next(k for k in range(9) if right(h, y, k) >= 0.99)
    least = next(k for k in range(9) if right(other, wanted, k) >= 0.99 * right(other, wanted, 8))
    assert 0 < k < 8
    found = {
        (r["split"], r["params"].split(",")[0]): r["value"]
        for r in tc.scan(net, *splits, measures=["compression"]).rows.to_pylist()
    }
    said = {("train", "part=dimensions"): k, ("train", "part=share"): k / 8, ("test", "part=accuracy"): right(other, wanted, k)}
    assert found == pytest.approx({**said, ("test", "part=dimensions"): least, ("test", "part=share"): least / 8})


@pytest.mark.parametrize(("by", "so"), [(0.0, True), (0.01, True), (-0.01, True), (0.05, False), (-0.05, False)])
def test_a_head_gives_its_logits_up_to_the_rounding_of_a_half(gen: torch.Generator, by: float, so: bool) -> None:
    weight, bias, h = (torch.randn(size, generator=gen) for size in ((CLASSES, 6), (CLASSES,), (20, 6)))
    logits = h @ weight.T + bias
    assert detecting.reproduces(weight, bias, h, logits + by * logits.abs().max()) == so


class Scaled(nn.Module):
    """Halves its logits in place, so that they are no longer what its head gives."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = nn.Linear(6, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.fc(self.body(x).relu()).mul_(0.5)


def test_what_needs_the_head_is_left_out_with_a_word(tmp_path) -> None:
    data = vectors(), vectors(seed=1)
    said = "logits are not fc.weight times its input, plus its bias, as where they are scaled after it or read at another token"
    with pytest.warns(UserWarning, match=f"{said}: residual, vim, react, ash, nci and compression left out"):
        result = tc.scan(seeded(Scaled), *data, {"other": vectors(seed=2)[0]}, measures=["auroc", "compression"])
    assert said in result.report(tmp_path / "page.html").read_text()
    with pytest.warns(UserWarning, match=f"{said}: compression left out"):
        tc.scan(seeded(Scaled), *data, measures=["compression"])
    tc.scan(seeded(Scaled), *data, {"other": vectors(seed=2)[0]}, measures=["accuracy", "rank"])
    tc.scan(seeded(pooled), images(), images(), measures=["compression"])


class Masked(nn.Module):
    """Adds an infinite mask to its scores, as attention does."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x, mask):
        return self.head((self.body(x) + mask).softmax(1))


def test_an_infinite_mask_is_an_input_like_any_other() -> None:
    x, y = vectors()
    mask = torch.zeros_like(x).masked_fill_(torch.arange(6) > 3, -float("inf"))
    assert rows(seeded(Masked), ((x, mask), y), ["rank"])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_in_the_inputs_is_said(value: float) -> None:
    x, y = vectors()
    x[0, 0] = value
    with pytest.raises(Failure, match="NaN or infinite values on train, first in its inputs"):
        rows(seeded(mlp), (x, y), ["rank"])
    with pytest.raises(Failure, match="on o/test, first in its inputs"):
        tc.scan(seeded(mlp), vectors(), vectors(), {"o": x})
    net = seeded(mlp)
    nn.init.constant_(net[0].bias, float("inf"))
    with pytest.raises(Failure, match="on train, first in the output of 0:"):
        rows(net, vectors(), ["rank"])
    with pytest.raises(Failure, match="NaN or infinite values on these data"):
        screening.features_of(net, vectors())


def test_other_things_that_are_not_what_is_needed() -> None:
    net, data = seeded(mlp), vectors()
    net.taps = "something else"
    assert rows(net, data, "accuracy")
    with pytest.raises(InputError, match=r"made by nets.Tap\(path"):
        rows(net, data, ["rank"], taps=(0, 2))
    with pytest.raises(InputError, match=r"torch.nn.Module, got a function"):
        tc.scan(lambda x: x, data, data)
    with pytest.raises(InputError, match=r"logits= is a function, .* got a str"):
        tc.scan(net, data, data, logits="scores")
    both = rows(seeded(mlp), data, ["alignment", "rank"], taps=(Tap("0", at="input"), Tap("0"), Tap("2")))
    assert {r["depth"] for r in both if r["measure"] == "rank"} == {1, 2, 3}


class Attending(nn.Module):
    """A stock transformer block over eight places, its head on the mean."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.embed, self.batch_first = nn.Conv1d(6, 8, 1), batch_first
        self.attend = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = self.embed(x[:, :, None].expand(-1, -1, 5)).mT  # n, 5, 8
        x = x if self.batch_first else x.transpose(0, 1)
        x = x + self.attend(x, x, x, need_weights=False)[0]
        return self.head((x if self.batch_first else x.transpose(0, 1)).mean(1))


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_is_a_layer_and_its_projection_none(batch_first: bool) -> None:
    net, data = seeded(lambda: Attending(batch_first)), vectors()
    found = rows(net, data, ["all"])
    assert list(dict.fromkeys(r["layer"] for r in found if r["measure"] == "rank")) == ["embed", "attend", "head"]
    with torch.no_grad():
        x = net.embed(data[0][:, :, None].expand(-1, -1, 5)).mT
        x = x if batch_first else x.transpose(0, 1)
        seen = net.attend(x, x, x)[0]
        features = (seen if batch_first else seen.transpose(0, 1)).mean(1).double()
    wanted = torch.linalg.svdvals(features - features.mean(0))
    values = [r["value"] for r in found if (r["measure"], r["layer"]) == ("singular_value", "attend")]
    assert values[:4] == pytest.approx(wanted[:4].tolist(), rel=1e-4)


def test_a_stock_encoder_is_read_at_every_attention() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.head = nn.Linear(1, 8), nn.Linear(8, CLASSES)
            block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)

        def forward(self, x):
            return self.head(self.encoder(self.up(x[:, :, None])).mean(1))

    net = seeded(Encoder)
    inside = [f"encoder.layers.{i}.{part}" for i in range(2) for part in ("self_attn", "linear1", "linear2")]
    found = rows(net, vectors(), ["rank"])
    assert list(dict.fromkeys(r["layer"] for r in found)) == ["up", *inside, "head"]
    named = rows(net, vectors(), ["rank"], taps=["encoder.layers.0", Tap("encoder.layers.1", view="cls"), "head"])
    assert {r["layer"]: r["view"] for r in named} == {"encoder.layers.0": "mean", "encoder.layers.1": "cls", "head": "flatten"}
    first = rows(net, vectors(), ["rank"], taps=["encoder.layers.0", "head"], tokens="cls")
    assert {r["view"] for r in first} == {"cls", "flatten"}
    with pytest.raises(InputError, match="out_proj does not run by itself"):
        rows(net, vectors(), ["rank"], taps=["encoder.layers.0.self_attn.out_proj", "head"])
    with pytest.raises(InputError, match=r"did you mean 'head'"):
        rows(net, vectors(), ["rank"], taps=["encoder.layers.0", "haed"])


def test_a_stock_encoder_that_hides_padding_is_read_as_in_training() -> None:
    """Torch's quick path for evaluation drops padding from its tensors, and a hook cannot read what is left."""

    class Padded(nn.Module):
        def __init__(self, nested: bool) -> None:
            super().__init__()
            self.up, self.head = nn.Linear(1, 8), nn.Linear(8, CLASSES)
            block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=nested)

        def forward(self, x, hidden):
            return self.head(self.encoder(self.up(x[:, :, None]), src_key_padding_mask=hidden).mean(1))

    x, labels = vectors()
    data = ((x, torch.arange(6) >= 3 + torch.arange(90)[:, None] % 4), labels)
    found, plain = (rows(seeded(lambda nested=nested: Padded(nested)), data, ["all"]) for nested in (True, False))
    assert found == plain
    assert torch.backends.mha.get_fastpath_enabled()


def test_layers_within_windows_are_left_out_and_said() -> None:
    class Windowed(nn.Module):
        """Two windows of three tokens, each a sample to the layer inside them."""

        def __init__(self) -> None:
            super().__init__()
            self.up, self.inside, self.head = nn.Linear(1, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

        def forward(self, x):
            windows = self.up(x[:, :, None]).reshape(2 * len(x), 3, 8)
            return self.head(self.inside(windows).reshape(len(x), 6, 8).mean(1))

    with pytest.warns(UserWarning, match="layers left out: inside. Their outputs do not go sample by sample"):
        found = rows(seeded(Windowed), vectors(), ["rank"])
    assert list(dict.fromkeys(r["layer"] for r in found)) == ["up", "head"]


class Layered(nn.Module):
    """Torch's own encoder, tokens or samples first."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.up, self.head, self.batch_first = nn.Linear(1, 8), nn.Linear(8, CLASSES), batch_first
        block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)

    def forward(self, x):
        x = self.up(x[:, :, None] if self.batch_first else x.T[:, :, None])
        return self.head(self.encoder(x).mean(1 if self.batch_first else 0))


@pytest.mark.parametrize("tokens", [6, 7, 8])  # eight samples are looked at to find layers
def test_whether_tokens_or_samples_come_first_changes_no_number(tokens: int) -> None:
    data = vectors(d=tokens)
    for options in ({}, {"taps": ["up", "encoder.layers.0", "encoder.layers.1.linear1", "head"]}):
        found = [rows(seeded(lambda first=first: Layered(first)), data, ["all"], **options) for first in (True, False)]
        for one, other in zip(*found, strict=True):
            assert (one["layer"], one["view"], one["params"]) == (other["layer"], other["view"], other["params"])
            assert one["value"] == pytest.approx(other["value"], rel=1e-3, abs=1e-4), one
    whole = rows(seeded(lambda: Layered(True)), data, ["rank"])
    for size in (1, tokens, 8):  # the last batch of 90 samples is smaller
        batched = rows(seeded(lambda: Layered(False)), DataLoader(TensorDataset(*data), size), ["rank"])
        for one, other in zip(batched, whole, strict=True):
            assert [one[key] for key in ("layer", "params", "value")] == [other[key] for key in ("layer", "params", "value")]


def test_as_many_tokens_or_windows_as_samples_are_not_taken_for_them() -> None:
    data = vectors(6, d=6)
    taps = scanner._taps(seeded(lambda: Layered(False)), data)
    assert [tap.tokens_first for tap in taps] == [True, *(False, True, True) * 2, False], "attention is turned when it is read"

    class Doubled(Layered):
        """Every sample twice, side by side, as beams are."""

        def forward(self, x):
            x = self.up(x.T[:, :, None]).repeat_interleave(2, 1)
            return self.head(self.encoder(x).mean(0)[::2])

    with pytest.warns(UserWarning, match="layers left out: encoder.layers.0.self_attn, .*do not go sample by sample"):
        assert [tap.path for tap in scanner._taps(seeded(lambda: Doubled(False)), data)] == ["up", "head"]


def test_tokens_taken_for_samples_are_refused_by_name() -> None:
    class Merged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.head = nn.Linear(1, 8), nn.Linear(8, CLASSES)

        def forward(self, x):
            return self.head(self.up(x.reshape(-1, 1)).reshape(len(x), 6, 8).mean(1))

    for options in ({}, {"taps": ["up", "head"]}):
        with pytest.raises(InputError, match=r"output of up is of shape \(48, 8\) for 8 samples, of which none is theirs"):
            rows(seeded(Merged), vectors(), ["rank"], **options)


def test_the_last_tap_is_the_head_and_none_is_named_twice() -> None:
    net, data = seeded(lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, CLASSES))), vectors()
    for taps in (["2", "0"], [Tap("2"), Tap("0")]):
        with pytest.raises(InputError, match=rf"last of taps must be the head: 0 gives 9 values a sample, .* {CLASSES} logits"):
            rows(net, data, ["rank"], taps=taps)
        with pytest.raises(InputError, match="last of taps must be the head"):
            scanner.Watch(net, data, taps=taps)
    with pytest.raises(InputError, match="names a layer twice"):
        rows(net, data, ["rank"], taps=["0", "0", "2"])


def test_other_data_without_a_name_of_their_own_are_refused() -> None:
    with pytest.raises(InputError, match="ood maps names to data"):
        measure.check_sets(vectors()[0])
    for name in ("", "test"):  # reports would take probes of "test" for those of the net's own test set
        with pytest.raises(InputError, match=f"cannot be called '{name}'"):
            measure.check_sets({name: vectors()})


class Recurrent(nn.Module):
    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(2, 3))  # of the net itself: no layer
        self.read = nn.LSTM(1, 7, batch_first=batch_first)
        self.norm, self.batch_first, self.head = nn.LayerNorm([6, 7]), batch_first, nn.Linear(7, CLASSES)

    def forward(self, x):
        x = x[:, :, None]
        x = self.read(x if self.batch_first else x.transpose(0, 1))[0]
        return self.head(self.norm(x if self.batch_first else x.transpose(0, 1)).mean(1))


@pytest.mark.parametrize("batch_first", [True, False])
def test_layers_of_other_kinds_are_left_out_with_a_warning_and_can_be_named(batch_first: bool) -> None:
    net = seeded(lambda: Recurrent(batch_first))
    with pytest.warns(UserWarning, match=r"left out: read \(LSTM\)\. .*taps=") as said:
        assert {r["layer"] for r in rows(net, vectors(), ["rank"])} == {"head"}
    assert len(said) == 1
    with torch.no_grad():
        assert scanner.head_of(net, vectors()).path == "head", "which needs no warning"
    named = rows(net, vectors(), ["rank", "probe_accuracy"], taps=["read", "head"])
    assert {(r["layer"], r["view"]) for r in named} == {("read", "mean"), ("head", "flatten")}


def test_a_layer_whose_weight_is_used_past_it_is_left_out_with_a_warning() -> None:
    class Past(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.unused = nn.Embedding(6, 8), nn.Linear(8, 6)
            self.unused.weight = self.words.weight  # read by the embedding alone
            self.body, self.past, self.turned = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8)
            self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, CLASSES)

        def forward(self, x):
            x = (self.body(x) + self.words(x.argmax(1))).to(self.unused.weight.dtype)
            x = nn.functional.linear(x, self.past.weight, self.past.bias).relu() @ self.turned.weight.T
            x = x[:, None]
            return self.head(self.attention(x, x, x)[0][:, 0])

    with pytest.warns(UserWarning, match=r"left out: past, turned\. The net uses their weights and does not call them") as said:
        assert {r["layer"] for r in rows(seeded(Past), vectors(), ["rank"])} == {"body", "attention", "head"}
    assert len(said) == 1


def test_a_layer_that_shares_the_weight_of_one_that_is_called_is_not_missed(recwarn: pytest.WarningsRecorder) -> None:
    class Auxiliary(Detached):
        def __init__(self) -> None:
            super().__init__()
            self.aux = nn.Linear(self.head.in_features, CLASSES)  # used in training only
            self.aux.weight = self.head.weight

    assert "aux" not in {r["layer"] for r in rows(seeded(Auxiliary), vectors(), ["rank"])}
    assert not recwarn.list


def test_plain_paths_are_viewed_as_layers_found_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermocline.nets.tap.WIDEST", 40)
    x = images()[0]
    net = seeded(lambda: nn.Sequential(convolutional()[:2], nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, CLASSES)))
    taps = named_taps(net, lambda: net(x), ["0", "1", "2", "3"])
    assert [(tap.path, tap.view, tap.subset) for tap in taps] == [
        ("0", "pool2", None), ("1", "pool2", None), ("2", "flatten", 40), ("3", "flatten", None),
    ]  # fmt: skip
    one = seeded(OneDimensional)
    assert [tap.view for tap in named_taps(one, lambda: one(x), ["conv", "mix"])] == ["pool2", "mean"]
    net = seeded(lambda: nn.Sequential(mlp(), nn.Tanh()))
    with pytest.raises(InputError, match="from thermocline.nets import Tap"):
        rows(net, vectors(), ["rank"])
    assert {r["layer"] for r in rows(net, vectors(), ["rank"], taps=["0.0", "0"])} == {"0.0", "0"}


class InPlace(nn.Module):
    """Normalises what it is given where it lies, as much code does that never sees a batch twice."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x.sub_(0.5).div_(2.0))


def test_a_net_that_changes_its_inputs_in_place_changes_no_data() -> None:
    class Aside(InPlace):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net((x - 0.5) / 2.0)

    net, (x, y) = seeded(mlp), vectors()
    before, measures = x.clone(), ["loss", "rank", "gradient_rank", "alignment", "probe_accuracy"]
    found, wanted = (rows(kind(net), (x, y), measures, name="net", probes=("ridge", "logistic")) for kind in (InPlace, Aside))
    assert torch.equal(x, before)
    assert [row["value"] for row in found] == [row["value"] for row in wanted]
    watch = tc.Watch(InPlace(net), (x, y), every=1)
    assert watch.step(1) == watch.step(2)


class OfTokens(nn.Module):
    """Logits of every token, of which the mean counts, or the last, as in a decoder that classifies sequences."""

    def __init__(self, *, last: bool) -> None:
        super().__init__()
        self.embed, self.body, self.score = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES, bias=False)
        self.last = last

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.score(self.body(self.embed(tokens)).relu())
        return logits[:, -1] if self.last else logits.mean(1)


@pytest.mark.parametrize("taps", [(), ("body", "score")])
@pytest.mark.parametrize("last", [False, True])
def test_a_head_that_reads_tokens_is_measured_where_it_gives_the_logits(last: bool, taps: tuple[str, ...]) -> None:
    net = seeded(lambda: OfTokens(last=last)).eval()
    tokens, labels = torch.randint(20, (60, 5), generator=torch.Generator().manual_seed(0)), torch.arange(60) % CLASSES
    result = tc.scan(net, (tokens, labels), (tokens, labels), ood={"o": tokens}, taps=taps)
    assert result.layers == ["body", "score"]
    found = {row["params"] for row in result.rows.to_pylist() if row["measure"] == "auroc"}
    assert any("detector=neco," in params for params in found)
    assert any("detector=vim," in params for params in found)
    read = net.body(net.embed(tokens)).relu().detach()
    wanted = geometry.neural_collapse(read[:, -1] if last else read.mean(1), labels, net.score.weight.detach()).nc3
    (nc3,) = (row["value"] for row in result.rows.to_pylist() if row["params"].startswith("part=nc3"))
    assert nc3 == pytest.approx(float(wanted), rel=1e-4)


def test_a_head_read_at_another_token_in_each_sample_is_refused_or_said() -> None:
    class Padded(OfTokens):
        """The last token that is not 0, as transformers' decoders have it."""

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            every = self.score(self.body(self.embed(tokens)).relu())
            return every[torch.arange(len(tokens)), (tokens != 0).sum(1) - 1]

    class Third(OfTokens):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.score(self.body(self.embed(tokens)).relu())[:, 2]

    net = seeded(lambda: Padded(last=True)).eval()
    tokens, labels = torch.randint(1, 20, (240, 5), generator=torch.Generator().manual_seed(0)), torch.arange(240) % CLASSES
    tokens[120:, 3:] = 0
    right = (tokens.flip(0), labels)
    with pytest.raises(InputError, match=r"score gives the logits, at another token in each sample.*pad on the left"):
        tc.scan(net, (torch.cat([tokens[:4], tokens[-4:]]), labels[:8]), None, measures=["rank"])
    with pytest.raises(InputError, match=r"score gives the logits, at token 2 of each sample.*pad on the left"):
        tc.scan(net, right, None, measures=["rank"])
    with pytest.raises(InputError, match=r"score gives the logits, at token 2 of each sample, not the first or last"):
        tc.scan(seeded(lambda: Third(last=True)).eval(), (tokens, labels), None, measures=["rank"])
    with pytest.warns(UserWarning, match=r"or read at another token: residual, vim.* left out"):  # the first have no padding
        tc.scan(net, (tokens, labels), (tokens, labels), ood={"o": tokens}, measures=["auroc"])


def test_a_net_that_ends_in_a_softmax_is_told_to_leave_it_out() -> None:
    data, net = vectors(), seeded(mlp)
    soft, logarithmic = nn.Sequential(*net, nn.Softmax(1)), nn.Sequential(*net, nn.LogSoftmax(1))
    for taps in ((), ["0", "2"]):
        with pytest.raises(InputError, match="^the net returns probabilities, not logits: scan it without the softmax"):
            tc.scan(soft, data, data, taps=taps)
    with pytest.raises(InputError, match="^the net returns a log_softmax, which no layer gives: scan it without that, or"):
        tc.scan(logarithmic, data, data)


def test_a_net_whose_own_logits_sum_to_one_is_scanned() -> None:
    """As of nets fitted by squares to smoothed labels: a layer gives them, and no softmax."""
    net = seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, CLASSES)))
    with torch.no_grad():
        net[2].weight.zero_()
        net[2].bias.fill_(1 / CLASSES)
    assert rows(net, vectors(), ["accuracy"])


@pytest.mark.parametrize("names", [list, tuple, np.array])
def test_labels_that_are_names_are_refused_by_the_first(names) -> None:
    x, y = vectors()
    words = names([f"class {label}" for label in y.tolist()])
    told = "^(train: )?labels must be one whole number a sample, got 'class 0': number the classes from 0 on$"
    for data in ((x, words), list(zip(x, words, strict=True))):
        with pytest.raises(InputError, match=told):
            tc.scan(seeded(mlp), data if isinstance(data, tuple) else DataLoader(data, 8), vectors())  # type: ignore[arg-type]


def test_a_net_with_one_logit_is_told_of_the_others() -> None:
    x, y = vectors()
    with pytest.raises(InputError, match="label 3, but the net gives one logit, not one for each class$"):
        tc.scan(seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 1))), (x, y), (x, y))
