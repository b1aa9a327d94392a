"""Neighbours against all distances in float64: whatever an outline of the bank rules out, none of them may be near."""

import json
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from thermocline import detect
from thermocline.detect import outlines
from thermocline.detect.outlines import Outline, nearest


def distances(train: Tensor, test: Tensor) -> Tensor:
    """All of them, in rising order, by differences in float64."""
    unit, units = (x.double() / x.double().norm(dim=1, keepdim=True).clamp(min=1e-300) for x in (test, train))
    return torch.cdist(unit, units, compute_mode="donot_use_mm_for_euclid_dist").sort(1).values


def scored(train: Tensor, test: Tensor, k: int) -> tuple[Tensor, detect.KNN]:
    none = torch.empty(max(len(train), len(test)), 0)
    detector = detect.KNN(k=k).fit(train, none[: len(train)], torch.zeros(len(train)).long())
    return -detector.score(test, none[: len(test)]), detector


def of_classes(gen: torch.Generator, n: int, d: int, spread: float, classes: int = 40) -> tuple[Tensor, Tensor]:
    """A bank in classes, and others: of these classes, of none, and of the bank itself."""
    means = torch.randn(classes, d, generator=gen)
    train, near = (
        means[torch.arange(m) % classes] + spread * torch.randn(m, d, generator=gen) * torch.logspace(0, -1, d) + 1
        for m in (n, 100)
    )
    return train, torch.cat([near, torch.randn(60, d, generator=gen), train[:40]])


@pytest.fixture(autouse=True, scope="module")
def always() -> Iterator[None]:
    """An outline even of vectors that need most of their few coordinates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outlines, "MOST", 1)
        yield


def halves(bank: Tensor) -> Tensor:
    return (bank != 0).any(1).float() / 2


@pytest.mark.parametrize("eight_bits", [True, False])
@pytest.mark.parametrize("spread", [1.0, 0.3, 1e-3])
@pytest.mark.parametrize(("n", "d", "k"), [(9000, 48, 50), (4097, 130, 7), (5003, 3, 1), (4500, 1100, 9)])
def test_an_outline_changes_no_distance(
    gen: torch.Generator, monkeypatch: pytest.MonkeyPatch, n: int, d: int, k: int, spread: float, eight_bits: bool
) -> None:
    """On a machine that multiplies 8 bits fast, and on one that does not."""
    if eight_bits and not torch.cpu._is_vnni_supported():
        pytest.skip("sums of products of 8 bits may overflow on this CPU")
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: eight_bits)
    train, test = of_classes(gen, n, d, spread)
    near, detector = scored(train, test, k)
    assert detector._outline is not None
    assert detector._outline.table.dtype == (torch.int8 if eight_bits else torch.float32)
    assert torch.allclose(near, distances(train, test)[:, k - 1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_rules_nothing_out(gen: torch.Generator, dtype: torch.dtype, fitted: bool) -> None:
    """Neither of an outline that was made before, nor of one that is made under it."""
    train, test = of_classes(gen, 6000, 64, 0.3)
    detector = detect.KNN(k=5).fit(train)
    expected = detector.score(test)
    assert detector._outline is not None
    with torch.autocast("cpu", dtype=dtype):
        assert torch.equal((detector if fitted else detect.KNN(k=5).fit(train)).score(test), expected)


@pytest.mark.parametrize("left", [0.9, 0.5, 0.1, 1e-3, 0])
def test_any_number_of_axes_will_do(gen: torch.Generator, monkeypatch: pytest.MonkeyPatch, left: float) -> None:
    monkeypatch.setattr(outlines, "LEFT", left)
    train, test = of_classes(gen, 6000, 64, 0.5)
    near, detector = scored(train, test, 20)
    assert detector._outline is not None
    assert torch.allclose(near, distances(train, test)[:, 19], rtol=0, atol=1e-6)


def test_few_axes_where_few_carry_it_all_and_no_outline_of_noise(gen: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlines, "MOST", 0.5)
    flat = torch.randn(9000, 5, generator=gen) @ torch.randn(5, 80, generator=gen)
    few, none = (
        Outline.of(x, halves(x), 30) for x in (flat / flat.norm(dim=1, keepdim=True), torch.randn(9000, 80, generator=gen))
    )
    assert few is not None
    assert few.axes.shape[1] <= 7
    assert none is None


def test_bounds_are_above_what_they_bound_and_rule_something_out(gen: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all the other tests would compare the plain product with itself."""
    train, test = (x / x.norm(dim=1, keepdim=True) for x in of_classes(gen, 9001, 64, 0.3))
    outline = Outline.of(train, halves(train), 50)
    assert outline is not None
    keys = (test.double() @ train[outline.order].double().T - 0.5).split(outlines.BLOCK, 1)
    most = torch.stack([own.amax(1) for own in keys], 1)
    assert (outlines._reach(test, outline) >= most).all()
    visits, visit = [], outlines._visit
    monkeypatch.setattr(outlines, "_visit", lambda *arguments: (visits.append(len(arguments[3])), visit(*arguments)))
    assert sum(len(part) for part, _, _ in nearest(test, outline, 50)) == len(test)
    assert sum(visits) < most.numel() / 2


@given(
    seed=st.integers(0, 2**16),
    rank=st.integers(1, 24),
    spread=st.sampled_from([0.0, 1e-4, 1e-2, 1.0]),
    k=st.integers(1, 30),
    copies=st.booleans(),
    zeros=st.booleans(),
)
def test_pruning_is_exact(seed: int, rank: int, spread: float, k: int, copies: bool, zeros: bool) -> None:
    gen = torch.Generator().manual_seed(seed)
    low = torch.randn(rank, 24, generator=gen)
    train = torch.randn(outlines.LEAST, rank, generator=gen) @ low + spread * torch.randn(outlines.LEAST, 24, generator=gen)
    test = torch.cat([train[:9], torch.randn(9, 24, generator=gen), torch.randn(9, rank, generator=gen) @ low])
    if copies:
        train[100:2000] = train[torch.randint(3, (1900,), generator=gen)]
    if zeros:
        train[5::100], test[3] = 0.0, 0.0
    near, _ = scored(train, test, k)
    assert torch.allclose(near, distances(train, test)[:, k - 1], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("n", "k"), [(300, 300), (300, 299), (300, 1), (9, 5), (5000, 5000), (5000, 4000), (1, 1)])
def test_as_many_neighbours_as_there_are_samples(gen: torch.Generator, n: int, k: int) -> None:
    train, test = torch.randn(n, 11, generator=gen), torch.randn(37, 11, generator=gen)
    near, _ = scored(train, test, k)
    assert torch.allclose(near, distances(train, test)[:, k - 1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("n", [400, 6000])
@pytest.mark.parametrize("spread", [1e-3, 1e-5, 0.0])
def test_neighbours_beyond_a_collapsed_class_and_inside_of_it(gen: torch.Generator, n: int, spread: float) -> None:
    """Distances whose squares are below what float32 resolves in a product; `k` may leave the class."""
    train, test = of_classes(gen, n, 96, spread, classes=8)
    for k in (1, 20, n // 8 + 3):
        near, _ = scored(train, test, k)
        assert torch.allclose(near, distances(train, test)[:, k - 1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("n", [200, 6000])
def test_a_feature_of_zero_is_as_far_from_all_and_nearer_than_what_is_across(gen: torch.Generator, n: int) -> None:
    """||z - 0|| = 1, though <z, 0> = 0 is what vectors at a right angle have, which are farther."""
    train, test = torch.randn(n, 40, generator=gen), torch.randn(31, 40, generator=gen)
    train[::10], test[4] = 0.0, 0.0
    for k in (3, n // 10, n // 10 + 1):
        near, _ = scored(train, test, k)
        assert torch.allclose(near, distances(train, test)[:, k - 1], rtol=0, atol=1e-6)
    assert near[4] == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_features_of_any_width(gen: torch.Generator, dtype: torch.dtype) -> None:
    train, test = (x.to(dtype) for x in of_classes(gen, 6000, 30, 0.5))
    near, _ = scored(train, test, 25)
    assert near.dtype == torch.float64
    assert torch.allclose(near, distances(train, test)[:, 24], rtol=0, atol=1e-6)


def test_every_sample_the_same(gen: torch.Generator) -> None:
    train = torch.randn(1, 20, generator=gen).repeat(6000, 1)
    near, _ = scored(train, torch.cat([train[:5], torch.randn(5, 20, generator=gen)]), 9)
    assert near[:5].max() < 1e-6
    assert near[5:].min() > 0.1


def test_samples_without_a_number_and_none_at_all(gen: torch.Generator) -> None:
    train, test = of_classes(gen, 6000, 30, 0.5)
    test[[3, 77], 4] = torch.tensor([torch.nan, torch.inf])
    near, detector = scored(train, test, 25)
    assert near.isnan().nonzero().flatten().tolist() == [3, 77]
    assert torch.allclose(near[4:70], distances(train, test[4:70])[:, 24], rtol=0, atol=1e-6)
    assert detector.score(test[:0], torch.empty(0, 0)).shape == (0,)


def test_an_outline_is_of_the_bank_there_is(gen: torch.Generator) -> None:
    """Fitted again, and restored from what is kept, which an outline is no part of."""
    (first, test), (second, _) = (of_classes(gen, 6000, 30, spread) for spread in (0.5, 0.2))
    _, detector = scored(first, test, 25)
    none = torch.empty(6000, 0)
    scores = detector.fit(second, none, torch.zeros(6000).long()).score(test, none[: len(test)])
    assert torch.allclose(-scores, distances(second, test)[:, 24], rtol=0, atol=1e-6)
    kind, settings, tensors = detect.state(detector)
    assert tensors.keys() == {"bank"}
    again = detect.restore(kind, json.loads(json.dumps(settings)), tensors)
    assert torch.equal(again.score(test, none[: len(test)]), scores)


def test_guides_are_all_products_in_float64(gen: torch.Generator) -> None:
    train, test = of_classes(gen, 20_000, 17, 0.5)
    logits, test_logits = torch.randn(len(train), 3, generator=gen), torch.randn(len(test), 3, generator=gen)
    unit, units = (x.double() / x.double().norm(dim=1, keepdim=True) for x in (test, train))
    products = unit @ (units * logits.double().logsumexp(1, keepdim=True)).T
    expected = products.topk(30).values.mean(1) * test_logits.double().logsumexp(1)
    detector = detect.NNGuide(k=30).fit(train, logits, torch.zeros(len(train)).long())
    assert torch.allclose(detector.score(test, test_logits), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_a_gpu_finds_the_same(gen: torch.Generator, spread: float) -> None:
    train, test = of_classes(gen, 9000, 48, spread)
    near, detector = scored(train.cuda(), test.cuda(), 50)
    assert detector._outline is None
    assert torch.allclose(near.cpu(), distances(train, test)[:, 49], rtol=0, atol=1e-6)
