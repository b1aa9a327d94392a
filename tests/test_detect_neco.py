"""What NECO's faster product in float32 leaves as it was; and the oracle that chooses its dimension."""

import pytest
import torch
from torch import Tensor

from thermocline import detect
from thermocline.detect.axes import standard_moments
from thermocline.moments import Moments


def cloud(gen: torch.Generator, n: int, d: int = 64) -> Tensor:
    mix = torch.randn(d, d, generator=torch.Generator().manual_seed(1)) * torch.logspace(0, -1.5, d)[:, None]
    return torch.randn(n, d, generator=gen) @ mix


def both(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    return detect.NECO().fit(train).score(test), detect.NECO().fit_moments(Moments.of(train)).score(test)


def test_a_mean_far_from_zero_costs_nothing(gen: torch.Generator) -> None:
    """Mean 100, deviation 0.1, where a plain product in float32 is off by a third."""
    train, test = (100 + 0.1 * cloud(gen, n) / 4 for n in (9000, 500))
    plain = (train.T @ train / len(train) - torch.outer(train.mean(0), train.mean(0))).diagonal()
    exact = train.double().var(0, correction=0)
    assert (plain / exact - 1).abs().max() > 0.1  # the trap is there
    assert torch.allclose(standard_moments(train).covariance(ddof=0).diagonal(), exact, rtol=1e-6)
    assert torch.allclose(*both(train, test), rtol=1e-6)


def test_constant_features_stay_constant(gen: torch.Generator) -> None:
    train, test = cloud(gen, 9000), cloud(gen, 100)
    train[:, 3], train[:, 5], train[:, 7] = 0.1, 1e-20, 12345.678
    test[:, 3] = 0.2
    detector = detect.NECO().fit(train, torch.empty(9000, 0), torch.zeros(9000).long())
    assert torch.equal(detector.std[[3, 5, 7]], torch.ones(3).double())
    assert torch.equal(detector.mean[[3, 5, 7]], train[0, [3, 5, 7]].double())
    assert torch.allclose(*both(train, test), rtol=1e-6)


def test_autocast_rounds_nothing(gen: torch.Generator) -> None:
    train, test = cloud(gen, 9000), cloud(gen, 210)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.allclose(*both(train, test), rtol=1e-6)


@pytest.mark.parametrize("flip", [False, True])
def test_the_oracle_is_the_best_of_all_dimensions(gen: torch.Generator, flip: bool) -> None:
    train, inside, outside = cloud(gen, 900, 16), cloud(gen, 210, 16), torch.randn(130, 16, generator=gen)
    if flip:
        inside, outside = outside, inside
    moments, none = Moments.of(train), torch.empty(210, 0)
    found = []
    for dim in range(1, 16):  # all 16 are refused: every score would be 1
        scores = (detect.NECO(dim).fit_moments(moments).score(x, none[: len(x)]) for x in (inside, outside))
        found.append(float(detect.auroc(*scores)))
    dim, value = detect.neco_oracle(moments, inside, outside)
    assert value == pytest.approx(max(found), abs=1e-9)
    assert found[dim - 1] == pytest.approx(max(found), abs=1e-9)


@pytest.mark.parametrize("samples", [20, 900])
def test_the_oracle_takes_no_axes_that_exist_by_rounding(gen: torch.Generator, samples: int) -> None:
    """Few samples, or features that lie in few directions: `fit` refuses more axes than these, and so does the oracle."""
    train = torch.randn(samples, 64, generator=gen)
    if samples > 64:
        train = train[:, :8] @ torch.randn(8, 64, generator=gen)
    most = 19 if samples == 20 else 8
    outside = torch.randn(200, 64, generator=gen)
    for seed in range(5):  # other data that differ from these in nothing are told apart by luck, at any number of axes
        inside = torch.randn(200, 64, generator=torch.Generator().manual_seed(seed))
        dim, value = detect.neco_oracle(train.double(), inside, outside)
        scores = (detect.NECO(dim).fit(train.double()).score(x) for x in (inside, outside))
        assert dim <= most
        assert float(detect.auroc(*scores)) == pytest.approx(float(value), abs=1e-9)


def test_the_oracle_of_features_that_never_vary() -> None:
    with pytest.raises(ValueError, match="these vary along 0"):
        detect.neco_oracle(torch.full((20, 3), 0.1), torch.ones(4, 3), torch.zeros(4, 3))
