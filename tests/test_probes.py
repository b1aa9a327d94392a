"""Ridge and logistic probes against scikit-learn and plain torch; negative controls."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor
from torch.nn.functional import cross_entropy

from thermocline import probes
from thermocline.moments import ClassMoments


def labelled(gen: torch.Generator, n: int = 300, d: int = 20, c: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.randint(c, (n,), generator=gen)
    centres = torch.randn(c, d, generator=gen, dtype=torch.float64)
    return centres[y] + 0.5 * torch.randn(n, d, generator=gen, dtype=torch.float64) + 10, y


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("n", [300, 15])
def test_ridge_equals_scikit_learn(gen: torch.Generator, alpha: float, n: int) -> None:
    x, y = labelled(gen, n)
    moments = ClassMoments(20, 7)
    for a, b in zip(x.split(64), y.split(64)):
        moments.update(a, b)
    probe = probes.ridge_probe(moments, alpha=alpha)
    oracle = Ridge(alpha=alpha).fit(x.numpy(), np.eye(7)[y.numpy()])
    assert np.allclose(probe.weight, oracle.coef_, rtol=1e-7, atol=1e-9)
    assert np.allclose(probe.bias, oracle.intercept_, rtol=1e-7, atol=1e-7)
    assert np.array_equal(probe.predict(x), oracle.predict(x.numpy()).argmax(1))


def test_ridge_on_shuffled_labels_gives_chance(gen: torch.Generator) -> None:
    x, y = labelled(gen, 4000)
    x_new, y_new = x[2000:], y[2000:]
    fitted = probes.ridge_probe(ClassMoments.of(x[:2000], y[:2000], classes=7), alpha=1.0)
    assert (fitted.predict(x_new) == y_new).double().mean() > 0.95
    shuffled = y[:2000][torch.randperm(2000, generator=gen)]
    control = probes.ridge_probe(ClassMoments.of(x[:2000], shuffled, classes=7), alpha=1.0)
    assert abs((control.predict(x_new) == y_new).double().mean() - 1 / 7) < 0.08


Batch = tuple[dict[str, Tensor], Tensor]
WIDTHS = {"stem": 11, "middle": 3, "head": 6}  # none of them the number of classes, 5, or of rows


def tapped(gen: torch.Generator, n: int = 53, c: int = 5) -> Batch:
    """A noisy labelled cloud at three taps of different widths and scales, float64."""
    y = torch.randint(c, (n,), generator=gen)
    taps = {}
    for scale, (tap, d) in enumerate(WIDTHS.items(), start=1):
        centres = torch.randn(c, d, generator=gen, dtype=torch.float64)
        taps[tap] = scale * (centres[y] + torch.randn(n, d, generator=gen, dtype=torch.float64) + 1)
    return taps, y


def cut(data: Batch, size: int) -> Callable[[], Iterator[Batch]]:
    taps, y = data
    return lambda: ((({tap: x[i : i + size] for tap, x in taps.items()}), y[i : i + size]) for i in range(0, len(y), size))


def plain_loop(
    x: Tensor,
    y: Tensor,
    *,
    c: int,
    batch: int,
    passes: int,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    smoothing: float = 0.0,
) -> probes.Probe:
    """The reference: one tap, one grid point, autograd and a stock optimiser."""
    weight = torch.zeros(c, x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(c, dtype=x.dtype, requires_grad=True)
    if weight_decay:
        groups = [{"params": [weight], "weight_decay": weight_decay}, {"params": [bias], "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=lr)
    else:
        optimizer = torch.optim.Adam([weight, bias], lr=lr)
    for _ in range(passes):
        for a, b in zip(x.split(batch), y.split(batch)):
            optimizer.zero_grad()
            cross_entropy(a @ weight.T + bias, b, label_smoothing=smoothing).backward()
            optimizer.step()
    return probes.Probe(weight.detach(), bias.detach())


def assert_same(one: probes.Probe, other: probes.Probe, atol: float = 1e-9) -> None:
    assert torch.allclose(one.weight, other.weight, rtol=0, atol=atol)
    assert torch.allclose(one.bias, other.bias, rtol=0, atol=atol)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("batch", [16, 53, 100])  # 53 rows: a short last batch, exactly one, less than one
def test_fit_equals_a_plain_loop_for_each_tap(gen: torch.Generator, batch: int, weight_decay: float, smoothing: float) -> None:
    taps, y = tapped(gen)
    fits = probes.fit_probes(
        cut((taps, y), 10),
        classes=5,
        passes=7,
        batch=batch,
        lr=(0.02,),
        weight_decay=(weight_decay,),
        label_smoothing=smoothing,
    )
    assert list(fits) == list(WIDTHS)
    for tap, fit in fits.items():
        oracle = plain_loop(taps[tap], y, c=5, batch=batch, passes=7, lr=0.02, weight_decay=weight_decay, smoothing=smoothing)
        assert fit.probe.weight.shape == (5, WIDTHS[tap])
        assert_same(fit.probe, oracle)
        assert fit[1:] == (0.02, weight_decay, None)


def test_defaults_are_the_protocol(gen: torch.Generator) -> None:
    """Adam 1e-3, no decay, batch 512, 30 passes, in float32."""
    taps, y = tapped(gen, n=700)
    taps = {tap: x.float() for tap, x in taps.items()}
    fits = probes.fit_probes(cut((taps, y), 300), classes=5)
    for tap, fit in fits.items():
        assert fit.probe.weight.dtype == torch.float32
        assert_same(fit.probe, plain_loop(taps[tap], y, c=5, batch=512, passes=30), atol=1e-5)


def test_fit_reaches_the_optimum_of_scikit_learn(gen: torch.Generator) -> None:
    """Without decay and with enough small steps, the unregularised maximum likelihood on data that overlap."""
    x, y = labelled(gen, n=600, d=4, c=3)
    x = (x - 10) / 2 + 0.5 * torch.randn(600, 4, generator=gen, dtype=torch.float64)
    oracle = LogisticRegression(C=1e6, tol=1e-8, max_iter=1000).fit(x.numpy(), y.numpy())
    probe = probes.fit_probes(cut(({"x": x}, y), 600), classes=3, passes=1500, batch=600, lr=(0.02,))["x"].probe
    best = torch.from_numpy(x.numpy() @ oracle.coef_.T + oracle.intercept_)
    assert (best.argmax(1) == y).double().mean() < 0.97, "the data must overlap, or there is no optimum"
    assert abs(cross_entropy(x @ probe.weight.T + probe.bias, y) - cross_entropy(best, y)) < 1e-5
    assert (probe.predict(x) == best.argmax(1)).double().mean() > 0.995


@settings(max_examples=20)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(1, 40))
def test_how_the_stream_is_cut_changes_nothing(sizes: list[int], batch: int) -> None:
    taps, y = tapped(torch.Generator().manual_seed(1))
    edges = np.minimum(np.cumsum([0, *sizes, len(y)]), len(y)).tolist()

    def ragged() -> Iterator[Batch]:
        for a, b in itertools.pairwise(edges):
            yield {tap: x[a:b] for tap, x in taps.items()}, y[a:b]

    whole = probes.fit_probes(cut((taps, y), len(y)), classes=5, passes=2, batch=batch)
    for tap, fit in probes.fit_probes(ragged, classes=5, passes=2, batch=batch).items():
        assert_same(fit.probe, whole[tap].probe, atol=1e-12)


def test_a_caller_may_reuse_its_tensors(gen: torch.Generator) -> None:
    taps, y = tapped(gen, n=60)
    buffers, labels = {tap: torch.empty_like(x[:12]) for tap, x in taps.items()}, torch.empty_like(y[:12])

    def reusing() -> Iterator[Batch]:
        for i in range(0, 60, 12):
            for tap, x in taps.items():
                buffers[tap].copy_(x[i : i + 12])
            labels.copy_(y[i : i + 12])
            yield buffers, labels

    fresh = probes.fit_probes(cut((taps, y), 60), classes=5, passes=2, batch=25)
    for tap, fit in probes.fit_probes(reusing, classes=5, passes=2, batch=25).items():
        assert_same(fit.probe, fresh[tap].probe, atol=1e-12)


def test_taps_do_not_influence_each_other(gen: torch.Generator) -> None:
    taps, y = tapped(gen)
    grid = {"lr": (1e-3, 0.1), "weight_decay": (0.0, 0.5)}
    held = tapped(gen)
    together = probes.fit_probes(cut((taps, y), 20), classes=5, passes=3, batch=16, validation=cut(held, 20), **grid)
    for tap, fit in together.items():
        validation = cut(({tap: held[0][tap]}, held[1]), 9)
        alone = probes.fit_probes(cut(({tap: taps[tap]}, y), 20), classes=5, passes=3, batch=16, validation=validation, **grid)
        # To rounding: how a matrix product is cut depends on where in memory its operands lie.
        assert torch.allclose(alone[tap].probe.weight, fit.probe.weight, rtol=1e-5, atol=1e-6)
        assert torch.allclose(alone[tap].probe.bias, fit.probe.bias, rtol=1e-5, atol=1e-6)
        assert alone[tap][1:] == fit[1:]


def test_each_tap_takes_the_grid_point_that_is_best_on_validation(gen: torch.Generator) -> None:
    """Validation labels that are one grid point's own predictions must make it the choice, with the weights it has alone."""
    data, (held, _) = tapped(gen), tapped(gen, n=400)
    grid = list(itertools.product((0.02, 0.3), (0.0, 2.0)))
    settings = {"classes": 5, "passes": 8, "batch": 16}
    for tap, (lr, weight_decay) in itertools.product(WIDTHS, grid):
        stream, x = cut(({tap: data[0][tap]}, data[1]), 53), held[tap]
        alone = probes.fit_probes(stream, lr=(lr,), weight_decay=(weight_decay,), **settings)[tap]
        wanted = cut(({tap: x}, alone.probe.predict(x)), 100)
        fit = probes.fit_probes(stream, lr=(0.02, 0.3), weight_decay=(0.0, 2.0), validation=wanted, **settings)[tap]
        assert fit[1:] == (lr, weight_decay, 1.0)
        assert_same(fit.probe, alone.probe, atol=1e-12)


def test_validation_is_read_once_after_training_and_reported(gen: torch.Generator) -> None:
    calls = []
    data, held = tapped(gen), tapped(gen, n=31)

    def noted(name: str, stream: Callable[[], Iterator[Batch]]) -> Callable[[], Iterator[Batch]]:
        return lambda: (calls.append(name), stream())[1]

    fits = probes.fit_probes(
        noted("train", cut(data, 20)), classes=5, passes=3, batch=16, validation=noted("validation", cut(held, 7))
    )
    assert calls == ["train"] * 3 + ["validation"]
    for tap, fit in fits.items():
        assert fit.validation_accuracy == (fit.probe.predict(held[0][tap]) == held[1]).double().mean()


@pytest.mark.parametrize("decays", [(0.0, 1e-12), (1e-12, 0.0)])
def test_the_first_of_equally_good_grid_points_is_taken(gen: torch.Generator, decays: tuple[float, float]) -> None:
    data = tapped(gen)
    fits = probes.fit_probes(cut(data, 20), classes=5, passes=1, weight_decay=decays, validation=cut(data, 20))
    assert {fit.weight_decay for fit in fits.values()} == {decays[0]}


def test_features_and_classes_have_no_order(gen: torch.Generator) -> None:
    taps, y = tapped(gen)
    columns, classes = torch.randperm(11, generator=gen), torch.randperm(5, generator=gen)
    probe = probes.fit_probes(cut(({"x": taps["stem"]}, y), 16), classes=5, batch=16)["x"].probe
    other = probes.fit_probes(cut(({"x": taps["stem"][:, columns]}, classes[y]), 16), classes=5, batch=16)["x"].probe
    assert_same(probe, probes.Probe(other.weight[classes][:, columns.argsort()], other.bias[classes]))


def test_separable_labels_are_learned_and_shuffled_ones_give_chance(gen: torch.Generator) -> None:
    x, y = labelled(gen, n=4000)
    train, test = x[:2000].float() - 10, x[2000:] - 10
    shuffled = y[:2000][torch.randperm(2000, generator=gen)]
    accuracy = {}
    for name, labels in {"true": y[:2000], "shuffled": shuffled}.items():
        fit = probes.fit_probes(cut(({"x": train}, labels), 1000), classes=7, batch=64, lr=(0.01,))["x"]
        accuracy[name] = float((fit.probe.predict(test) == y[2000:]).double().mean())
    assert accuracy["true"] > 0.98
    assert abs(accuracy["shuffled"] - 1 / 7) < 0.08


def test_modes_that_leak_from_the_stream_change_nothing(gen: torch.Generator) -> None:
    taps, y = tapped(gen)
    data = {tap: x.float() for tap, x in taps.items()}, y

    def leaky() -> Iterator[Batch]:
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            yield from cut(data, 20)()

    settings = {"classes": 5, "passes": 3, "batch": 16}
    clean = probes.fit_probes(cut(data, 20), validation=cut(data, 20), **settings)
    for tap, fit in probes.fit_probes(leaky, validation=leaky, **settings).items():
        assert torch.equal(fit.probe.weight, clean[tap].probe.weight)
        assert fit[1:] == clean[tap][1:]
        assert not fit.probe.weight.is_inference()


def test_autocast_changes_no_prediction(gen: torch.Generator) -> None:
    """Scores in bfloat16 tie, or fall on the other side, where two classes are near each other."""
    x, probe = torch.randn(5000, 20, generator=gen), probes.Probe(torch.randn(7, 20, generator=gen), torch.zeros(7))
    wanted = (x.double() @ probe.weight.double().T).argmax(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(probe.predict(x), wanted)


def test_arrays_are_read_as_tensors_are(gen: torch.Generator) -> None:
    taps, y = tapped(gen)
    backwards = y.numpy().astype(">i2")[::-1].copy()[::-1]
    arrays = {tap: x.numpy() for tap, x in taps.items()}, backwards
    settings = {"classes": 5, "passes": 3, "batch": 16}
    wanted = probes.fit_probes(cut((taps, y), 20), **settings)
    for tap, fit in probes.fit_probes(cut(arrays, 20), **settings).items():
        assert torch.equal(fit.probe.weight, wanted[tap].probe.weight)
    holed = np.ma.masked_array(backwards, mask=np.arange(len(backwards)) == 3)
    with pytest.raises(ValueError, match="^every sample needs a label, and some are masked"):
        probes.fit_probes(cut((arrays[0], holed), 20), **settings)


def spoiled(name: str) -> Callable[[], Iterator[Batch]]:
    """A stream of two batches, the second of which has one thing wrong."""
    taps, y = tapped(torch.Generator().manual_seed(2), n=24)

    def stream() -> Iterator[Batch]:
        first, second = cut((taps, y.clone()), 12)()
        features, labels = second
        features = {tap: x.clone() for tap, x in features.items()}
        match name:
            case "nan" | "inf" | "huge":
                features["middle"][3, 1] = {"nan": float("nan"), "inf": -float("inf"), "huge": 1e200}[name]
            case "high" | "low":
                labels[3] = {"high": 5, "low": -1}[name]
            case "float labels":
                labels = labels.double()
            case "missing":
                del features["middle"]
            case "extra":
                features["more"] = features["middle"]
            case "width":
                features["middle"] = features["middle"][:, :2]
            case "rows":
                features["middle"] = features["middle"][:5]
            case "image":
                features["middle"] = features["middle"][:, :, None, None]
        yield first
        yield features, labels

    return stream


BAD = {
    "nan": "tap 'middle': features in .* are NaN, infinite",
    "inf": "tap 'middle': features in .* are NaN, infinite",
    "high": "labels must lie in 0..4, got 0..5",
    "low": "labels must lie in 0..4, got -1..4",
    "float labels": "labels must be a vector of class indices, got torch.float64",
    "missing": "tap 'middle' is not in a batch",
    "extra": "tap 'more' is in a batch",
    "width": r"tap 'middle': expected features of shape \(12 labels, width 3\) in .*, got \(12, 2\)",
    "rows": r"tap 'middle': expected .* got \(5, 3\)",
    "image": r"tap 'middle': expected .* got \(12, 3, 1, 1\)",
}


@pytest.mark.parametrize("batch", [5, 12, 50])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_batch_is_named(name: str, batch: int) -> None:
    with pytest.raises(ValueError, match=BAD[name]):
        probes.fit_probes(spoiled(name), classes=5, passes=2, batch=batch)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_validation_batch_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=BAD[name]):
        probes.fit_probes(spoiled("nothing"), classes=5, passes=1, validation=spoiled(name))


def test_features_whose_squares_overflow_are_an_error() -> None:
    """Adam would divide by infinity and leave the probe at zero: chance, in silence."""
    with pytest.raises(ValueError, match="tap 'middle': .* too large to square"):
        probes.fit_probes(spoiled("huge"), classes=5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": (1e-3, 1e-2)}, "pass validation="),
        ({"weight_decay": (0.0, 1.0)}, "pass validation="),
        ({"lr": ()}, "lr must be"),
        ({"lr": (0.0,)}, "lr must be"),
        ({"weight_decay": (-1.0,)}, "weight_decay must be"),
        ({"lr": (1e-3, 0.1), "weight_decay": (0.0, 10.0)}, "weight_decay 10.0 at lr 0.1"),
        ({"classes": 1}, "classes must be at least 2, got 1"),
        ({"passes": 0}, "passes must be at least 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"label_smoothing": 1.0}, "label_smoothing must be"),
    ],
)
def test_bad_settings_fail_before_the_data_is_touched(changes: dict, message: str) -> None:
    def untouched() -> Iterator[Batch]:
        raise AssertionError("the data was asked for")

    with pytest.raises(ValueError, match=message):
        probes.fit_probes(untouched, **({"classes": 5} | changes))


def test_an_empty_or_spent_stream_is_an_error(gen: torch.Generator) -> None:
    data = tapped(gen)
    once = cut(data, 20)()
    with pytest.raises(ValueError, match="pass 1 of 30 has no samples"):
        probes.fit_probes(lambda: iter(()), classes=5)
    with pytest.raises(ValueError, match="pass 1 of 30 has no samples"):
        probes.fit_probes(lambda: [({"x": torch.zeros(0, 3)}, torch.zeros(0, dtype=torch.int64))], classes=5)
    with pytest.raises(ValueError, match="pass 2 of 30 has no samples; every call must begin a new pass"):
        probes.fit_probes(lambda: once, classes=5)
    with pytest.raises(ValueError, match="the validation split has no samples"):
        probes.fit_probes(cut(data, 20), classes=5, validation=list)
    with pytest.raises(ValueError, match="a batch in pass 1 of 30 has no taps"):
        probes.fit_probes(lambda: [({}, data[1])], classes=5)
    with pytest.raises(ValueError, match="tap 'x': expected .* width above 0"):
        probes.fit_probes(lambda: [({"x": torch.zeros(53, 0)}, data[1])], classes=5)


def test_ridge_refuses_what_has_no_answer() -> None:
    x, y = torch.eye(3), torch.arange(3)
    for alpha in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="alpha is a penalty of at least 0"):
            probes.ridge_probe(ClassMoments.of(x, y, classes=3), alpha=alpha)
    with pytest.raises(ValueError, match="these moments have seen none"):
        probes.ridge_probe(ClassMoments(3, 2), alpha=1.0)
    with pytest.raises(ValueError, match="must not be NaN or infinite"):
        probes.ridge_probe(ClassMoments.of(x / 0, y, classes=3), alpha=1.0)


@pytest.mark.parametrize("kind", ["constant", "duplicated", "fewer samples than features"])
def test_ridge_without_a_penalty_needs_features_that_do_not_depend_on_each_other(kind: str, gen: torch.Generator) -> None:
    n = 4 if kind == "fewer samples than features" else 40
    x, y = torch.randn(n, 6, generator=gen), torch.arange(n) % 2
    x[:, 3] = {"constant": torch.full((n,), 0.1), "duplicated": x[:, 0]}.get(kind, x[:, 3])
    moments = ClassMoments.of(x, y, classes=2)
    with pytest.raises(ValueError, match="need alpha above 0, got 0"):
        probes.ridge_probe(moments, alpha=0.0)
    assert probes.ridge_probe(moments, alpha=1e-6).weight.isfinite().all()
