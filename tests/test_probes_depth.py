"""Effective depth and OOD drop by hand, in the precision given; what is no accuracy is refused."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from thermocline import probes


@pytest.mark.parametrize(
    ("accuracy", "threshold", "depth"),
    [
        ([0.1, 0.5, 1.0], 0.99, 1.0),
        ([0.99, 0.5, 1.0], 0.99, 1 / 3),
        ([0.989, 0.995, 1.0], 0.99, 2 / 3),
        ([0.9, 0.2, 0.9], 0.95, 1 / 3),
        ([0.4], 0.99, 1.0),
        ([9207 / 10000, 9300 / 10000], 0.99, 0.5),
        ([9206 / 10000, 9300 / 10000], 0.99, 1.0),
    ],
)
def test_effective_depth_by_hand(accuracy: list[float], threshold: float, depth: float) -> None:
    assert np.isclose(probes.effective_depth(torch.tensor(accuracy, dtype=torch.float64), threshold=threshold), depth)


def test_layers_that_tie_but_for_rounding_are_as_good() -> None:
    """The least count of right answers that is 99 % of another's, for all that can be so exactly."""
    for total in (300, 10_000):
        for right in range(100, total + 1, 100):
            shares = [(right * 99 // 100 - 1) / total, right * 99 // 100 / total, right / total]
            assert probes.effective_depth(shares) == probes.effective_depth([100 * share for share in shares]) == 2 / 3
            assert probes.effective_depth(np.array(shares, dtype=np.float32)) == np.float32(2 / 3)


def test_ood_drop_by_hand() -> None:
    assert probes.ood_drop(torch.tensor([0.2, 0.4, 0.8])) == 0
    with pytest.raises(ValueError, match="no layer got anything right"):
        probes.ood_drop(torch.tensor([0.0, 0.0]))
    assert np.isclose(probes.ood_drop(torch.tensor([0.5, 0.8, 0.2])), 0.75)


@pytest.mark.parametrize("measure", [probes.effective_depth, probes.ood_drop])
def test_what_is_read_from_accuracies_keeps_their_precision(measure: Callable[..., torch.Tensor]) -> None:
    values = [1.0, 0.1, 0.9]
    exact = {probes.effective_depth: 1 / 3, probes.ood_drop: 0.1}[measure]
    for same in (values, tuple(values), np.array(values), torch.tensor(values, dtype=torch.float64)):
        assert measure(same).dtype == torch.float64
        assert abs(float(measure(same)) - exact) < 1e-15
    assert measure(torch.tensor(values)).dtype == measure(np.array(values, dtype=np.float32)).dtype == torch.float32
    assert measure([10, 1, 9]) == measure(torch.tensor([10, 1, 9])) == measure(np.array([10, 1, 9]))
    assert abs(float(measure([10, 1, 9])) - exact) < 1e-15


@pytest.mark.parametrize("measure", [probes.effective_depth, probes.ood_drop])
@pytest.mark.parametrize(
    ("accuracy", "message"),
    [
        ([0.1, 0.2, float("nan")], "accuracy must not be NaN or infinite"),
        ([float("inf"), 0.2], "accuracy must not be NaN or infinite"),
        ([0.5, -0.5], "accuracy must be at least 0, got -0.5"),
        ([], r"one value a layer, got shape \(0,\)"),
    ],
)
def test_bad_accuracies_are_refused(measure: Callable[..., torch.Tensor], accuracy: list[float], message: str) -> None:
    for given_as in (accuracy, torch.tensor(accuracy), np.array(accuracy)):
        with pytest.raises(ValueError, match=message):
            measure(given_as)
