"""What lies behind an AUROC, and which classes are confused: rows against scikit-learn and numpy."""

import numpy as np
import pytest
import torch
from sklearn import metrics
from test_measure_trust import Scene, T, rows

from thermocline import detect
from thermocline.measure.trust import PAIRS, RATES, SCORE_BINS


@pytest.fixture
def scores(gen: torch.Generator) -> tuple[dict, np.ndarray, np.ndarray]:
    scene = Scene(gen)
    msp = detect.MSP(temperature=T).fit(*scene.read(scene.train[0]), scene.train[1])
    inside, outside = (msp.score(*scene.read(x)).numpy() for x in (scene.test[0], scene.other[1][0]))
    return rows(scene, "roc", "score_histogram"), inside, outside


def test_the_roc_is_scikit_learns(scores) -> None:
    found, inside, outside = scores
    truth = np.r_[np.ones(len(inside)), np.zeros(len(outside))]
    fpr, tpr, _ = metrics.roc_curve(truth, np.r_[inside, outside], drop_intermediate=False)
    for rate in RATES:
        kept = found["o/test", "roc", f"detector=msp,positive=id,fpr={rate:g}"]
        assert kept == pytest.approx(tpr[fpr <= rate + 1e-12].max())
    assert len({key for key in found if key[1] == "roc" and key[2].startswith("detector=msp,")}) == len(RATES)


def test_the_histogram_is_numpys(scores) -> None:
    found, inside, outside = scores
    name = f"detector=msp,bins={SCORE_BINS},part="
    low, high = (found["o/test", "score_histogram", name + end] for end in ("low", "high"))
    both = np.sort(np.r_[inside, outside])
    assert both[0] <= low < high <= both[-1]
    for side, values in (("id", inside), ("ood", outside)):
        shares = [found["o/test", "score_histogram", f"{name}{side},bin={i}"] for i in range(SCORE_BINS)]
        expected, _ = np.histogram(values.clip(low, high), bins=SCORE_BINS, range=(low, high))
        assert sum(shares) == pytest.approx(1)
        np.testing.assert_allclose(shares, expected / len(values), atol=1.5 / len(values))  # one on an edge may go either way


def test_equal_scores_have_no_histogram(gen: torch.Generator) -> None:
    scene = Scene(gen)
    for parameter in scene.net[2].parameters():
        torch.nn.init.zeros_(parameter)
    found = {key[2].split(",")[0] for key in rows(scene, "score_histogram", "roc") if key[1] == "score_histogram"}
    assert "detector=msp" not in found


def test_the_most_confused_pairs_are_those_of_the_confusion_matrix(gen: torch.Generator) -> None:
    scene = Scene(gen)
    found = rows(scene, "confusion")
    labels = scene.test[1].numpy()
    table = metrics.confusion_matrix(labels, scene.read(scene.test[0])[1].argmax(1).numpy(), labels=range(5)).astype(float)
    share = table / table.sum(1, keepdims=True)
    np.fill_diagonal(share, 0)
    features, means = scene.read(scene.train[0])[0].double(), []
    for label in range(5):
        means.append(features[scene.train[1] == label].mean(0))
    centred = torch.stack(means) - torch.stack(means).mean(0)
    told = 0
    for a, b in zip(*np.unravel_index(np.argsort(-share, axis=None, kind="stable")[:PAIRS], share.shape)):
        if not share[a, b]:
            continue
        place = f"label={a},predicted={b},part="
        assert found["test", "confusion", place + "share"] == pytest.approx(share[a, b])
        cosine = torch.nn.functional.cosine_similarity(centred[a], centred[b], dim=0)
        assert found["test", "confusion", place + "cosine"] == pytest.approx(float(cosine), abs=1e-6)
        told += 1
    assert len(found) == 2 * told
    assert told > 5
