"""What NECO, ViM and Residual take from float32 products against float64, where it could go wrong."""

import pytest
import torch
from torch import Tensor

from thermocline import detect
from thermocline.detect import axes as shape
from thermocline.moments import Moments

N, D, C = 9000, 64, 10


def cloud(gen: torch.Generator, n: int, decay: float = 1.5) -> Tensor:
    mix = torch.randn(D, D, generator=torch.Generator().manual_seed(1)) * torch.logspace(0, -decay, D)[:, None]
    return torch.randn(n, D, generator=gen) @ mix


def features(kind: str, gen: torch.Generator) -> Tensor:
    x, which = cloud(gen, N), torch.arange(N) % C
    points = 5 * torch.randn(C, D, generator=gen)
    match kind:
        case "relu":
            return x.relu()
        case "few values":
            return (x > 1).float() + 0.3
        case "sorted classes":
            return x + points[which.sort().values]
        case "collapsed" | "all but one point":
            return points[which] + (1e-2 if kind == "collapsed" else 1e-5) * torch.randn(N, D, generator=gen)
        case "far from zero":
            return x + 300
        case "scales":
            return x * torch.logspace(-4, 4, D)
        case "constant":
            return torch.cat([torch.full((N, 2), 12345.678), torch.full((N, 1), 0.1), x[:, 3:]], 1)
        case "one far out":
            return torch.cat([x[:1], 1e3 * x[1:2], x[2:]])
        case "half":
            return x.half()
        case "bfloat16":
            return x.bfloat16()
        case _:
            return x


KINDS = (
    "plain", "relu", "few values", "sorted classes", "collapsed", "all but one point", "far from zero", "scales", "constant",
    "one far out", "half", "bfloat16",
)  # fmt: skip


@pytest.mark.parametrize("dim", [C, D // 2, 0.9])
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_float64(gen: torch.Generator, kind: str, dim: float) -> None:
    x = features(kind, gen)
    weight, bias = 0.3 * torch.randn(C, D, generator=gen), torch.randn(C, generator=gen)
    test = torch.cat([x[-100:].double(), x[-100:].double().std() * torch.randn(100, D, generator=gen)])
    logits = x.float() @ weight.T
    fast = detect.ViM(weight, bias, dim=dim).fit(x, logits)
    slow = detect.ViM(weight, bias, dim=dim).fit_moments(Moments.of(x))
    for part in zip(x.split(1000), logits.split(1000)):
        slow.match(*part)
    assert torch.allclose(fast.alpha, slow.alpha, rtol=2e-6)
    residual = [
        detect.Residual(weight, bias, dim=dim).fit(x).score(test),
        detect.Residual(weight, bias, dim=dim).fit_moments(Moments.of(x)).score(test),
    ]
    assert torch.allclose(*residual, rtol=2e-5, atol=1e-6 * float(residual[1].abs().mean()))
    neco = [one.score(test) for one in (detect.NECO(dim).fit(x), detect.NECO(dim).fit_moments(Moments.of(x)))]
    # Where one sample makes nearly all of the variance, what is left is known less well.
    assert torch.allclose(*neco, rtol=2e-6, atol=1e-5 if kind == "one far out" else 0)


def test_float32_is_used_where_it_does_and_only_there(gen: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, learned = torch.randn(C, D, generator=gen), []
    monkeypatch.setattr(Moments, "of", classmethod(lambda cls, x: learned.append(len(x)) or shape.standard_moments(x.float())))
    for kind, again in {"plain": [], "relu": [], "collapsed": [N], "bfloat16": [N]}.items():
        learned.clear()
        detect.Residual(weight, dim=D // 2).fit(features(kind, gen))
        assert learned == again, kind


@pytest.mark.parametrize("detector", [detect.NECO(dim=9), detect.Residual(torch.ones(C, D), dim=9)])
def test_squares_beyond_float32_are_no_infinity(gen: torch.Generator, detector: detect.Detector) -> None:
    x = cloud(gen, N)
    x[1] *= 1e25
    with pytest.raises(ValueError, match="dim=9 takes 9 axes of features that vary along 1"):
        detector.fit(x)


def test_a_cut_among_small_axes_would_have_moved(gen: torch.Generator) -> None:
    """The trap is there: the same axes by float32 products, taken on trust, are off by a per cent."""
    x, other = features("collapsed", gen), torch.randn(100, D, generator=gen)
    residual = detect.Residual(torch.randn(C, D, generator=gen), dim=D // 2)
    for detector, scored in ((residual, x[:100]), (detect.NECO(D // 2), other)):
        rough, fine = (detector.fit_moments(moments).score(scored) for moments in (shape.standard_moments(x), Moments.of(x)))
        assert not torch.allclose(rough, fine, rtol=1e-4)


def test_scales_are_those_of_all_classes_where_classes_take_turns(gen: torch.Generator) -> None:
    """Every 18th of 9000 samples, about 512 in all, is of one class here, whose mean is four standard deviations away."""
    mine = torch.arange(N)[:, None] % 18 == 0
    x = torch.where(mine, 10 + cloud(gen, N).relu(), 0.0)
    rough, exact = (moments.covariance(ddof=0) for moments in (shape.standard_moments(x), Moments.of(x)))
    std = exact.diagonal().sqrt()
    assert ((rough - exact) / torch.outer(std, std)).abs().max() < 3e-7


@pytest.mark.parametrize("size", [1e-25, 1.0, 1e25])
def test_a_residual_next_to_nothing_is_left_to_float64(gen: torch.Generator, size: float) -> None:
    x = cloud(gen, N)
    others = torch.linalg.qr(torch.randn(D, D, generator=gen).double())[0][:, 20:]
    expected = ((size * x).double() @ others).norm(dim=1).sum()
    found = shape.rough_residual(size * x, torch.zeros(D).double(), others)
    assert (found is None) == (size != 1)
    assert found is None or torch.allclose(found, expected, rtol=1e-6)
    inside = (x.double() - x.double() @ others @ others.T).float()
    assert shape.rough_residual(size * inside, torch.zeros(D).double(), others) is None
    assert shape.rough_residual(x + 1000, torch.full((D,), 1000.0).double(), others) is None


@pytest.mark.parametrize("kind", ["relu", "few values"])
def test_values_that_many_samples_share_are_not_rounded_to_one_side(gen: torch.Generator, kind: str) -> None:
    x = features(kind, gen)
    fine = Moments.of(x).covariance(ddof=0)
    std = fine.diagonal().sqrt()
    error = (shape.standard_moments(x).covariance(ddof=0) - fine) / torch.outer(std, std)
    assert error.square().mean().sqrt() < shape.ROUNDING
