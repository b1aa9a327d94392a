"""Shapes are checked at run time in tests only: what detectors say to a user, who has no such checks. NaN stays NaN."""

import asking
import pytest
import torch

from thermocline import detect
from thermocline.moments import ClassMoments, Moments

TEMPERATURE = "ValueError: temperature must be above 0 and finite, got "
PERCENTILE = "ValueError: percentile is 0, or from 1 to below 100: 90 and not 0.9 for nine tenths, got "
ASKED = {
    "detect.Energy(temperature=0.0)": TEMPERATURE + "0.0",
    "detect.MSP(temperature=float('nan'))": TEMPERATURE + "nan",
    "detect.ViM(w, dim=1, temperature=-1)": TEMPERATURE + "-1",
    "detect.GEN(gamma=0)": "ValueError: gamma must be above 0, got 0",
    "detect.GEN(top=0)": "ValueError: top must be a whole number of at least 1, got 0",
    "detect.KNN(k=2.5)": "ValueError: k must be a whole number of at least 1, got 2.5",
    "detect.KNN(k=np.int64(2)), detect.NNGuide(k=np.uint8(2)), detect.GEN(top=np.int32(2))": (
        "(KNN(k=2), NNGuide(k=2, temperature=1.0), GEN(gamma=0.1, top=2, temperature=1.0))"
    ),
    "detect.NECO(dim=np.int64(5)), detect.ViM(w, dim=np.float32(0.5))": (
        "(NECO(dim=5, logit_factor=False), ViM(dim=0.5, temperature=1.0))"
    ),
    "json.dumps(detect.state(detect.MSP(temperature=np.float32(2))).settings)": '{"temperature": 2.0}',
    "detect.KNN(k=np.float64(2))": "ValueError: k must be a whole number of at least 1, got np.float64(2.0)",
    "detect.NECO(dim='2')": "ValueError: dim is a number of axes (an int) or a variance fraction in (0, 1], got '2'",
    "detect.NECO(dim=True)": "ValueError: dim is a number of axes (an int) or a variance fraction in (0, 1], got True",
    "detect.NECO(dim=1.5)": "ValueError: dim is a number of axes (an int) or a variance fraction in (0, 1], got 1.5",
    "detect.Residual(w, dim=0)": "ValueError: dim is a number of axes (an int) or a variance fraction in (0, 1], got 0",
    "detect.Residual(w, torch.ones(3), dim=1)": "ValueError: a head needs a bias for each of its 2 classes, got shape (3,)",
    "detect.NCI(w[0], alpha=0)": "ValueError: the weight of a head is a matrix, classes in rows, got shape (3,)",
    "detect.NCI(w * nan, alpha=0)": "ValueError: the weight of a head must not be NaN or infinite",
    "detect.NCI(w, alpha=-1)": "ValueError: alpha weighs the norm of features, and is 0 or more, got -1",
    "detect.ReAct(detect.MSP(), w, percentile=0.9)": PERCENTILE + "0.9",
    "detect.ASH(detect.MSP(), w, percentile=100, variant='s')": PERCENTILE + "100",
    "detect.ASH(detect.MSP(), w, percentile=65, variant='x')": "ValueError: variant must be 'p', 'b' or 's', got 'x'",
    "detect.NCI(w.numpy(), alpha=0).fit(x).score(x, e).shape": "torch.Size([4])",
    "detect.Residual([[1, 2, 3]], [1], dim=1).fit(x).score(x).shape": "torch.Size([4])",
    "detect.NECO().score(x, e)": "ValueError: NECO has not been fitted: call fit first",
    "detect.KNN(k=1).score(x, e)": "ValueError: KNN has not been fitted: call fit first",
    "detect.ViM(w, dim=1).match(x, e)": "ValueError: ViM has not been fitted: call fit first",
    "detect.ViM(w, dim=1).fit_moments(Moments.of(x)).score(x, e)": (
        "ValueError: ViM has seen no residual to match logits with: call match, or ask for fewer axes"
    ),
    "detect.ViM(w, dim=3).fit(x, e, y)": "ValueError: dim=3 takes all 3 axes, which leaves no residual: ask for fewer",
    "detect.ViM(w[:, :2], dim=1).fit(x, e, y)": "ValueError: the head reads 2 features, and there are 3",
    "detect.NCI(w[:, :2], alpha=0).fit(x, e, y)": "ValueError: the head reads 2 features, and there are 3",
    "detect.ReAct(detect.KNN(k=1), w[:, :2], percentile=90).fit(x, e, y)": "ValueError: features must have 2 columns, got 3",
    "detect.ASH(detect.KNN(k=1), w[:, :2], percentile=90, variant='s').fit(x)": (
        "ValueError: features must have 2 columns, got 3"
    ),
    "detect.NECO().fit(torch.ones(20, 3) / 10)": "ValueError: dim=0.9 takes axes along which features vary, and these do not",
    "detect.Residual(w, dim=1).fit(0 * x)": "ValueError: dim=1 takes axes along which features vary, and these do not",
    "detect.MSP().score(x, e[:3])": "ValueError: every sample needs its features and logits: there are 4 and 3 of them",
    "detect.MSP().score(x, none)": "ValueError: logits must have some columns, got 0",
    "detect.MSP().score(x, e[0])": (
        "ValueError: logits must be a matrix with samples in rows, got torch.float32 of shape (2,)"
    ),
    "detect.MSP().score(x)": "ValueError: MSP scores samples by their logits, and got no logits",
    "detect.NECO(dim=1).fit(logits=e)": "ValueError: NECO is fitted to features, and got no features",
    "detect.NECO(dim=1, logit_factor=True).fit(x).score(x)": (
        "ValueError: NECO scores samples by their features and logits, and got no logits"
    ),
    "detect.Mahalanobis().fit(x, e)": "ValueError: Mahalanobis is fitted to features and labels, and got no labels",
    "detect.ReAct(detect.Mahalanobis(), w, percentile=90).fit(x)": (
        "ValueError: Mahalanobis is fitted to features and labels, and got no labels"
    ),
    "detect.Mahalanobis().fit(x, labels=y * 10**13)": (
        "ValueError: labels must number classes from 0 on, and be below 1048576, got 10000000000000"
    ),
    "detect.Mahalanobis().fit(x, e, y.to(torch.uint16)).score(x).shape": "torch.Size([4])",
    "detect.ViM(w, dim=1).fit(x, labels=y)": "ValueError: ViM is fitted to features and logits, and got no logits",
    "detect.NECO(dim=3).fit(x, e, y)": "ValueError: dim=3 takes all 3 axes, and every score would be 1: ask for fewer",
    "detect.KNN(k=1).fit([[1, 2], [3]])": (
        "ValueError: features must be a matrix with samples in rows, all of the same length"
    ),
    "detect.KNN(k=1).fit([['a', 'b']])": "TypeError: features must be real numbers, got list of <U1",
    "detect.Mahalanobis().fit(x, labels=['a', 'b', 'b', 'a'])": (
        "ValueError: labels must be a vector of class indices, got <U1 of shape (4,)"
    ),
    "detect.KNN(k=1).fit(x, e, y).score(x[:, :2], e)": "ValueError: features must have 3 columns, got 2",
    "detect.Mahalanobis().fit(x, e, y).score(x[:, :2], e)": "ValueError: features must have 3 columns, got 2",
    "detect.RelativeMahalanobis().fit(x, e, y).score(x[:, :2], e)": "ValueError: features must have 3 columns, got 2",
    "detect.NECO(dim=1).fit(x, e, y).score(x[:, :2], e)": "ValueError: features must have 3 columns, got 2",
    "detect.KLMatching().fit(x, e, y).score(x, none)": "ValueError: logits must have 2 columns, got 0",
    "detect.KNN(k=5).fit(x, e, y)": "ValueError: there is no neighbour number 5 among 4 training samples",
    "detect.KNN(k=1).fit(x[:0], e[:0], y[:0])": "ValueError: a detector needs samples to learn from, got none",
    "detect.Mahalanobis().fit(x, e, y + 1)": "ValueError: labels must lie in 0..1, as there are 2 logits, got 1..2",
    "detect.Mahalanobis().fit(x, none, y - 1)": "ValueError: labels must lie in 0..0, as there are 0 logits, got -1..0",
    "detect.Mahalanobis().fit(x, e, y[:3])": "ValueError: every sample needs a label: there are 4 samples and 3 labels",
    "detect.Mahalanobis().fit(x, e, e)": (
        "ValueError: labels must be a vector of class indices, got torch.float32 of shape (4, 2)"
    ),
    "detect.Mahalanobis().fit(torch.ones(4, 3) * 0.1, e, y)": (
        "ValueError: features do not vary within classes: there is no covariance to measure distances by"
    ),
    "detect.Mahalanobis().fit_moments(ClassMoments.of(0.1 * torch.ones(4, 1) * (2 * y[:, None] - 1), y, classes=2))": (
        "ValueError: features do not vary within classes: there is no covariance to measure distances by"
    ),
    "detect.RelativeMahalanobis().fit(x, e, 0 * y)": (
        "ValueError: RelativeMahalanobis needs two classes at least: with one, both distances are the same"
    ),
    "detect.state(detect.NECO())": "ValueError: NECO has not been fitted: call fit first",
    "detect.state(3)": "ValueError: a int is no detector of ours, whose state is known",
    "detect.restore('NECCO', {}, {})": "InputError: unknown detector 'NECCO'; did you mean 'NECO'?",
    "detect.restore('KNN', {'k': 3}, {})": "InputError: the KNN kept here lacks bank",
    "detect.restore('KNN', {}, {'bank': x})": "InputError: the KNN kept here lacks k",
    "detect.restore('KNN', {'k': 3, 'bank': 4}, {})": "InputError: the KNN kept here has no tensor for bank",
    "detect.restore('MSP', {'temperature': 1.0, 'code': 1}, {})": "InputError: the MSP kept here has no place for code",
    "detect.restore('MSP', {'temperature': 'hot'}, {})": (
        "InputError: the MSP kept here cannot be made: '<' not supported between instances of 'int' and 'str'"
    ),
    "detect.restore('ASH', {'inner': 'MSP', 'percentile': 65, 'variant': 's'}, {'weight': w})": (
        "InputError: a detector inside another is kept by name and settings, got 'MSP'"
    ),
    "detect.restore('ASH', {'inner': {'name': 'os', 'settings': {}}, 'percentile': 65, 'variant': 's'}, {'weight': w})": (
        "InputError: unknown detector 'os'; valid: " + ", ".join(detect.DETECTORS)
    ),
    "detect.from_pytorch_ood(3)": (
        "TypeError: a int has none of predict_features, predict_logits and predict_feature_maps: it cannot score features"
    ),
    "detect.to_pytorch_ood(detect.MSP()).predict_features(x)": "ValueError: logits must have some columns, got 0",
}

test_a_question_has_a_clear_answer = asking.clear_answers(ASKED)


W = torch.linspace(-1, 1, 12).reshape(3, 4)
READS_LOGITS = {
    "MSP": detect.MSP(), "MaxLogit": detect.MaxLogit(), "Energy": detect.Energy(), "Entropy": detect.Entropy(),
    "GEN": detect.GEN(), "KLMatching": detect.KLMatching(), "ViM": detect.ViM(W, dim=2), "NNGuide": detect.NNGuide(k=2),
    "NCI": detect.NCI(W, alpha=0.1), "NECO": detect.NECO(dim=2, logit_factor=True),
}  # fmt: skip
READS_FEATURES = {
    "ViM": detect.ViM(W, dim=2), "NNGuide": detect.NNGuide(k=2), "NCI": detect.NCI(W, alpha=0.1), "NECO": detect.NECO(dim=2),
    "Residual": detect.Residual(W, dim=2), "Mahalanobis": detect.Mahalanobis(), "KNN": detect.KNN(k=2),
    "RelativeMahalanobis": detect.RelativeMahalanobis(), "ReAct": detect.ReAct(detect.MSP(), W, percentile=90),
    "ASH": detect.ASH(detect.KNN(k=2), W, percentile=50, variant="s"),
}  # fmt: skip


def training(gen: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(60, 4, generator=gen), torch.randn(60, 3, generator=gen), torch.arange(60) % 3


@pytest.mark.parametrize(("which", "name"), [(0, name) for name in READS_FEATURES] + [(1, name) for name in READS_LOGITS])
def test_what_is_nan_scores_nan_and_nothing_else_does(gen: torch.Generator, which: int, name: str) -> None:
    detector = (READS_FEATURES, READS_LOGITS)[which][name]
    x, logits, y = training(gen)
    detector.fit(x, logits, y)
    (x, logits)[which][7, 1] = torch.nan
    scores = detector.score(x, logits)
    assert scores[7].isnan()
    assert scores.isnan().sum() == 1


@pytest.mark.parametrize(
    ("which", "name"),
    [(0, name) for name in READS_FEATURES] + [(1, name) for name in ("KLMatching", "ViM", "NNGuide")],
)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_cannot_be_fitted_to(gen: torch.Generator, which: int, name: str, value: float) -> None:
    x, logits, y = training(gen)
    (x, logits)[which][7, 1] = value
    with pytest.raises(ValueError, match="must not be NaN or infinite"):
        (READS_FEATURES, READS_LOGITS)[which][name].fit(x, logits, y)


def test_directions_without_variance_are_left_out(gen: torch.Generator) -> None:
    """A dead feature, a copied one, and fewer samples than dimensions: the pseudo-inverse, whatever the units."""
    x, _, y = training(gen)
    more = torch.cat([x, 0 * x[:, :1] + 0.1, 1e-6 * x[:, :2]], 1).double()
    none, (plain, odd) = torch.empty(60, 0), (detect.Mahalanobis().fit(z.double(), torch.empty(60, 0), y) for z in (x, more))
    assert odd.whiten.shape == (7, 4)
    assert torch.allclose(plain.score(x, none), odd.score(more, none), rtol=1e-6)
    few = torch.randn(9, 40, generator=gen)
    scores = detect.Mahalanobis().fit(few, none[:9], 0 * y[:9]).score(few, none[:9])
    assert torch.allclose(scores, torch.full((9,), -8.0).double())  # their rank, as all are as far from the mean


@pytest.mark.parametrize("size", [1e8 / 3, 1e20 / 3])
def test_a_large_constant_feature_has_no_variance(gen: torch.Generator, size: float) -> None:
    """What rounding leaves of its variance is large beside d * 2^-52, which is what eigenvalues are compared with."""
    x, y = torch.randn(5000, 3, generator=gen).double(), torch.arange(5000) % 2
    more = torch.cat([x, size * (1.0 + y.double()[:, None])], 1)
    found, alone = detect.Mahalanobis().fit(more, labels=y), detect.Mahalanobis().fit(x, labels=y)
    assert found.whiten.shape == (4, 3)
    torch.testing.assert_close(found.score(more), alone.score(x))
    torch.testing.assert_close(found.score(1.1 * more), alone.score(1.1 * x))


@pytest.mark.parametrize("kind", [detect.Mahalanobis, detect.RelativeMahalanobis])
def test_rounding_is_no_variance_where_one_direction_has_it_all(gen: torch.Generator, kind: type) -> None:
    """As within collapsed classes: what a decomposition leaves of the others goes with the largest eigenvalue."""
    along, y = torch.randn(60, 1, generator=gen).double(), torch.arange(60) % 2
    x = (along + 5 * y[:, None]) @ torch.randn(1, 256, generator=gen).double()
    found, alone = kind().fit(x, labels=y), kind().fit(x[:, :1], labels=y)
    assert found.whiten.shape == (256, 1)
    torch.testing.assert_close(found.score(x), alone.score(x[:, :1]))


@pytest.mark.parametrize("name", ["NECO", "KNN", "Residual", "NCI", "ReAct", "ASH", "Mahalanobis"])
def test_one_class_is_enough_where_classes_are_not_compared(gen: torch.Generator, name: str) -> None:
    x, logits, y = training(gen)
    assert READS_FEATURES[name].fit(x, logits, 0 * y).score(x, logits).isfinite().all()


def test_a_class_never_seen_is_not_near(gen: torch.Generator) -> None:
    x, logits, y = training(gen)
    x = x + 50  # away from 0, where a class without samples has its mean
    wide = detect.Mahalanobis().fit_moments(ClassMoments.of(x, y, classes=9)).score(x * 0, logits)
    assert torch.equal(wide, detect.Mahalanobis().fit(x, logits, y).score(x * 0, logits))


def test_samples_without_a_direction(gen: torch.Generator) -> None:
    x, logits, y = training(gen)
    zero = torch.zeros(1, 4)
    assert detect.KNN(k=3).fit(x, logits, y).score(zero, logits[:1]) == pytest.approx(-1)
    nci = detect.NCI(W, alpha=0).fit_moments(Moments.of(torch.cat([x, -x])))
    assert nci.score(nci.mean[None], logits[:1].double()) == 0
