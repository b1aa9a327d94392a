"""The one matrix that all probes are trained in, against a stock optimiser for each tap and grid point; the recorded step."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from test_probes import plain_loop
from torch import Tensor

from thermocline import probes
from thermocline.probes import bank, layout, learner

Batch = tuple[dict[str, Tensor], Tensor]
WIDTHS = {
    "unequal": {"a": 5, "b": 33, "c": 16, "d": 2, "e": 70},
    "equal": {"a": 16, "b": 16, "c": 16},
    "both, in no order": {"a": 20, "b": 3, "c": 20, "d": 40, "e": 3, "f": 64},
    "one": {"a": 7},
}
GRID = [(0.02, 0.0), (0.02, 0.3), (0.2, 0.0), (0.2, 0.3)]
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def tapped(widths: dict[str, int], n: int = 53, c: int = 5, dtype: torch.dtype = torch.float64) -> Batch:
    """Noisy labelled clouds, the taps of which are slices of one matrix."""
    gen = torch.Generator().manual_seed(7)
    y = torch.randint(c, (n,), generator=gen)
    centres = torch.randn(c, sum(widths.values()), generator=gen, dtype=dtype)
    x = centres[y] + torch.randn(n, sum(widths.values()), generator=gen, dtype=dtype)
    return dict(zip(widths, x.split(list(widths.values()), 1))), y


def stream(data: Batch, size: int) -> Iterator[Batch]:
    taps, y = data
    for i in range(0, len(y), size):
        yield {tap: x[i : i + size] for tap, x in taps.items()}, y[i : i + size]


def reference(x: Tensor, y: Tensor, point: tuple[float, float], *, batch: int, passes: int) -> probes.Probe:
    lr, weight_decay = point
    return plain_loop(x, y, c=5, batch=batch, passes=passes, lr=lr, weight_decay=weight_decay, smoothing=0.1)


def learned(data: Batch, *, size: int, batch: int, passes: int, c: int = 5) -> learner.Learner[str]:
    learning = learner.Learner[str](bank.Settings(c, batch, GRID, 0.1))
    for _ in range(passes):
        learning.read(stream(data, size), "here", learning.step)
    return learning


def assert_equal_to_reference(data: Batch, *, batch: int, passes: int, size: int, atol: float) -> None:
    learning = learned(data, size=size, batch=batch, passes=passes)
    for (tap, x), (index, point) in itertools.product(data[0].items(), enumerate(GRID)):
        for one, other in zip(learning.probe(tap, index), reference(x.cpu(), data[1].cpu(), point, batch=batch, passes=passes)):
            assert one.shape == other.shape
            assert torch.allclose(one.cpu(), other, rtol=0, atol=atol)


@pytest.fixture(params=[False, True], ids=["each tap a product", "batched"])
def _arranged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a CPU, the arrangement for a GPU, in blocks so narrow that taps have several."""
    monkeypatch.setattr(layout, "BLOCK", 16)
    monkeypatch.setattr(
        bank, "Layout", lambda widths, device, *, batched: layout.Layout(widths, device, batched=request.param or batched)
    )


@pytest.mark.usefixtures("_arranged")
@pytest.mark.parametrize("size", [10, 16, 53])
@pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS)
def test_every_tap_and_grid_point_equals_a_stock_optimiser(widths: dict[str, int], size: int) -> None:
    assert_equal_to_reference(tapped(widths), batch=16, passes=4, size=size, atol=1e-10)


@pytest.mark.usefixtures("_arranged")
def test_taps_of_different_dtypes_are_fitted_together() -> None:
    (taps, y) = tapped(WIDTHS["unequal"])
    dtypes = dict(zip(taps, [torch.float32, torch.float64, torch.bfloat16, torch.float32, torch.float64]))
    taps = {tap: x.to(dtypes[tap]) for tap, x in taps.items()}
    fits = probes.fit_probes(
        lambda: stream((taps, y), 20), classes=5, passes=4, batch=16, lr=(0.02,), weight_decay=(0.3,), label_smoothing=0.1
    )
    assert list(fits) == list(taps)
    for tap, x in taps.items():
        double = x.dtype == torch.float64
        oracle = reference(x if double else x.float(), y, (0.02, 0.3), batch=16, passes=4)
        for one, other in zip(fits[tap].probe, oracle):
            assert one.dtype == (torch.float64 if double else torch.float32)
            assert torch.allclose(one, other, rtol=0, atol=1e-10 if double else 1e-5)


@pytest.mark.usefixtures("_arranged")
def test_how_the_caller_holds_its_features_changes_nothing() -> None:
    """Slices of one matrix, tensors of their own, columns of a transpose, every other slice, another order."""
    taps, y = tapped(WIDTHS["both, in no order"])
    apart = {tap: x.clone() for tap, x in taps.items()}
    across = {tap: x.T.contiguous().T for tap, x in taps.items()}
    gaps = {tap: torch.cat([x, x], 1)[:, : x.shape[1]] for tap, x in taps.items()}
    backwards = dict(reversed(taps.items()))
    fits = [learned((held, y), size=10, batch=16, passes=2) for held in (taps, apart, across, gaps, backwards)]
    for tap, other in itertools.product(taps, fits[1:]):
        for one, two in zip(fits[0].probe(tap, 3), other.probe(tap, 3)):
            assert torch.allclose(one, two, rtol=0, atol=1e-12)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("widths", [{"a": 256, "b": 100, "c": 512}, {"a": 1}, {"a": 300, "b": 301}])
def test_layout(widths: dict[str, int], batched: bool) -> None:
    place = layout.Layout(widths, torch.device("cpu"), batched=batched)
    x, weight = torch.randn(3, 9, place.total, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[:2]
    used = sorted((columns.start, columns.stop) for columns in place.columns.values())
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(used))
    assert all(columns.start % layout.LANE == 0 for columns in place.columns.values())
    filling = {tap: torch.zeros(9, gap, dtype=torch.float64) for tap, gap in place.filling.items()}
    for tap, gap in place.filling.items():
        x[:, place.columns[tap].stop :][:, :gap] = 0
    features = {tap: x[:, columns] for tap, columns in place.columns.items()}
    assert torch.equal(torch.cat(place.pieces(features, filling), 1), x)
    products = [left @ right.mT for left, right in zip(place.views(x), place.views(weight))]
    found = place.gather(torch.cat(products))
    for product, (tap, columns) in zip(found, place.columns.items()):
        assert torch.allclose(product, features[tap] @ weight[:, columns].T)
    assert len(place.spread(found)) == place.blocks == sum(map(len, place.shares(place.spread(found))))


@pytest.mark.usefixtures("_arranged")
def test_a_tap_that_is_not_finite_leaves_the_others_alone() -> None:
    taps, y = tapped(WIDTHS["unequal"])
    clean = learned((taps, y), size=20, batch=16, passes=2)
    spoiled = {tap: x.clone() for tap, x in taps.items()}
    spoiled["b"][3, 1] = float("nan")
    learning = learned((spoiled, y), size=20, batch=16, passes=2)
    with pytest.raises(ValueError, match="tap 'b': features in here are NaN, infinite"):
        learning.check("here")
    for tap in set(taps) - {"b"}:
        assert torch.equal(learning.probe(tap, 1)[0], clean.probe(tap, 1)[0])


def test_a_batch_larger_than_the_data_takes_no_more_memory_than_the_data() -> None:
    data = tapped(WIDTHS["one"])
    learning = learned(data, size=10, batch=10**12, passes=2)
    assert len(learning.banks[0].x) <= 2 * len(data[1])


@pytest.mark.parametrize("batch", [1, 16, 100])
def test_labels_are_judged_by_the_extremes_of_one_pass(batch: int) -> None:
    taps, y = tapped(WIDTHS["one"])
    learning = learned((taps, y), size=10, batch=batch, passes=1)
    with pytest.raises(ValueError, match="labels must lie in 0..4, got 1..9 in there"):
        learning.read(stream((taps, torch.tensor([1, 9, 2] + [3] * 50)), 10), "there", learning.step)
    learning.read(stream((taps, y), 10), "here", learning.step)


@gpu
@pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS)
def test_on_a_gpu_every_step_recorded_or_not_equals_a_stock_optimiser(widths: dict[str, int]) -> None:
    """53 rows in batches of 8: six full ones a pass, of which all but the first three ever are replayed, and a short one."""
    taps, y = tapped({**widths, "wide": 600})
    data = {tap: x.cuda() for tap, x in taps.items()}, y.cuda()
    assert_equal_to_reference(data, batch=8, passes=3, size=8, atol=1e-9)
    assert_equal_to_reference(data, batch=8, passes=3, size=13, atol=1e-9)
    assert_equal_to_reference((data[0], y), batch=8, passes=3, size=8, atol=1e-9)


@gpu
def test_recorded_steps_are_the_eager_ones_in_any_mode_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    taps, y = tapped({"a": 256, "b": 512, "c": 100}, n=1000, dtype=torch.float32)
    data = {tap: x.cuda() for tap, x in taps.items()}, y.cuda()
    net = torch.nn.Dropout()

    def leaky() -> Iterator[Batch]:
        with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
            for features, labels in stream(data, 64):
                net(features["c"] @ features["c"].T)
                yield features, labels

    settings = {"classes": 5, "passes": 3, "batch": 64}
    random = torch.cuda.get_rng_state()
    recorded = probes.fit_probes(lambda: stream(data, 64), **settings)
    assert torch.equal(random, torch.cuda.get_rng_state())
    beside_a_net = probes.fit_probes(leaky, **settings)
    monkeypatch.setattr(bank, "WARM", 10**9)
    eager = probes.fit_probes(lambda: stream(data, 64), **settings)
    for tap, fit in eager.items():
        for one, two, three in zip(fit.probe, recorded[tap].probe, beside_a_net[tap].probe):
            assert torch.allclose(one, two, rtol=0, atol=1e-6)
            assert torch.allclose(one, three, rtol=0, atol=1e-6)
