"""Every detector against its formula in float64, by numpy and scipy, on lopsided shapes; and the laws it must keep."""

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from detect_cases import NAMES, C, D, Data, drawn, every
from scipy.special import entr, log_softmax, logsumexp, softmax
from scipy.stats import entropy
from torch import Tensor

from thermocline import detect
from thermocline.moments import ClassMoments, Moments


@pytest.fixture
def data(gen: torch.Generator) -> Data:
    return drawn(gen)


def test_the_registry_and_the_tests_know_every_detector(data: Data) -> None:
    assert set(every(data)) == set(NAMES)


def wide(*tensors: Tensor) -> list[np.ndarray]:
    return [tensor.double().numpy() for tensor in tensors]


def by_formula(name: str, data: Data) -> np.ndarray:
    x, logits, test, e, weight, bias = wide(data.x, data.logits, data.test, data.test_logits, data.weight, data.bias)
    y, t = data.y.numpy(), 2.0
    p = softmax(e / t, 1)
    size = t * logsumexp(e / t, 1)
    unit, units = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (test, x))
    simple = {
        "MSP": lambda: p.max(1), "MaxLogit": lambda: e.max(1), "Energy": lambda: size, "Entropy": lambda: -entr(p).sum(1),
        "GEN": lambda: -(np.sort(p)[:, ::-1][:, :3] ** 0.1 * (1 - np.sort(p)[:, ::-1][:, :3]) ** 0.1).sum(1),
        "KNN": lambda: -np.sort(np.linalg.norm(unit[:, None] - units, axis=2))[:, 10],
    }  # fmt: skip
    if name in simple:
        return simple[name]()
    if name == "KLMatching":
        train = softmax(logits / t, 1)
        typical = [train[train.argmax(1) == k].mean(0) for k in range(C) if (train.argmax(1) == k).any()]
        return -np.min([entropy(p, d[None], axis=1) for d in typical], axis=0)
    if name == "NNGuide":
        bank = units * t * logsumexp(logits / t, 1)[:, None]
        return np.sort(unit @ bank.T)[:, -11:].mean(1) * size
    if name in ("Mahalanobis", "RelativeMahalanobis"):
        means = np.stack([x[y == c].mean(0) for c in range(C)])
        within = np.cov((x - means[y]).T, ddof=0)
        near = np.min([np.einsum("nd,de,ne->n", test - m, np.linalg.inv(within), test - m) for m in means], axis=0)
        if name == "Mahalanobis":
            return -near
        moved = test - x.mean(0)
        return np.einsum("nd,de,ne->n", moved, np.linalg.inv(np.cov(x.T, ddof=0)), moved) - near
    if name == "NCI":
        moved = test - x.mean(0)
        return (moved * weight[e.argmax(1)]).sum(1) / np.linalg.norm(moved, axis=1) + 0.01 * np.abs(test).sum(1)
    if name == "ReAct":
        cut = np.minimum(test, np.percentile(x, 90))
        return logsumexp(cut @ weight.T + bias, 1)
    assert name in ("Residual", "ViM")
    origin = -np.linalg.pinv(weight) @ bias
    main = np.linalg.svd(x - origin)[2][:7]
    residual, seen = (np.linalg.norm((z - origin) - (z - origin) @ main.T @ main, axis=1) for z in (test, x))
    return -residual if name == "Residual" else size - logits.max(1).sum() / seen.sum() * residual


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("NECO", "ASH", "nested")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_scores_are_the_formula(data: Data, name: str, dtype: torch.dtype) -> None:
    data = Data(*(one.to(dtype) if one.is_floating_point() else one for one in data))
    scores = every(data)[name].fit(data.x, data.logits, data.y).score(data.test, data.test_logits)
    assert scores.dtype == torch.float64
    assert np.allclose(scores, by_formula(name, data), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", ["p", "b", "s"])
@pytest.mark.parametrize("percentile", [0, 10, 65.5, 99])
def test_ash_is_its_formula(data: Data, variant: Any, percentile: float) -> None:
    (test, weight, bias), expected = wide(data.test.relu(), data.weight, data.bias), []
    for row in test:
        kept = max(D - round(D * percentile / 100), 1)
        place = np.argsort(-row, kind="stable")[:kept]
        new = np.zeros(D)
        new[place] = row[place]
        if variant == "b":
            new[place] = row.sum() / kept
        elif variant == "s":
            new *= np.exp(row.sum() / new.sum())
        expected.append(logsumexp(weight @ new + bias))
    detector = detect.ASH(detect.Energy(), data.weight, data.bias, percentile=percentile, variant=variant)
    assert np.allclose(detector.score(data.test.relu(), data.test_logits), expected, rtol=1e-10)
    zeros = torch.zeros(1, D)
    assert np.allclose(detector.score(zeros, zeros), logsumexp(bias), rtol=1e-12)


def test_a_shaper_fits_what_is_inside_to_what_it_makes(data: Data) -> None:
    cut = data.x.clamp(max=float(np.percentile(data.x.numpy(), 90)))
    inner = detect.KNN(k=4).fit(cut, data.logits, data.y)
    outer = detect.ReAct(detect.KNN(k=4), data.weight, percentile=90).fit(data.x, data.logits, data.y)
    assert torch.allclose(outer.inner.bank, inner.bank, atol=1e-6)  # type: ignore[attr-defined]


def test_a_shaper_fits_a_stranger_be_it_a_dataclass(data: Data) -> None:
    @dataclasses.dataclass
    class Halved:
        inner: detect.KNN

        def fit(self, features, logits=None, labels=None):
            self.inner.fit(features, logits, labels)
            return self

        def score(self, features, logits=None):
            return self.inner.score(features, logits) / 2

    plain, halved = (
        detect.ReAct(inner, data.weight, percentile=90).fit(data.x, data.logits, data.y)
        for inner in (detect.KNN(k=4), Halved(detect.KNN(k=4)))
    )
    assert torch.equal(halved.score(data.test), plain.score(data.test) / 2)


@pytest.mark.parametrize("shape", [(7,), (40, 31), (3, 5, 2)])
@pytest.mark.parametrize("percentile", [0, 1, 37.5, 90, 99.9])
def test_a_percentile_is_numpys(gen: torch.Generator, shape: tuple[int, ...], percentile: float) -> None:
    from thermocline.detect.shaping import percentile_of

    x = torch.randn(shape, generator=gen) ** 3
    x[x.abs() < 0.05] = 0.0
    assert np.isclose(percentile_of(x, percentile), np.percentile(x.numpy(), percentile), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("name", NAMES)
def test_neither_order_nor_company_matters(data: Data, gen: torch.Generator, name: str) -> None:
    whole = every(data)[name].fit(data.x, data.logits, data.y)
    scores, order = whole.score(data.test, data.test_logits), torch.randperm(len(data.x), generator=gen)
    assert torch.equal(scores, whole.score(data.test, data.test_logits))
    alone = torch.cat([whole.score(*pair) for pair in zip(data.test.split(1), data.test_logits.split(1))])
    mixed = every(data)[name].fit(data.x[order], data.logits[order], data.y[order]).score(data.test, data.test_logits)
    assert torch.allclose(scores, alone, rtol=1e-6, atol=1e-7)
    assert torch.allclose(scores, mixed, rtol=1e-5, atol=1e-6)
    assert whole.score(data.test[:0], data.test_logits[:0]).shape == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_left_as_they_were(data: Data, name: str) -> None:
    before = [one.clone() for one in data]
    every(data)[name].fit(data.x, data.logits, data.y).score(data.test, data.test_logits)
    assert all(torch.equal(one, was) for one, was in zip(data, before))


@pytest.mark.parametrize("kind", ["array", "list"])
@pytest.mark.parametrize("name", NAMES)
def test_arrays_and_lists_are_taken_as_tensors_are(data: Data, name: str, kind: str) -> None:
    wide = Data(*(one.double() if one.is_floating_point() else one for one in data))
    plain: Any = Data(*(one.numpy() if kind == "array" else one.tolist() for one in wide))
    plain = plain._replace(weight=wide.weight, bias=wide.bias)
    expected = every(wide)[name].fit(wide.x, wide.logits, wide.y).score(wide.test, wide.test_logits)
    found = every(plain)[name].fit(plain.x, plain.logits, plain.y).score(plain.test, plain.test_logits)
    assert torch.equal(found, expected)


FEATURES, LOGITS, BOTH = ("features",), ("logits",), ("features", "logits")
READS = {
    **dict.fromkeys(["MSP", "MaxLogit", "Energy", "Entropy", "GEN"], ((), LOGITS)), "KLMatching": (LOGITS, LOGITS),
    **dict.fromkeys(["Residual", "KNN", "ReAct", "ASH"], (FEATURES, FEATURES)), "NECO": (FEATURES, BOTH),
    **dict.fromkeys(["Mahalanobis", "RelativeMahalanobis"], ((*FEATURES, "labels"), FEATURES)), "NCI": (FEATURES, BOTH),
    **dict.fromkeys(["ViM", "NNGuide"], (BOTH, BOTH)), "nested": (FEATURES, FEATURES),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_what_a_detector_does_not_read_need_not_be_given(data: Data, name: str) -> None:
    """What it reads is asked for by name."""
    train, test = {"features": data.x, "logits": data.logits, "labels": data.y}, (data.test, data.test_logits)
    to_fit, to_score = ({key: given[key] for key in reads} for reads, given in zip(READS[name], (train, dict(zip(BOTH, test)))))
    detector = every(data)[name].fit(**to_fit)
    assert torch.equal(detector.score(**to_score), every(data)[name].fit(**train).score(*test))
    for call, given in ((every(data)[name].fit, to_fit), (detector.score, to_score)):
        for key in given:
            with pytest.raises(ValueError, match=f"{type(detector).__name__} .*, and got no {key}"):
                call(**{other: value for other, value in given.items() if other != key})


def test_many_rows_are_scored_as_few_are(gen: torch.Generator) -> None:
    """More rows than one slice holds."""
    x = torch.randn(2500, 2048, generator=gen)
    y, none = torch.zeros(2500, dtype=torch.int64), torch.empty(2500, 0)
    for detector in (detect.NECO(dim=9), detect.KNN(k=3), detect.Mahalanobis(), detect.Residual(x[:2], dim=9)):
        scores = detector.fit(x[:1500], none[:1500], y[:1500]).score(x, none)
        assert torch.allclose(scores[2400:], detector.score(x[2400:], none[2400:]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["Mahalanobis", "RelativeMahalanobis"])
def test_gaussian_scores_do_not_see_a_change_of_basis(data: Data, gen: torch.Generator, name: str) -> None:
    basis = torch.randn(D, D, generator=gen).double()
    scores = [
        every(data)[name].fit(f(data.x), data.logits, data.y).score(f(data.test), data.test_logits)
        for f in (Tensor.double, lambda z: z.double() @ basis + 3)
    ]
    assert torch.allclose(*scores, rtol=1e-7)


@pytest.mark.parametrize("name", ["Mahalanobis", "RelativeMahalanobis"])
def test_gaussian_scores_do_not_see_the_units_of_features(data: Data, name: str) -> None:
    """However far apart: a direction is left out for how little it varies in its own units."""
    units = torch.logspace(-9, 9, D, dtype=torch.float64)
    scores = [
        every(data)[name].fit(data.x * unit, data.logits, data.y).score(data.test * unit, data.test_logits)
        for unit in (torch.ones_like(units), units)
    ]
    assert torch.allclose(*scores, rtol=1e-7)


@pytest.mark.parametrize("name", ["KNN", "NNGuide", "NCI"])
def test_rotation_of_features_and_head_changes_nothing(data: Data, gen: torch.Generator, name: str) -> None:
    turn = torch.linalg.qr(torch.randn(D, D, generator=gen))[0]
    turned = data._replace(x=data.x @ turn, test=data.test @ turn, weight=data.weight @ turn)
    scores = [
        detect.NCI(one.weight, alpha=0).fit(one.x, one.logits, one.y).score(one.test, one.test_logits)
        if name == "NCI"
        else every(one)[name].fit(one.x, one.logits, one.y).score(one.test, one.test_logits)
        for one in (data, turned)
    ]
    assert torch.allclose(*scores, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["NECO", "KNN", "Mahalanobis", "RelativeMahalanobis"])
def test_scale_of_features_changes_nothing(data: Data, name: str) -> None:
    scores = [every(data)[name].fit(s * data.x, data.logits, data.y).score(s * data.test, data.test_logits) for s in (1, 64)]
    assert torch.allclose(*scores, rtol=1e-6)


@pytest.mark.parametrize("name", ["MSP", "Entropy", "GEN", "KLMatching"])
def test_probabilities_do_not_see_a_shift_and_trade_scale_for_temperature(data: Data, name: str) -> None:
    plain = detect.DETECTORS[name](temperature=1.0).fit(data.x, data.logits, data.y).score(data.test, data.test_logits)
    moved = detect.DETECTORS[name](temperature=8.0).fit(data.x, 8 * data.logits + 16, data.y)
    assert torch.allclose(plain, moved.score(data.test, 8 * data.test_logits + 16), rtol=1e-4, atol=1e-6)


def test_gen_keeps_what_float64_probabilities_round_away() -> None:
    """p = 1 - 1e-26: (1 - p)^0.1 is 0.0025, and the other's p^0.1 as much."""
    scores = detect.GEN().score(torch.zeros(1, 0), torch.tensor([[60.0, 0.0]]))
    assert np.allclose(scores, -2 * np.exp(-6.0), rtol=1e-12)
    assert np.allclose(log_softmax([60.0, 0.0])[1], -60)
    assert detect.GEN().score(torch.zeros(1, 0), torch.zeros(1, 1)) == 0


def test_knn_keeps_its_digits_where_features_nearly_coincide(gen: torch.Generator) -> None:
    """A collapsed class: distances of 1e-2, whose squares are lost in the float32 of 2 - 2 cos."""
    centre = torch.randn(1, 64, generator=gen).double()
    x, test = (centre + 1e-2 * torch.randn(n, 64, generator=gen) for n in (3000, 50))
    unit, units = (z / z.norm(dim=1, keepdim=True) for z in (test, x))
    expected = torch.cdist(unit, units, compute_mode="donot_use_mm_for_euclid_dist").sort(1).values[:, 49]
    none = torch.empty(3000, 0)
    scores = detect.KNN(k=50).fit(x, none, torch.zeros(3000).long()).score(test, none[:50])
    assert torch.allclose(-scores, expected, rtol=1e-5, atol=0)


def test_neighbours_are_found_in_every_part_of_a_bank(gen: torch.Generator) -> None:
    """More training samples, and more to score, than are multiplied at a time."""
    x, test = torch.randn(40_000, 6, generator=gen), torch.randn(700, 6, generator=gen)
    unit, units = (z.double() / z.double().norm(dim=1, keepdim=True) for z in (test, x))
    logits = torch.full((40_000, 1), 2.0)
    knn = detect.KNN(k=7).fit(x, logits, torch.zeros(40_000).long()).score(test, logits[:700])
    guided = detect.NNGuide(k=7).fit(x, logits, torch.zeros(40_000).long()).score(test, logits[:700])
    products = unit @ units.T
    assert torch.allclose(-knn, (2 - 2 * products.topk(7).values[:, -1]).clamp(min=0).sqrt(), rtol=1e-5, atol=1e-6)
    assert torch.allclose(guided, 4 * products.topk(7).values.mean(1), rtol=1e-6)


@pytest.mark.parametrize("name", ["NECO", "Residual", "ViM", "NCI", "Mahalanobis", "RelativeMahalanobis"])
def test_a_stream_fits_what_its_samples_fit(data: Data, name: str) -> None:
    moments, labelled = Moments(D), ClassMoments(D, C)
    for x, y in zip(data.x.split(50), data.y.split(50)):
        moments.update(x)
        labelled.update(x, y)
    whole, streamed = (every(data)[name] for _ in range(2))
    whole.fit(data.x, data.logits, data.y)
    streamed.fit_moments(labelled if "Mahalanobis" in name else moments)
    moments.update(100 * data.x)  # what comes later is not what was fitted to
    labelled.update(100 * data.x, data.y)
    if name == "ViM":
        for pair in zip(data.x.split(50), data.logits.split(50)):
            streamed.match(*pair)
        assert torch.allclose(streamed.alpha, whole.alpha, rtol=1e-12)
    pair = (one.score(data.test, data.test_logits) for one in (whole, streamed))
    assert torch.allclose(*pair, rtol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_detector_scores_the_same_bits(data: Data, name: str) -> None:
    import json

    data = data._replace(weight=data.weight.clone().requires_grad_())
    detector = every(data)[name].fit(data.x, data.logits, data.y)
    kind, settings, tensors = detect.state(detector)
    assert not any(one.requires_grad for one in tensors.values()), "a file has no gradients"
    again = detect.restore(kind, json.loads(json.dumps(settings)), {key: one.clone() for key, one in tensors.items()})
    assert torch.equal(again.score(data.test, data.test_logits), detector.score(data.test, data.test_logits))
    assert repr(again) == repr(detector)
    assert detect.state(again).settings == settings


@pytest.mark.parametrize("name", NAMES)
def test_training_on_changes_no_score_until_it_is_fitted_again(data: Data, name: str) -> None:
    moving = data._replace(weight=data.weight.clone(), bias=data.bias.clone())
    detector = every(moving)[name].fit(data.x, data.logits, data.y)
    before = detector.score(data.test, data.test_logits)
    moving.weight.mul_(0.5).add_(1), moving.bias.sub_(2)
    assert torch.equal(detector.score(data.test, data.test_logits), before)
    assert torch.equal(detect.restore(*detect.state(detector)).score(data.test, data.test_logits), before)
    fitted = [one.fit(data.x, data.logits, data.y) for one in (copy.copy(detector), detector, every(moving)[name])]
    copied, again, anew = (one.score(data.test, data.test_logits) for one in fitted)
    assert torch.equal(again, anew)
    assert torch.equal(copied, anew)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_scores_as_a_cpu_does(data: Data, name: str) -> None:
    there = Data(*(one.cuda() for one in data))
    here, found = (every(one)[name].fit(one.x, one.logits, one.y).score(one.test, one.test_logits) for one in (data, there))
    assert found.device.type == "cuda"
    assert torch.allclose(here, found.cpu(), rtol=1e-5, atol=1e-6)
