"""Alignment, patches and gradients against explicit decompositions of small layers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from thermocline import geometry
from thermocline.geometry import layers
from thermocline.moments import Moments


def conv(gen: torch.Generator, *args, **kwargs) -> nn.Conv2d:
    """A convolution whose weights come from a generator, not from the global one."""
    layer = nn.utils.skip_init(nn.Conv2d, *args, **kwargs).double()
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=gen, dtype=torch.float64)
    return layer


def cosines(weight: np.ndarray, inputs: np.ndarray, top: int) -> np.ndarray:
    """The protocol's words: inputs in columns, two full decompositions."""
    reads = np.linalg.svd(weight)[2].T[:, : min(top, len(weight))]
    axes = np.linalg.svd(inputs.T, full_matrices=False)[0][:, :top]
    return np.abs(reads.T @ axes)


@given(st.integers(0, 99), st.sampled_from([(70, 9, 4), (70, 4, 9), (5, 12, 30)]), st.booleans())
def test_alignment_of_a_linear_layer_by_definition(seed: int, shape: tuple[int, int, int], centered: bool) -> None:
    n, d, out = shape
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=gen, dtype=torch.float64) * torch.arange(1, d + 1) + 2
    weight = torch.randn(out, d, generator=gen, dtype=torch.float64)
    rank = min(n - centered, d)
    expected = cosines(weight.numpy(), (x - x.mean(0) if centered else x).numpy(), 3)
    for given_as in (x, Moments.of(x)):
        found = geometry.alignment(weight, given_as, top=3, centered=centered)
        assert np.allclose(found.matrix, expected, atol=1e-8)
        assert found.max == found.matrix.max()
        assert found.first == found.matrix[0, 0]
    everything = geometry.alignment(weight, x, top=99, centered=centered).matrix
    assert everything.shape == (min(out, d), d)
    assert (everything[:, rank:] == 0).all()


@given(st.integers(0, 99), st.floats(1e-3, 1e3))
def test_alignment_does_not_see_a_common_rotation_scale_or_order(seed: int, scale: float) -> None:
    gen = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(n, 8, generator=gen, dtype=torch.float64) for n in (50, 5))
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=gen, dtype=torch.float64)).Q
    still = geometry.alignment(weight, x, top=4)
    moved = geometry.alignment(-weight @ rotation / scale, scale * (x @ rotation)[torch.randperm(50, generator=gen)], top=4)
    assert torch.allclose(still.matrix, moved.matrix, atol=1e-6)
    assert still.null == moved.null


def test_a_weight_made_of_the_inputs_axes_is_aligned_and_a_random_one_is_not(gen: torch.Generator) -> None:
    x = torch.randn(300, 60, generator=gen, dtype=torch.float64) * torch.linspace(1, 5, 60)
    axes = torch.linalg.svd(x, full_matrices=False).Vh
    made = geometry.alignment(torch.diag(torch.linspace(9, 1, 20).double()) @ axes[:20], x)
    assert torch.allclose(made.matrix, torch.eye(15, dtype=torch.float64), atol=1e-6)
    random = [geometry.alignment(torch.randn(20, 60, generator=gen), x) for _ in range(30)]
    maxima = torch.stack([one.max for one in random])
    assert abs(maxima.mean() - random[0].null) < 4 * maxima.std() / 30**0.5
    assert (maxima < 0.75).all()


@pytest.mark.parametrize(("d", "rows", "columns"), [(9, 9, 9), (16, 4, 15), (27, 15, 15), (200, 10, 15)])
def test_the_null_is_that_of_random_rotations(gen: torch.Generator, d: int, rows: int, columns: int) -> None:
    blocks = [torch.linalg.qr(torch.randn(d, columns, generator=gen)).Q[:rows] for _ in range(300)]
    maxima = torch.stack([block.abs().max() for block in blocks])
    null = geometry.random_alignment(d, rows * columns)
    assert abs(null - maxima.mean()) < 4 * maxima.std() / 300**0.5
    assert null < (2 * np.log(2 * rows * columns) / d) ** 0.5


@pytest.mark.parametrize(("d", "rows", "columns", "low"), [(9, 9, 1, 0.07), (10, 8, 2, 0.035), (16, 10, 10, 0.01)])
def test_the_null_is_low_by_what_its_docstring_says(gen: torch.Generator, d: int, rows: int, columns: int, low: float) -> None:
    blocks = torch.linalg.qr(torch.randn(20000, d, columns, generator=gen)).Q[:, :rows]
    share = geometry.random_alignment(d, rows * columns) / blocks.abs().amax((1, 2)).mean()
    assert 1 - low < share < 1.005


def _counted(calls: list[int], function):
    def counting(gram, top):
        calls.append(len(gram))
        return function(gram, top)

    return counting


@pytest.mark.parametrize(("decay", "rank", "iterates"), [(1.0, 600, True), (0.5, 600, True), (0.0, 600, False), (1.0, 7, True)])
def test_wide_inputs_by_definition(
    gen: torch.Generator, monkeypatch: pytest.MonkeyPatch, decay: float, rank: int, iterates: bool
) -> None:
    """600 inputs: whether leading directions are iterated or, of a flat spectrum, decomposed, they are the definition's."""
    sizes = torch.arange(1, rank + 1, dtype=torch.float64) ** -decay
    x = torch.randn(700, rank, generator=gen, dtype=torch.float64) * sizes
    x = x @ torch.linalg.qr(torch.randn(600, rank, generator=gen, dtype=torch.float64))[0].T
    weight = torch.randn(20, 600, generator=gen, dtype=torch.float64)
    before = torch.get_rng_state()
    monkeypatch.setattr(layers, "ITERATED", 600)
    monkeypatch.setattr(layers, "_decomposed", _counted(decomposed := [], layers._decomposed))
    assert (layers._iterated(x.T @ x, 15) is not None) == iterates
    found = geometry.alignment(weight, x).matrix
    assert torch.equal(before, torch.get_rng_state())
    assert len(decomposed) == (1 if iterates else 2), "the weight is, and inputs where iterating failed"
    assert np.allclose(found[:, :rank], cosines(weight.numpy(), x.numpy(), 15)[:, :rank], atol=1e-7)
    assert not found[:, rank:].any()


def test_the_null_counts_the_directions_there_are(gen: torch.Generator) -> None:
    """Three samples span three directions of 40: nine cosines, whatever `top` asks for."""
    found = geometry.alignment(torch.randn(3, 40, generator=gen), torch.randn(3, 40, generator=gen), top=15)
    assert np.isclose(found.null, geometry.random_alignment(40, 9))
    along_axes = geometry.alignment(torch.eye(2, 40), torch.eye(3, 40) * torch.tensor([3.0, 2, 1])[:, None], top=15)
    assert np.isclose(along_axes.null, geometry.random_alignment(40, 6)), "a direction may have coordinates of 0"
    assert geometry.random_alignment(1, 5) == 1
    assert np.isclose(geometry.random_alignment(2, 1), 2 / np.pi)


def test_centring_matters_far_from_the_origin(gen: torch.Generator) -> None:
    x = torch.randn(80, 6, generator=gen, dtype=torch.float64) * torch.tensor([9.0, 1, 1, 1, 1, 1])
    x[:, 5] += 500
    weight = torch.diag(torch.tensor([3.0, 0, 0, 0, 0, 1]))
    assert geometry.alignment(weight, x).first < 0.1
    assert geometry.alignment(weight, x, centered=True).first > 0.9


LAYERS = [
    {"kernel_size": 3},
    {"kernel_size": (2, 3), "stride": (1, 2), "padding": (2, 1), "dilation": (3, 1)},
    {"kernel_size": (4, 2), "padding": "same", "dilation": (1, 3)},
    {"kernel_size": 3, "padding": "valid"},
    {"kernel_size": 3, "padding": (1, 2), "padding_mode": "reflect", "stride": 2, "bias": False},
    {"kernel_size": (3, 2), "padding": "same", "padding_mode": "circular"},
]


@pytest.mark.parametrize("settings", LAYERS, ids=str)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
def test_weight_times_patches_is_the_convolution(gen: torch.Generator, settings: dict) -> None:
    layer = conv(gen, 3, 5, **settings)
    x = torch.randn(2, 3, 9, 11, generator=gen, dtype=torch.float64)
    out = layer(x).detach()
    patches = geometry.unfold_patches(x, layer)
    assert patches.shape == (2 * out.shape[2] * out.shape[3], layer.weight[0].numel())
    bias = 0 if layer.bias is None else layer.bias.detach()[:, None]
    product = layer.weight.detach().flatten(1) @ patches.T + bias
    assert torch.allclose(product, out.transpose(0, 1).flatten(1), rtol=1e-12, atol=1e-12)


def test_every_group_has_its_own_patches(gen: torch.Generator) -> None:
    layer = conv(gen, 6, 8, kernel_size=(1, 3), groups=2, bias=False)
    x = torch.randn(3, 6, 4, 7, generator=gen, dtype=torch.float64)
    with pytest.raises(ValueError, match="2 groups"):
        geometry.unfold_patches(x, layer)
    weights = layer.weight.detach().chunk(2)
    parts = [weights[g].flatten(1) @ geometry.unfold_patches(x, layer, group=g).T for g in (0, 1)]
    assert torch.allclose(torch.cat(parts), layer(x).detach().transpose(0, 1).flatten(1), atol=1e-12)


def test_alignment_of_a_small_convolutional_net_by_definition(gen: torch.Generator) -> None:
    """Streamed patches of the second layer's inputs against one explicit SVD of them all."""
    stem, layer = conv(gen, 2, 4, 3, padding=1), conv(gen, 4, 6, (3, 2), stride=2, padding=1)
    images = torch.randn(12, 2, 8, 6, generator=gen, dtype=torch.float64)
    moments, seen = Moments(4 * 3 * 2), []
    for batch in images.split(5):
        inputs = stem(batch).relu().detach()
        moments.update(geometry.unfold_patches(inputs, layer))
        seen += [nn.functional.unfold(inputs, (3, 2), stride=2, padding=1).permute(1, 0, 2).flatten(1)]
    found = geometry.alignment(layer.weight, moments, top=5)
    everything = torch.cat(seen, dim=1)
    assert np.allclose(found.matrix, cosines(layer.weight.detach().flatten(1).numpy(), everything.T.numpy(), 5), atol=1e-8)
    assert not found.matrix.requires_grad


@pytest.mark.parametrize("rank", [1, 3, 7])
def test_inputs_bound_the_rank_of_the_gradient(gen: torch.Generator, rank: int) -> None:
    inputs = torch.randn(200, rank, generator=gen, dtype=torch.float64) @ torch.randn(rank, 15, generator=gen).double()
    first, second = (torch.randn(s, generator=gen, dtype=torch.float64, requires_grad=True) for s in ((11, 15), (10, 11)))
    hidden = (inputs @ first.T).relu()
    nn.functional.cross_entropy(hidden @ second.T, torch.randint(10, (200,), generator=gen)).backward()
    assert first.grad is not None
    assert second.grad is not None
    found = int(geometry.gradient_rank(first.grad, of="features", rtol=1e-6))
    assert found == int(geometry.numerical_rank(inputs, of="features", rtol=1e-6, centered=False)) == rank
    hidden_rank = int(geometry.numerical_rank(hidden.detach(), of="features", rtol=1e-6, centered=False))
    # Ten logits whose gradients sum to zero for every sample: one direction fewer than classes.
    assert int(geometry.gradient_rank(second.grad, of="features", rtol=1e-6)) == min(hidden_rank, 9)


def test_gradient_rank_of_a_convolution_is_that_of_its_matrix(gen: torch.Generator) -> None:
    layer = conv(gen, 3, 7, 2)
    layer(torch.randn(4, 3, 5, 6, generator=gen, dtype=torch.float64)).square().mean().backward()
    assert layer.weight.grad is not None
    assert int(geometry.gradient_rank(layer.weight.grad, of="features", rtol=1e-6)) == 7
    assert int(geometry.gradient_rank(torch.zeros(7, 3, 2, 2), of="covariance", rtol=1e-3)) == 0


def test_alignment_refuses_what_is_not_finite() -> None:
    bad = torch.eye(3)
    bad[1, 2] = torch.nan
    with pytest.raises(ValueError, match="the weight must not be NaN or infinite"):
        geometry.alignment(bad, torch.eye(3))
    for centered in (False, True):
        with pytest.raises(ValueError, match="the activations, .* must not be NaN or infinite"):
            geometry.alignment(torch.eye(3), bad, centered=centered)
    with pytest.raises(ValueError, match="must not be NaN or infinite"):
        geometry.gradient_rank(bad, of="features", rtol=1e-3)
