"""The fitted temperature and the scores of probabilities, against scipy, scikit-learn and plain numpy."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss

from thermocline import softmax
from thermocline.softmax import calibration

SCHEMES = ["equal-width", "adaptive"]


def honest(seed: int, n: int = 400, c: int = 7, scale: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, and labels drawn from the probabilities they are: calibrated at T = 1."""
    gen = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, c, generator=gen, dtype=torch.float64)
    return logits, torch.multinomial(torch.softmax(logits, 1), 1, generator=gen)[:, 0]


def loss_at(logits: torch.Tensor, labels: torch.Tensor, temperature: float) -> float:
    log_p = scipy.special.log_softmax(logits.double().numpy() / temperature, axis=1)
    return -log_p[np.arange(len(labels)), labels.numpy()].mean()


def ece_by_numpy(p: np.ndarray, labels: np.ndarray, bins: int, scheme: str) -> float:
    confidence, right, total = p.max(1), p.argmax(1) == labels, 0.0
    for b in range(bins):
        if scheme == "equal-width":
            here = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        else:
            here = np.array([(confidence < one).sum() * bins // len(p) == b for one in confidence])
        if here.any():
            total += here.mean() * abs(right[here].mean() - confidence[here].mean())
    return total


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.uint16])
def test_arrays_are_read_as_tensors_are(dtype: type) -> None:
    logits, labels = honest(0)
    p, short = torch.softmax(logits, 1), labels.numpy().astype(dtype)
    backwards = np.flip(np.flip(logits.numpy(), 0).copy(), 0)  # as torch cannot have memory
    backwards.flags.writeable = False
    for rows in (backwards, logits, logits.numpy().astype(">f8")):
        assert softmax.fit_temperature(rows, short) == softmax.fit_temperature(logits, labels)
    for score in (softmax.brier_score, softmax.negative_log_likelihood):
        assert score(short, probabilities=p.numpy()) == score(labels, probabilities=p)
        # An axis of length 1 may run backwards and be contiguous to numpy.
        assert score(short[:1][::-1], probabilities=p[:1].numpy()[::-1]) == score(labels[:1], probabilities=p[:1])
        with pytest.raises(ValueError, match="some are masked"):
            score(np.ma.masked_array(short, mask=short == short[0]), probabilities=p)
    ece = softmax.expected_calibration_error
    assert ece(short, probabilities=p.numpy(), scheme="adaptive") == ece(labels, probabilities=p, scheme="adaptive")


@pytest.mark.parametrize("temperature", [0.01, 1.0, 5.0, 100.0, 1000.0])
def test_the_temperature_that_was_put_in_is_found(temperature: float) -> None:
    logits, labels = honest(0, n=20_000, c=100)
    given_out = (temperature * logits).float()
    fitted = softmax.fit_temperature(given_out, labels)
    assert fitted == pytest.approx(temperature, rel=0.03)
    for scheme in SCHEMES:
        error = softmax.expected_calibration_error(labels, logits=given_out, temperature=fitted, scheme=scheme)
        assert error <= 0.015
    if temperature != 1:
        assert softmax.expected_calibration_error(labels, logits=given_out, temperature=1.0, scheme="adaptive") > 0.1


@given(st.integers(0, 99), st.floats(-3, 3), st.integers(2, 12), st.integers(40, 300), st.floats(0.1, 30))
def test_the_fit_matches_scipy(seed: int, log_scale: float, c: int, n: int, scale: float) -> None:
    logits, labels = honest(seed, n, c, scale)
    labels[0], labels[1] = logits[0].argmin(), logits[1].argmax()  # neither all right nor all wrong
    if (logits - logits.gather(1, labels[:, None])).mean() >= 0:
        with pytest.raises(ValueError, match="hotter is likelier"):
            softmax.fit_temperature(10**log_scale * logits, labels)
        return
    fitted = softmax.fit_temperature(10**log_scale * logits, labels)
    found = scipy.optimize.minimize_scalar(
        lambda u: loss_at(logits, labels, math.exp(u)), bounds=(-12, 12), method="bounded", options={"xatol": 1e-9}
    )
    least = loss_at(logits, labels, fitted / 10**log_scale)
    assert least <= found.fun * (1 + 1e-12)
    if abs(found.x) < 10:
        assert fitted == pytest.approx(10**log_scale * math.exp(found.x), rel=1e-4)


@given(st.integers(0, 99), st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_the_fit_scales_with_the_logits_and_ignores_what_is_added(seed: int, factor: float, shift: float) -> None:
    logits, labels = honest(seed)
    fitted = softmax.fit_temperature(logits, labels)
    assert softmax.fit_temperature(factor * logits, labels) == pytest.approx(factor * fitted, rel=1e-9)
    rows = shift * torch.randn(len(logits), 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert softmax.fit_temperature(logits + rows, labels) == pytest.approx(fitted, rel=1e-9)
    assert softmax.fit_temperature(logits / fitted, labels) == pytest.approx(1, rel=1e-9)


@given(st.integers(0, 99))
def test_neither_order_of_samples_nor_names_of_classes_matter(seed: int) -> None:
    logits, labels = honest(seed)
    gen = torch.Generator().manual_seed(seed)
    rows, columns = torch.randperm(400, generator=gen), torch.randperm(7, generator=gen)
    moved, named = logits[rows][:, columns], columns.argsort()[labels[rows]]
    assert softmax.fit_temperature(moved, named) == pytest.approx(softmax.fit_temperature(logits, labels), rel=1e-9)
    for scheme in SCHEMES:
        one, other = (
            softmax.expected_calibration_error(y, logits=z, temperature=2.0, scheme=scheme)
            for z, y in ((logits, labels), (moved, named))
        )
        assert torch.isclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("wide", [1e-6, 1.0, 1e6])
def test_a_fit_to_logits_of_unlike_scales_still_ends(wide: float) -> None:
    """Half of the rows on one scale, half on another: far from a parabola, and what the bracket is for."""
    logits, labels = honest(1)
    logits[::2] *= wide
    labels[:40] = logits[:40].argmin(1)
    found = scipy.optimize.minimize_scalar(
        lambda u: loss_at(logits, labels, math.exp(u)), bounds=(-20, 20), method="bounded", options={"xatol": 1e-9}
    )
    assert loss_at(logits, labels, softmax.fit_temperature(logits, labels)) <= found.fun * (1 + 1e-12)


def test_a_fit_minimises_the_score_and_its_parts_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = honest(2, n=301)
    fitted = softmax.fit_temperature(5 * logits, labels)
    scores = [
        softmax.negative_log_likelihood(labels, logits=5 * logits, temperature=fitted * factor) for factor in (0.99, 1, 1.01)
    ]
    assert scores[1] < min(scores[0], scores[2])
    whole = [softmax.brier_score(labels, logits=logits, temperature=1.0), torch.tensor(fitted)]
    rows = calibration._parts
    monkeypatch.setattr(
        calibration, "_parts", lambda x, y: (pair for a, b in zip(x.split(7), y.split(7)) for pair in rows(a, b))
    )
    assert np.allclose(softmax.brier_score(labels, logits=logits, temperature=1.0), whole[0], rtol=1e-12)
    assert softmax.fit_temperature(5 * logits, labels) == pytest.approx(fitted, rel=1e-9)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ([[3.0, 1.0], [0.0, 2.0]], [0, 1], "each has the largest logit, so that colder is likelier"),
        ([[3.0, 3.0, 1.0]], [1], "each has the largest logit"),
        ([[3.0, 1.0], [0.0, 2.0]], [1, 0], "hotter is likelier"),
        ([[3.0, 1.0], [1.0, 3.0]], [0, 0], "hotter is likelier"),  # right as often as wrong
        ([[3.0, 1.0, 0.0]], [1], "hotter is likelier"),
        ([[2.0, 2.0], [7.0, 7.0]], [0, 1], "all logits of a sample are equal"),
        ([[2.0], [7.0]], [0, 0], "all logits of a sample are equal"),
        ([[2.0, math.nan], [7.0, 7.0]], [0, 1], "logits must not be NaN or infinite"),
        ([[2.0, -math.inf], [7.0, 7.0]], [0, 1], "logits must not be NaN or infinite"),
        ([[2.0, 1.0], [7.0, 7.0]], [0, 2], r"labels must lie in 0\.\.1, got 0\.\.2"),
        ([[2.0, 1.0], [7.0, 7.0]], [-1, 1], r"labels must lie in 0\.\.1, got -1\.\.1"),
    ],
)
def test_where_there_is_no_answer_the_fit_says_so(logits: list[list[float]], labels: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        softmax.fit_temperature(torch.tensor(logits), torch.tensor(labels))


def test_one_sample_has_a_temperature_between_the_mean_and_the_largest() -> None:
    """Where E_p[e] is the logit of the label."""
    logits = torch.tensor([[4.0, 3.0, 0.0]])
    p = softmax.softmax(logits, temperature=softmax.fit_temperature(logits, torch.tensor([1])))
    assert float((p * logits).sum()) == pytest.approx(3.0)


@given(st.integers(0, 99), st.sampled_from([1, 2, 10, 15, 100]), st.sampled_from(SCHEMES), st.sampled_from([0.3, 1.0, 8.0]))
def test_calibration_error_matches_numpy(seed: int, bins: int, scheme: str, temperature: float) -> None:
    logits, labels = honest(seed, n=150)
    p = scipy.special.softmax(logits.numpy() / temperature, axis=1)
    got = softmax.expected_calibration_error(labels, logits=logits, temperature=temperature, bins=bins, scheme=scheme)
    assert np.isclose(got, ece_by_numpy(p, labels.numpy(), bins, scheme), rtol=1e-9, atol=1e-14)


@given(st.integers(0, 99), st.sampled_from([0.05, 1.0, 50.0]), st.sampled_from([torch.float32, torch.float64]))
def test_logits_and_their_probabilities_have_the_same_scores(seed: int, temperature: float, dtype: torch.dtype) -> None:
    """An ECE that guesses which it was given is off by a factor of 15 on small logits, which look like probabilities."""
    logits, labels = honest(seed)
    for z in (logits, torch.sigmoid(logits)):
        p = softmax.softmax(z, temperature=temperature).to(dtype)
        for score in (softmax.brier_score, softmax.negative_log_likelihood):
            if dtype == torch.float64 or score == softmax.brier_score:  # in float32 the probability of a label may be 0
                one, other = score(labels, logits=z, temperature=temperature), score(labels, probabilities=p)
                assert np.isclose(one, other, rtol=1e-5 if dtype == torch.float32 else 1e-10)
        for scheme in SCHEMES:
            one = softmax.expected_calibration_error(labels, logits=z, temperature=temperature, scheme=scheme)
            other = softmax.expected_calibration_error(labels, probabilities=p, scheme=scheme)
            # A confidence at the edge of a bin may be rounded over it: then one sample of 400 is in another.
            assert np.isclose(one, other, atol=1 / 400 if dtype == torch.float32 else 1e-12)


@given(st.integers(0, 99))
def test_scores_match_scikit_learn(seed: int) -> None:
    logits, labels = honest(seed, c=2)
    p = torch.softmax(logits, 1)
    assert np.isclose(softmax.brier_score(labels, probabilities=p), 2 * brier_score_loss(labels, p[:, 1]), rtol=1e-10)
    expected = log_loss(labels, p.numpy(), labels=[0, 1])
    assert np.isclose(softmax.negative_log_likelihood(labels, probabilities=p), expected, rtol=1e-9)
    logits, labels = honest(seed)
    loss = softmax.tempered_cross_entropy(logits, labels, temperature=3.0)
    assert torch.isclose(softmax.negative_log_likelihood(labels, logits=logits, temperature=3.0), loss, rtol=1e-12)
    loss = softmax.tempered_mse(logits, labels, temperature=3.0)
    assert torch.isclose(softmax.brier_score(labels, logits=logits, temperature=3.0), loss, rtol=1e-12)


def test_scores_keep_what_a_softmax_rounds_away() -> None:
    labels, logits = torch.tensor([1, 0]), torch.tensor([[2000.0, 0.0], [40.0, 0.0]])
    assert softmax.negative_log_likelihood(labels, logits=logits, temperature=1.0) == 1000
    assert softmax.negative_log_likelihood(labels, probabilities=torch.softmax(logits, 1)) == torch.inf
    squares = softmax.brier_score(labels[1:], logits=logits[1:], temperature=2.0)
    assert float(squares) == pytest.approx(2 * math.exp(-40), rel=1e-6, abs=0)


def test_a_reliability_diagram_by_hand() -> None:
    p = torch.tensor([[0.5, 0.5], [0.8, 0.2], [0.3, 0.7], [0.9, 0.1], [1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 1, 0, 0])
    equal = softmax.reliability(labels, probabilities=p, bins=5, scheme="equal-width")
    assert equal.counts.tolist() == [0, 0, 1, 2, 2]  # 0.8 is the end of (0.6, 0.8]
    assert equal.accuracy.tolist() == [0, 0, 1, 0.5, 1]
    assert np.allclose(equal.confidence, [0, 0, 0.5, 0.75, 0.95])
    adaptive = softmax.reliability(labels, probabilities=p, bins=2, scheme="adaptive")
    assert adaptive.counts.tolist() == [3, 2]
    assert np.allclose(adaptive.confidence, [2 / 3, 0.95])


def test_edges_of_bins_are_where_they_are_written() -> None:
    """k / 100 as a float64 is in bin k - 1, though 100 times it is more than k for k = 55 and 56."""
    top = torch.arange(51, 101, dtype=torch.float64) / 100
    p = torch.stack([top, 1 - top], 1)
    counts = softmax.reliability(torch.zeros(50).long(), probabilities=p, bins=100, scheme="equal-width").counts
    assert counts.tolist() == [0] * 50 + [1] * 50


def test_samples_of_equal_confidence_stay_together() -> None:
    """Cut by position, they would give an error that depends on their order: here 0.5 for a sorted file."""
    p, labels = torch.full((100, 2), 0.5), torch.arange(100) // 50
    read = softmax.reliability(labels, probabilities=p, bins=10, scheme="adaptive")
    assert read.counts.tolist() == [100] + [0] * 9
    assert softmax.expected_calibration_error(labels, probabilities=p, bins=10, scheme="adaptive") == 0


@given(st.integers(1, 60), st.integers(1, 40))
def test_adaptive_bins_differ_by_one_sample_at_most(n: int, bins: int) -> None:
    logits, labels = honest(n, n)
    counts = softmax.reliability(labels, logits=logits, temperature=1.0, bins=bins, scheme="adaptive").counts
    assert counts.sum() == n
    assert counts.max() - counts.min() <= 1


def test_what_was_given_is_never_guessed() -> None:
    logits, labels = honest(0)
    p = torch.softmax(logits, 1)
    for score in (
        softmax.negative_log_likelihood,
        softmax.brier_score,
        lambda *a, **k: softmax.expected_calibration_error(*a, **k, scheme="adaptive"),
        lambda *a, **k: softmax.reliability(*a, **k, scheme="equal-width"),
    ):
        with pytest.raises(ValueError, match="either logits or probabilities, got neither"):
            score(labels)
        with pytest.raises(ValueError, match="either logits or probabilities, got both"):
            score(labels, logits=logits, probabilities=p, temperature=1.0)
        with pytest.raises(ValueError, match="logits are probabilities at a temperature"):
            score(labels, logits=logits)
        with pytest.raises(ValueError, match="a temperature divides logits"):
            score(labels, probabilities=p, temperature=2.0)
        with pytest.raises(ValueError, match="are they logits"):
            score(labels, probabilities=logits)
        with pytest.raises(ValueError, match="are they logits"):
            score(labels, probabilities=torch.sigmoid(logits))
        with pytest.raises(ValueError, match="are they logits"):
            score(labels, probabilities=p.index_fill(0, torch.tensor([3]), torch.nan))
        with pytest.raises(ValueError, match="logits must not be NaN or infinite"):
            score(labels, logits=logits.index_fill(0, torch.tensor([3]), torch.nan), temperature=1.0)
        with pytest.raises(ValueError, match="temperature must be above 0"):
            score(labels, logits=logits, temperature=0.0)
        with pytest.raises(ValueError, match=r"labels must lie in 0\.\.6"):
            score(labels + 1, probabilities=p)
    with pytest.raises(TypeError):
        softmax.expected_calibration_error(labels, probabilities=p)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="at least 1, got 0"):
        softmax.reliability(labels, probabilities=p, bins=0, scheme="adaptive")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_probabilities_in_any_number_format_are_probabilities(dtype: torch.dtype) -> None:
    logits, labels = honest(0, c=1000)
    p = torch.softmax(logits, 1).to(dtype)
    got = softmax.brier_score(labels, probabilities=p)
    assert np.isclose(got, softmax.brier_score(labels, logits=logits, temperature=1.0), rtol=0.02)
    assert softmax.fit_temperature(logits.to(dtype), labels) == pytest.approx(softmax.fit_temperature(logits, labels), rel=0.01)
