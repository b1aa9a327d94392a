"""How a stream is cut cannot change the answer; float64 against numpy."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thermocline.moments import (
    NARROW,
    STRIP,
    ClassMoments,
    Moments,
    class_means,
    grouped,
    reals,
    require_finite,
    require_labels,
)


def sample(seed: int, n: int = 41, d: int = 6) -> torch.Tensor:
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    return x @ torch.diag(torch.logspace(-2, 2, d)) + 100


def within_by_definition(x: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    wide, y = x.double().numpy(), labels.numpy()
    deviations = np.concatenate([wide[y == c] - wide[y == c].mean(0) for c in np.unique(y)])
    return deviations.T @ deviations


def assert_same(one: ClassMoments, other: ClassMoments, *, rtol: float = 1e-9) -> None:
    assert one.count == one.all.count == other.count == other.all.count
    assert torch.equal(one.counts, other.counts)
    assert torch.allclose(one.means, other.means, rtol=1e-12)
    assert torch.allclose(one.all.mean, other.all.mean, rtol=1e-12)
    assert torch.allclose(one.all.scatter, other.all.scatter, rtol=rtol, atol=1e-9)
    assert torch.allclose(one.within, other.within, rtol=rtol, atol=1e-9)


@given(st.integers(0, 99), st.lists(st.integers(0, 41), max_size=5), st.booleans(), st.booleans())
def test_any_cut_and_any_merge_order_agree(seed: int, cuts: list[int], backwards: bool, stream: bool) -> None:
    """Five classes, of which one is never seen and, sorted by label, most are absent from most batches."""
    x, y = sample(seed), torch.arange(41).sort().values * 4 // 41
    pieces = list(zip(torch.tensor_split(x, sorted(cuts)), torch.tensor_split(y, sorted(cuts))))
    joined = ClassMoments(6, 5)
    for a, b in reversed(pieces) if backwards else pieces:
        if stream:
            joined.update(a, b)
        else:
            joined.merge(ClassMoments.of(a, b, classes=5))
    assert_same(joined, ClassMoments.of(x, y, classes=5))


@given(st.integers(0, 99))
def test_neither_order_of_samples_nor_names_of_classes_matter(seed: int) -> None:
    gen = torch.Generator().manual_seed(seed)
    x, y = sample(seed), torch.randint(7, (41,), generator=gen)
    order, names = torch.randperm(41, generator=gen), torch.randperm(7, generator=gen)
    whole, moved = ClassMoments.of(x, y, classes=7), ClassMoments(6, 7)
    for batch in order.split(9):
        moved.update(x[batch], names[y[batch]])
    assert torch.equal(moved.counts[names], whole.counts)
    assert torch.allclose(moved.means[names], whole.means, rtol=1e-12)
    assert torch.allclose(moved.within, whole.within, rtol=1e-9, atol=1e-9)


@given(st.integers(0, 99))
def test_scatters_turn_with_the_features(seed: int) -> None:
    gen = torch.Generator().manual_seed(seed)
    x, y = sample(seed).double(), torch.arange(41) % 3
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=gen, dtype=torch.float64)).Q
    still, turned = ClassMoments.of(x, y, classes=3), ClassMoments.of(5 * x @ rotation, y, classes=3)
    assert torch.allclose(turned.within, 25 * rotation.T @ still.within @ rotation, rtol=1e-9, atol=1e-6)
    assert torch.allclose(turned.all.scatter, 25 * rotation.T @ still.all.scatter @ rotation, rtol=1e-9, atol=1e-6)


def test_against_numpy_far_from_the_origin(gen: torch.Generator) -> None:
    """Mean 100, std 0.1: float32 second moments are 34 % off here."""
    x = 100 + 0.1 * torch.randn(5000, 3, generator=gen)
    m = Moments(3)
    for batch in x.split(7):
        m.update(batch)
    labelled = ClassMoments.of(x, torch.arange(5000) % 3, classes=3).all
    for moments in (m, Moments.of(x), labelled):
        assert moments.count == 5000
        assert np.allclose(moments.covariance(ddof=1), np.cov(x.double().numpy(), rowvar=False), rtol=1e-10)
    assert np.allclose(m.second_moment(), x.double().T @ x.double(), rtol=1e-12)


def test_two_halves_merge_into_the_whole(gen: torch.Generator) -> None:
    x = torch.randn(90, 4, generator=gen) + 30
    left, right, empty = Moments.of(x[:13]), Moments.of(x[13:]), Moments(4)
    left.merge(right)
    left.merge(empty)
    empty.merge(left)
    assert left.count == empty.count == 90
    assert np.allclose(empty.covariance(ddof=0), np.cov(x.double().numpy(), rowvar=False, ddof=0), rtol=1e-12)


@pytest.mark.parametrize(("left", "right"), [(4, 1), (1, 4), (4, 0), (0, 4), (4, 4)])
def test_states_with_room_for_unlike_numbers_of_classes_merge(gen: torch.Generator, left: int, right: int) -> None:
    parts = [(torch.randn(30, 3, generator=gen) + 9, torch.arange(30) % max(classes, 1)) for classes in (left, right)]
    one, other = (ClassMoments.of(*(t[: 30 * bool(c)] for t in part), classes=c) for part, c in zip(parts, (left, right)))
    one.merge(other)
    kept = [part for part, classes in zip(parts, (left, right)) if classes]
    x, y = (torch.cat(tensors) for tensors in zip(*kept))
    assert_same(one, ClassMoments.of(x, y, classes=4))
    assert np.allclose(one.within, within_by_definition(x, y))
    assert len(other.counts) == right


def test_other_widths_are_refused_and_change_nothing() -> None:
    for ours, theirs in ((10, 1), (1, 10)):
        plain, labelled = Moments.of(torch.eye(10, ours)), ClassMoments.of(torch.eye(10, ours), torch.arange(10), classes=10)
        x = torch.ones(10, theirs)
        for refused in (
            lambda plain=plain, x=x: plain.merge(Moments.of(x)),
            lambda plain=plain, x=x: plain.merge(Moments(x.shape[1])),
            lambda plain=plain, x=x: plain.update(x),
            lambda labelled=labelled, x=x: labelled.merge(ClassMoments.of(x, torch.arange(10), classes=10)),
            lambda labelled=labelled, x=x: labelled.update(x, torch.arange(10)),
        ):
            with pytest.raises(ValueError, match=rf"moments of width {ours}, which cannot take in .* \({theirs},\)"):
                refused()
        assert plain.count == labelled.count == 10
        assert np.allclose(plain.second_moment(), torch.eye(10, ours).T @ torch.eye(10, ours))


def test_within_and_between_by_definition(gen: torch.Generator) -> None:
    y = torch.randint(6, (200,), generator=gen) ** 2 % 7  # unequal sizes, and classes 3, 5 and 6 never seen
    x = 3 * torch.randn(7, 5, generator=gen)[y] + torch.randn(200, 5, generator=gen)
    m = ClassMoments(5, 7)
    for a, b in zip(x.split(23), y.split(23)):
        m.update(a, b)
    seen = [c for c in range(7) if (y == c).any()]
    assert seen == [0, 1, 2, 4]
    wide = x.double().numpy()
    within = within_by_definition(x, y)
    means, sizes = np.stack([wide[y == c].mean(0) for c in seen]), np.array([(y == c).sum() for c in seen])
    assert np.allclose(m.within_covariance(ddof=0), within / 200)
    assert np.allclose(m.within_covariance(ddof=1), within / (200 - 4))
    between = np.cov(means.T, fweights=sizes, ddof=0)
    assert np.allclose(m.within_covariance(ddof=0).numpy() + between, m.all.covariance(ddof=0))


@pytest.mark.parametrize("merge", [False, True])
def test_collapsed_classes_keep_their_scatter(gen: torch.Generator, merge: bool) -> None:
    """Classes 1e-8 as wide as they are apart: total minus between has no right digit left, the pairwise rule has them."""
    y = torch.randint(5, (400,), generator=gen)
    x = 10 * torch.randn(5, 3, generator=gen, dtype=torch.float64)[y]
    x = x + 1e-7 * torch.randn(400, 3, generator=gen, dtype=torch.float64)
    m = ClassMoments(3, 5)
    for a, b in zip(x.split(37), y.split(37)):
        if merge:
            m.merge(ClassMoments.of(a, b, classes=5))
        else:
            m.update(a, b)
    expected = within_by_definition(x, y)
    assert np.allclose(m.within, expected, rtol=1e-6, atol=1e-7 * expected.max())
    apart = m.means - m.all.mean
    subtracted = m.all.scatter - (apart.T * m.counts) @ apart
    assert not np.allclose(subtracted, expected, rtol=0.1, atol=0.1 * expected.max())


def test_many_classes_wider_than_a_batch(gen: torch.Generator) -> None:
    x, y = torch.randn(300, 16, generator=gen), torch.randint(1000, (300,), generator=gen)
    m = ClassMoments(16, 1000)
    for a, b in zip(x.split(50), y.split(50)):
        m.update(a, b.to(torch.int32))
    assert np.allclose(m.within, within_by_definition(x, y), atol=1e-10)
    assert np.allclose(m.all.covariance(ddof=0), np.cov(x.double().numpy(), rowvar=False, ddof=0))


@given(st.integers(0, 99), st.lists(st.integers(0, 41), max_size=5))
def test_layers_may_share_one_grouping_of_a_batch(seed: int, cuts: list[int]) -> None:
    """Two layers of unlike width; the groups of a batch may lack the last classes, or every class of an empty one."""
    gen = torch.Generator().manual_seed(seed)
    x, y = sample(seed), torch.randint(5, (41,), generator=gen)
    shared, apart = ([ClassMoments(width, 5) for width in (6, 2)] for _ in range(2))
    for a, b in zip(torch.tensor_split(x, sorted(cuts)), torch.tensor_split(y, sorted(cuts))):
        groups = grouped(b)
        assert groups.classes == (int(b.max()) + 1 if len(b) else 0)
        for one, other, width in zip(shared, apart, (6, 2)):
            one.update(a[:, :width], groups)
            other.update(a[:, :width], b)
    for one, other in zip(shared, apart):
        assert one.count == other.count == 41
        for name in ("counts", "means", "within"):
            assert torch.equal(getattr(one, name), getattr(other, name))


def test_room_for_classes_can_be_made_on_the_way(gen: torch.Generator) -> None:
    x, y = torch.randn(60, 4, generator=gen), torch.arange(60) // 10
    m = ClassMoments(4, 1)
    for a, b in zip(x.split(7), y.split(7)):
        m.widen(grouped(b).classes)
        m.update(a, b)
        m.widen(1)
    assert_same(m, ClassMoments.of(x, y, classes=6))
    with pytest.raises(ValueError, match="7 classes, and room for 6: widen first"):
        m.update(x[:1], grouped(torch.tensor([6])))


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest):
    """One thread of torch's, or two: the Gram of a CPU is computed in another way."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("n", "d"), [(50, 7), (200, 2 * STRIP + 3), (40, NARROW + 30), (1100, 2048)])
def test_wide_and_long_matrices_agree_with_numpy(gen: torch.Generator, n: int, d: int) -> None:
    """Wider than a strip of the Gram, and more rows than are taken at a time."""
    x, y = torch.randn(n, d, generator=gen) + 5, torch.randint(4, (n,), generator=gen)
    labelled, plain = ClassMoments.of(x, y, classes=4), Moments.of(x)
    covariance = np.cov(x.double().numpy(), rowvar=False, ddof=0)
    for moments in (plain, labelled.all):
        assert np.allclose(moments.covariance(ddof=0), covariance, rtol=1e-10, atol=1e-12)
    assert np.allclose(labelled.within, within_by_definition(x, y), rtol=1e-10, atol=1e-10 * n)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.T.contiguous().T, lambda x: x[::2, 1:5], lambda x: x[:, :1].expand(-1, 3)]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_features_are_read_in_any_layout_and_left_as_they_were(gen: torch.Generator, view, dtype: torch.dtype) -> None:
    x = view(torch.randn(30, 6, generator=gen).to(dtype))
    y, before = torch.arange(len(x)) % 3, x.clone()
    m, stream = ClassMoments.of(x, y, classes=3), ClassMoments(x.shape[1], 3)
    stream.update(x, y)
    plain = Moments.of(x)
    plain.update(x)
    assert torch.equal(x, before)
    assert_same(m, stream)
    assert np.allclose(m.within, within_by_definition(x, y), atol=1e-10)
    assert np.allclose(plain.covariance(ddof=0), np.cov(x.double().numpy(), rowvar=False, ddof=0), atol=1e-10)


def test_class_means_by_definition(gen: torch.Generator) -> None:
    x, y = torch.randn(2500, 2048, generator=gen) + 100, torch.randint(6, (2500,), generator=gen) ** 2 % 7
    counts, means = class_means(x, y, classes=8)
    assert counts.tolist() == torch.bincount(y, minlength=8).tolist()
    for c in range(8):
        expected = x[y == c].double().mean(0) if (y == c).any() else torch.zeros(2048, dtype=torch.float64)
        assert torch.allclose(means[c], expected, rtol=1e-13)


def test_every_sample_needs_a_label() -> None:
    with pytest.raises(ValueError, match="3 samples and 2 labels"):
        ClassMoments(2, 2).update(torch.ones(3, 2), grouped(torch.tensor([0, 1])))


def test_an_empty_batch_changes_nothing() -> None:
    m = ClassMoments.of(torch.ones(3, 2), torch.tensor([0, 1, 1]), classes=2)
    m.update(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
    assert_same(m, ClassMoments.of(torch.ones(3, 2), torch.tensor([0, 1, 1]), classes=2))
    assert Moments.of(torch.zeros(0, 2)).count == ClassMoments.of(torch.zeros(0, 2), y := torch.arange(0), classes=2).count == 0
    assert class_means(torch.zeros(0, 2), y, classes=2)[0].tolist() == [0, 0]


def test_a_stream_with_gradients_leaves_no_graph() -> None:
    x = torch.ones(4, 2, requires_grad=True)
    m = ClassMoments.of(2 * x, torch.tensor([0, 1, 1, 0]), classes=2)
    assert not m.within.requires_grad
    assert not Moments.of(2 * x).scatter.requires_grad


def test_nan_reaches_every_reader() -> None:
    x = torch.tensor([[1.0, 2.0], [float("nan"), 0.0], [3.0, 1.0]])
    m = ClassMoments.of(x, torch.tensor([0, 1, 0]), classes=2)
    for value in (m.means, m.within, m.all.mean, m.all.scatter, Moments.of(x).scatter):
        assert value.isnan().any()
    assert m.means[0].tolist() == [2.0, 1.5]


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_out_of_range_are_refused(label: int) -> None:
    with pytest.raises(ValueError, match=r"0\.\.2"):
        ClassMoments.of(torch.ones(2, 4), torch.tensor([0, label]), classes=3)
    with pytest.raises(ValueError, match=r"0\.\.2"):
        ClassMoments(4, 3).update(torch.ones(2, 4), torch.tensor([0, label]))
    with pytest.raises(ValueError, match=r"0\.\., got -1\.\.0"):
        grouped(torch.tensor([0, -1]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_only_nan_and_infinity_are_not_finite(dtype: torch.dtype) -> None:
    """Sums of the largest numbers overflow, and infinities of both signs cancel; neither misleads."""
    largest = torch.finfo(dtype).max
    require_finite(torch.tensor([[largest, largest], [-largest, largest]], dtype=dtype), "x")
    require_finite(torch.zeros(0, 3, dtype=dtype), "x")
    for bad in ([torch.nan, 1.0], [torch.inf, -torch.inf], [1.0, -torch.inf], [torch.inf]):
        with pytest.raises(ValueError, match="^x must not be NaN or infinite$"):
            require_finite(torch.tensor(bad, dtype=dtype), "x")


def test_numbers_of_any_kind_are_read() -> None:
    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    for same in (torch.arange(3), range(3), (0, 1, 2), np.arange(3), np.arange(3.0)[::-1][::-1], read_only):
        assert torch.equal(reals(same, "x"), torch.arange(3, dtype=torch.float64))
    assert reals(np.ones(2, dtype=np.float32), "x").dtype == torch.float32
    assert reals(half := torch.ones(2, dtype=torch.bfloat16), "x") is half


@pytest.mark.parametrize("shape", [(1,), (1, 4), (4, 1), (2, 3)])
def test_an_array_may_run_backwards_along_any_axis(shape: tuple[int, ...]) -> None:
    """An axis of length 1 too, which numpy takes for one in order and torch does not."""
    there = np.arange(math.prod(shape)).reshape(shape).astype(np.float64)
    for axes in itertools.product([False, True], repeat=len(shape)):
        back = np.flip(there, [axis for axis, flipped in enumerate(axes) if flipped])
        assert torch.equal(reals(back, "x"), torch.tensor(back.tolist(), dtype=torch.float64))
    assert require_labels(1, np.ones(1, dtype=np.uint8)[::-1]).tolist() == [1]


def test_what_is_not_there_is_not_read() -> None:
    holed = np.ma.masked_array([[1.0, 2.0], [3.0, 1e20]], mask=[[0, 0], [0, 1]])
    with pytest.raises(TypeError, match="^x must be real numbers, and some are masked"):
        Moments.of(holed)
    assert Moments.of(np.ma.masked_array(holed.data)).count == 2
    with pytest.raises(ValueError, match="^every sample needs a label, and some are masked"):
        require_labels(2, np.ma.masked_array([0, 999], mask=[0, 1]))
    with pytest.raises(TypeError, match=r"^x must be dense, got torch.sparse_coo"):
        Moments.of(torch.eye(2).to_sparse())


def test_a_covariance_needs_samples() -> None:
    with pytest.raises(ValueError, match="more than 1"):
        Moments.of(torch.zeros(1, 3)).covariance(ddof=1)
    with pytest.raises(ValueError, match="more than 2"):
        ClassMoments.of(torch.zeros(2, 3), torch.tensor([0, 1]), classes=9).within_covariance(ddof=1)
