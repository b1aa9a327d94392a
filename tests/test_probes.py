"""Ridge probes against scikit-learn; depth and drop on cases done by hand; a negative control."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

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


def test_shuffled_labels_give_chance(gen: torch.Generator) -> None:
    x, y = labelled(gen, 4000)
    x_new, y_new = x[2000:], y[2000:]
    fitted = probes.ridge_probe(ClassMoments.of(x[:2000], y[:2000], classes=7), alpha=1.0)
    assert (fitted.predict(x_new) == y_new).double().mean() > 0.95
    shuffled = y[:2000][torch.randperm(2000, generator=gen)]
    control = probes.ridge_probe(ClassMoments.of(x[:2000], shuffled, classes=7), alpha=1.0)
    assert abs((control.predict(x_new) == y_new).double().mean() - 1 / 7) < 0.08


@pytest.mark.parametrize(
    ("accuracy", "threshold", "depth"),
    [
        ([0.1, 0.5, 1.0], 0.99, 1.0),
        ([0.99, 0.5, 1.0], 0.99, 1 / 3),
        ([0.989, 0.995, 1.0], 0.99, 2 / 3),
        ([0.9, 0.2, 0.9], 0.95, 1 / 3),
        ([0.4], 0.99, 1.0),
    ],
)
def test_effective_depth_by_hand(accuracy: list[float], threshold: float, depth: float) -> None:
    assert np.isclose(probes.effective_depth(torch.tensor(accuracy, dtype=torch.float64), threshold=threshold), depth)


def test_ood_drop_by_hand() -> None:
    assert probes.ood_drop(torch.tensor([0.2, 0.4, 0.8])) == 0
    assert probes.ood_drop(torch.tensor([0.0, 0.0])) == 0
    assert np.isclose(probes.ood_drop(torch.tensor([0.5, 0.8, 0.2])), 0.75)
