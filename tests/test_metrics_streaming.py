"""A stream of scores: exact while it may be, within its bounds beyond, and the same however it was cut."""

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thermocline import detect
from thermocline.detect import ScoreStream

sides = st.lists(st.floats(width=64, allow_nan=False) | st.integers(-3, 3), min_size=1, max_size=40)
READINGS = [
    ("auroc", {}),
    ("aupr", {"positive": "id"}),
    ("aupr", {"positive": "ood"}),
    ("fpr_at_tpr", {"tpr": 0.95, "positive": "id"}),
    ("fpr_at_tpr", {"tpr": 0.8, "positive": "ood"}),
]


def drawn(seed: int, n: int = 3000, m: int = 1700) -> tuple[torch.Tensor, torch.Tensor]:
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=gen).double() + 1, torch.randn(m, generator=gen).double()


def same(one: ScoreStream, other: ScoreStream) -> bool:
    return one.count == other.count and all(torch.equal(x, y) for x, y in zip(one.tally(), other.tally()))


@given(sides, sides, st.integers(2, 90))
def test_bounds_hold_for_any_scores_and_any_capacity(inside: list[float], outside: list[float], capacity: int) -> None:
    a, b = (torch.tensor(side, dtype=torch.float64) for side in (inside, outside))
    streams = [ScoreStream.of(side, capacity=capacity) for side in (a, b)]
    for name, options in READINGS:
        exact = getattr(detect, name)(a, b, **options)
        value, low, high = getattr(streams[0], name)(streams[1], **options)
        assert 0 <= low <= value <= high <= 1 + 1e-12
        assert low - 1e-12 <= exact <= high + 1e-12
        if all(stream.exact for stream in streams):
            assert torch.allclose(torch.stack([value, low, high]), exact, rtol=1e-12)


@given(st.integers(0, 99), st.lists(st.integers(0, 3000), max_size=6), st.permutations(range(7)), st.booleans())
def test_any_cut_and_any_merge_order_agree(seed: int, cuts: list[int], order: list[int], stream: bool) -> None:
    scores = drawn(seed)[0]
    pieces = torch.tensor_split(scores, sorted(cuts))
    joined = ScoreStream(capacity=200)
    for i in order:
        if i < len(pieces):
            if stream:
                joined.update(pieces[i])
            else:
                joined.merge(ScoreStream.of(pieces[i], capacity=200))
    assert same(joined, ScoreStream.of(scores, capacity=200))


def test_merging_is_associative_and_reading_changes_nothing() -> None:
    a, b = drawn(0)
    parts = [ScoreStream.of(part, capacity=64) for part in a.split(700)]
    outside = ScoreStream.of(b, capacity=64)
    left, right = ScoreStream(capacity=64), ScoreStream(capacity=64)
    for part in parts:
        left.merge(part)
        left.auroc(outside)
    for part in reversed(parts):
        part.merge(right)
        right = part
    assert same(left, right)


def test_memory_is_bounded_and_every_score_counted() -> None:
    stream = ScoreStream(capacity=100)
    for seed in range(40):
        stream.update(drawn(seed, n=77)[0])
        assert sum(map(len, stream._waiting)) < 100 + 77
        assert len(stream._tally.low) <= 100
    assert stream.tally().counts.sum() == stream.count == 40 * 77
    assert not stream.exact


def test_streams_of_unlike_resolution_are_compared_in_the_coarser() -> None:
    a, b = drawn(1, n=20)
    inside, outside = ScoreStream.of(a, capacity=64), ScoreStream.of(b, capacity=64)
    assert inside.exact
    assert not outside.exact
    _, low, high = inside.auroc(outside)
    assert low <= detect.auroc(a, b) <= high
    assert high - low < 0.1


@pytest.mark.parametrize("kind", ["normal", "probabilities", "saturated", "float32"])
def test_the_bounds_are_narrow_at_the_default_capacity(kind: str) -> None:
    a, b = drawn(2, 400_000, 250_000)
    if kind == "probabilities":
        a, b = torch.sigmoid(3 * a), torch.sigmoid(3 * b)
    if kind == "saturated":  # in float32, 45 % of the ID scores would be 1
        a, b = torch.sigmoid(15 * a), torch.sigmoid(15 * b)
    if kind == "float32":
        a, b = a.float(), b.float()
    inside, outside = ScoreStream.of(a), ScoreStream.of(b)
    assert not inside.exact
    for name, options in READINGS:
        exact = getattr(detect, name)(a, b, **options)
        value, low, high = getattr(inside, name)(outside, **options)
        assert low - 1e-12 <= exact <= high + 1e-12
        assert high - low < 1e-3
        assert abs(value - exact) < 1e-4


def test_an_atom_costs_nothing() -> None:
    """Half of all scores are exactly 1, as saturated probabilities are: a tie, and known to be one."""
    a, b = (torch.sigmoid(4 * side).clamp(max=0.9) / 0.9 for side in drawn(3, 50_000, 30_000))
    value, low, high = ScoreStream.of(a, capacity=4096).auroc(ScoreStream.of(b, capacity=4096))
    assert (a == 1).double().mean() > 0.5
    assert high - low < 1e-3
    assert abs(value - detect.auroc(a, b)) < 1e-4


def test_zeros_of_both_signs_are_equal_and_infinities_at_the_ends() -> None:
    a, b = torch.tensor([0.0, torch.inf, -1e-45]), torch.tensor([-0.0, -torch.inf, 1e-45])
    assert np.isclose(ScoreStream.of(a).auroc(ScoreStream.of(b)).value, detect.auroc(a, b))
    assert ScoreStream.of(torch.tensor([0.0, -0.0])).tally().counts.tolist() == [2]


def test_what_is_refused() -> None:
    stream, none = ScoreStream.of(torch.arange(3.0)), ScoreStream()
    stream.update(torch.zeros(0))
    with pytest.raises(ValueError, match="must not be NaN"):
        stream.update(torch.tensor([1.0, torch.nan]))
    assert stream.count == 3
    with pytest.raises(ValueError, match="at least 2, got 1"):
        ScoreStream(capacity=1)
    with pytest.raises(ValueError, match="do not merge"):
        stream.merge(ScoreStream(capacity=5))
    for reading in (
        stream.auroc,
        functools.partial(stream.aupr, positive="id"),
        functools.partial(stream.fpr_at_tpr, tpr=0.9, positive="id"),
    ):
        with pytest.raises(ValueError, match="got 3 ID and 0 OOD"):
            reading(none)
    with pytest.raises(ValueError, match="tpr is the share"):
        stream.fpr_at_tpr(stream, tpr=0.0, positive="id")
