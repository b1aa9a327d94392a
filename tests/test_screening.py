"""Detection by files, as a program would do it: features of a model, a detector by name, scores and metrics."""

from pathlib import Path

import pytest
import torch
from detect_cases import drawn
from torch import nn

from thermocline import data, detect, run, screening, spec
from thermocline.shelf import Features
from thermocline.spec import InputError


def found(gen: torch.Generator) -> Features:
    cases = drawn(gen)
    return Features(cases.x, cases.logits, cases.y, cases.weight, cases.bias)


def test_features_are_what_the_head_reads(gen: torch.Generator) -> None:
    with torch.random.fork_rng(devices=[]):
        net = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))
    x, labels = torch.randn(1203, 6, generator=gen), torch.arange(1203) % 4
    read = screening.features_of(net, (x, labels))
    with torch.no_grad():
        torch.testing.assert_close(read.features, net[:2](x))
        torch.testing.assert_close(read.logits, net(x))
    assert torch.equal(read.labels, labels)
    assert torch.equal(read.weight, net[2].weight)
    assert torch.equal(read.bias, net[2].bias)


def test_the_net_of_a_run_can_be_screened(tmp_path: Path) -> None:
    recipe = spec.Train(epochs=1, batch=16, snapshots=1)
    what = spec.Run(spec.Data("runes", classes=4, train=64, test=16), spec.Net("mlp", depth=3, width=8), recipe)
    run.run(what, tmp_path / "run", device="cpu")
    train, _ = data.load("runes", classes=4, train=64, test=16)
    net, temperature = screening.trained(*screening.saved(tmp_path / "run"), train)
    assert temperature == 1
    assert screening.features_of(net, train).features.shape == (64, 8)
    (tmp_path / "run" / "checkpoint.safetensors").unlink()
    with pytest.raises(InputError, match="no checkpoint"):
        screening.saved(tmp_path / "run")


NEEDED = {
    "residual": ["dim=2"], "vim": ["dim=2"], "knn": ["k=7"], "nnguide": ["k=7"], "nci": ["alpha=0.1"],
    "react": ["percentile=90"], "ash": ["percentile=90", "variant=s"],
}  # fmt: skip


@pytest.mark.parametrize("name", screening.READS)
def test_detectors_read_what_is_said_of_them(gen: torch.Generator, name: str) -> None:
    """With that alone they are fitted and score; without any part of it they are not."""
    every, reads = found(gen), screening.READS[name].split(", ")
    for left in ("", *reads):
        there = {key: getattr(every, key) for key in reads if key != left}
        arrays = [there.get(key) for key in ("features", "logits", "labels")]
        try:
            head = every._replace(weight=there.get("weight"), bias=None)
            made = screening.make(name, NEEDED.get(name, []), head, temperature=1.0)
            made.fit(*arrays).score(*arrays[:2])
            worked = True
        except ValueError:
            worked = False
        assert worked == (not left), left


@pytest.mark.parametrize(
    ("name", "settings", "kind"),
    [
        ("neco", [], detect.NECO), ("relative-mahalanobis", [], detect.RelativeMahalanobis), ("KNN", ["k=7"], detect.KNN),
        ("vim", ["dim=0.9"], detect.ViM), ("react", ["percentile=90", "inner=msp"], detect.ReAct),
        ("ash", ["percentile=20", "variant=p", "inner=knn", "inner.k=3"], detect.ASH),
        ("neco", ["logit_factor=true"], detect.NECO), ("neco-maxlogit", [], detect.NECO),
    ],
)  # fmt: skip
def test_detectors_are_made_by_name(gen: torch.Generator, name: str, settings: list[str], kind: type) -> None:
    made = screening.make(name, settings, found(gen), temperature=3.0)
    assert type(made) is kind
    assert getattr(made, "temperature", 3.0) == 3.0
    screening.score(screening.fit(made, found(gen)), found(gen))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("nekko", [], "did you mean 'neco'"),
        ("knn", [], "needs --set k=..."),
        ("knn", ["kk=3"], "unknown setting of KNN 'kk'; did you mean 'k'"),
        ("knn", ["k"], "write name=value"),
        ("knn", ["k=0"], "KNN: k"),
        ("knn", ["k=many"], "KNN"),
        ("vim", ["dim=3", "weight=3"], "unknown setting of ViM 'weight'"),
        ("neco", ["logit_factor=maybe"], "takes bool"),
        ("gen", ["gamma=Infinity"], "gamma takes float"),
        ("knn", ["k=3", "inner.k=3"], "no detector inside"),
    ],
)
def test_what_cannot_be_made_says_why(gen: torch.Generator, name: str, settings: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        screening.make(name, settings, found(gen), temperature=1.0)


def test_features_without_what_a_detector_needs(gen: torch.Generator) -> None:
    whole = found(gen)
    with pytest.raises(InputError, match="array 'weight'"):
        screening.make("vim", ["dim=3"], whole._replace(weight=None), temperature=1.0)
    unlabelled = whole._replace(labels=None)
    with pytest.raises(InputError, match="Mahalanobis is fitted to features and labels, and got no labels"):
        screening.fit(detect.Mahalanobis(), unlabelled)
    assert torch.equal(screening.fit(detect.KNN(k=2), unlabelled).bank, screening.fit(detect.KNN(k=2), whole).bank)
    with pytest.raises(InputError, match="NaN"):
        screening.fit(detect.KNN(k=2), whole._replace(features=whole.features * torch.nan))
    fitted = screening.fit(detect.KNN(k=2), whole)
    with pytest.raises(InputError, match="features"):
        screening.score(fitted, whole._replace(features=whole.features[:, 1:]))


def test_metrics_are_those_of_the_scores(gen: torch.Generator) -> None:
    whole = found(gen)
    cases = drawn(gen)
    other = Features(cases.test, cases.test_logits)
    detector = screening.fit(detect.NECO(), whole)
    (row,) = screening.evaluate(detector, whole, {"other": other}).to_pylist()
    inside, outside = detector.score(whole.features, whole.logits), detector.score(*other[:2])
    assert row["auroc"] == pytest.approx(float(detect.auroc(inside, outside)))
    assert row["auroc_low"] < row["auroc"] < row["auroc_high"]
    assert row["fpr95"] == float(detect.fpr_at_tpr(inside, outside, tpr=0.95, positive="id"))
    assert (row["ood"], row["id_samples"], row["ood_samples"]) == ("other", len(inside), len(outside))
    assert row["aupr_ood"] == pytest.approx(float(detect.aupr(inside, outside, positive="ood")))


def test_every_detector_can_be_named(gen: torch.Generator) -> None:
    made = {type(screening.make(name, NEEDED.get(name, []), found(gen), temperature=1.0)) for name in screening.READS}
    assert made == set(detect.DETECTORS.values())
