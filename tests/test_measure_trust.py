"""Detection and calibration as a scan reports them, against the functions they are made of."""

import math

import pytest
import torch
from torch import nn

import thermocline as tc
from thermocline import detect, softmax
from thermocline.measure import collect, source
from thermocline.measure.collect import KEPT

DETECTORS = {
    "neco", "neco-maxlogit", "mahalanobis", "relative-mahalanobis", "msp", "maxlogit", "energy", "entropy", "gen",
    "kl-matching", "knn", "nnguide", "residual", "vim", "react", "ash", "nci",
}  # fmt: skip
T = 3.0


class Scene:
    """Gaussian classes, other data beside them, and a net with a head that reads what it tells them apart by."""

    def __init__(self, gen: torch.Generator) -> None:
        centres = 3 * torch.randn(5, 12, generator=gen)
        with torch.random.fork_rng(devices=[]):
            self.net = nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 5))
        for parameter in self.net.parameters():
            nn.init.normal_(parameter, std=0.6, generator=gen)
        self.train, self.test = (self.drawn(gen, centres, n) for n in (400, 161))
        self.other = tuple(self.drawn(gen, -centres, n) for n in (90, 120))

    def drawn(self, gen: torch.Generator, centres: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.arange(n) % 5
        x = centres[labels] + torch.randn(n, 12, generator=gen)
        with torch.no_grad():  # the net is right about these as often as its probabilities at T = 2 say
            p = torch.softmax(self.net(x) / 2, 1)
        return x, torch.multinomial(p, 1, generator=gen)[:, 0]

    def read(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            features = self.net[:2](x)
            return features, self.net[2](features)


def rows(scene: Scene, *measures: str, **options) -> dict[tuple[str, str, str], float]:
    found = tc.scan(scene.net, scene.train, scene.test, {"o": scene.other}, temperature=T, measures=measures, **options).rows
    return {(row["split"], row["measure"], row["params"]): row["value"] for row in found.to_pylist()}


def test_every_detector_is_what_fitting_it_by_hand_gives(gen: torch.Generator) -> None:
    scene = Scene(gen)
    found = rows(scene, "auroc", "fpr", "aupr", "auroc_interval")
    assert {key[2].split(",")[0].removeprefix("detector=") for key in found if key[1] == "auroc"} == DETECTORS
    weight, bias = scene.net[2].weight.detach(), scene.net[2].bias.detach()
    by_hand = {
        "detector=neco,dim=0.9": detect.NECO(dim=0.9), "detector=mahalanobis": detect.Mahalanobis(),
        "detector=msp": detect.MSP(temperature=T), "detector=knn,k=50": detect.KNN(k=50),
        "detector=kl-matching": detect.KLMatching(temperature=T),
        "detector=vim,dim=4": detect.ViM(weight, bias, dim=4, temperature=T),
        "detector=react,percentile=90": detect.ReAct(detect.Energy(temperature=T), weight, bias, percentile=90),
        "detector=nci,alpha=0.001": detect.NCI(weight, alpha=0.001),
    }  # fmt: skip
    for name, detector in by_hand.items():
        detector.fit(*scene.read(scene.train[0]), scene.train[1])
        inside, outside = (detector.score(*scene.read(x)) for x in (scene.test[0], scene.other[1][0]))
        assert found["o/test", "auroc", name] == pytest.approx(float(detect.auroc(inside, outside)), abs=1e-9), name
        fpr = detect.fpr_at_tpr(inside, outside, tpr=0.95, positive="id")
        assert found["o/test", "fpr", f"{name},tpr=0.95,positive=id"] == pytest.approx(float(fpr))
        aupr = detect.aupr(inside, outside, positive="id")
        assert found["o/test", "aupr", f"{name},positive=id"] == pytest.approx(float(aupr), abs=1e-9)
        low, high = (found["o/test", "auroc_interval", f"{name},part={part},level=0.95"] for part in ("low", "high"))
        assert low < found["o/test", "auroc", name] < high
    assert len(scene.train[1]) < KEPT


def test_the_oracle_of_neco_is_found_on_some_samples_of_many(gen: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "ORACLE", 50)
    scene = Scene(gen)
    inside, outside = (scene.read(x)[0][source.some(50, of=len(x))] for x in (scene.test[0], scene.other[1][0]))
    _, value = detect.neco_oracle(scene.read(scene.train[0])[0], inside, outside)
    found = rows(scene, "neco_oracle")
    assert found["o/test", "neco_oracle", "part=auroc,id=50,ood=50"] == pytest.approx(float(value), abs=1e-9)


def test_the_oracle_of_neco_is_the_best_of_all_numbers_of_axes(gen: torch.Generator) -> None:
    scene = Scene(gen)
    found = rows(scene, "neco_oracle", "neco_by_dim", "auroc")
    by_dim = []
    for dim in range(1, 9):  # with all 9 every score is 1
        detector = detect.NECO(dim=dim).fit(*scene.read(scene.train[0]), scene.train[1])
        inside, outside = (detector.score(*scene.read(x)) for x in (scene.test[0], scene.other[1][0]))
        by_dim.append(float(detect.auroc(inside, outside)))
    assert found["o/test", "neco_oracle", "part=auroc,id=161,ood=120"] == pytest.approx(max(by_dim), abs=1e-9)
    assert found["o/test", "neco_oracle", "part=dim,id=161,ood=120"] == by_dim.index(max(by_dim)) + 1
    assert found["o/test", "neco_oracle", "part=auroc,id=161,ood=120"] >= found["o/test", "auroc", "detector=neco,dim=0.9"]
    fixed = {how: value for (_, measure, how), value in found.items() if measure == "neco_by_dim"}
    assert fixed == pytest.approx({f"dim={dim},id=161,ood=120": by_dim[dim - 1] for dim in (1, 2, 5)}, abs=1e-9)


def test_calibration_is_judged_on_the_half_it_was_not_fitted_to(gen: torch.Generator) -> None:
    scene = Scene(gen)
    found = rows(scene, "fitted_temperature", "ece", "brier", "reliability")
    logits, labels = scene.read(scene.test[0])[1], scene.test[1]
    half = torch.zeros(len(labels), dtype=torch.bool)
    half[source.some(len(labels) // 2, of=len(labels))] = True
    first, second = (softmax.fit_temperature(logits[part], labels[part]) for part in (half, ~half))
    assert found["test", "fitted_temperature", ""] == pytest.approx(math.sqrt(first * second))
    assert found["test", "fitted_temperature", ""] == pytest.approx(2.0, rel=0.3)
    p = torch.softmax(logits.double() / T, 1)
    assert found["test", "brier", "at=training"] == pytest.approx(float(softmax.brier_score(labels, probabilities=p)))
    for scheme in ("equal-width", "adaptive"):
        ece = softmax.expected_calibration_error(labels, probabilities=p, bins=15, scheme=scheme)
        assert found["test", "ece", f"scheme={scheme},bins=15,at=training"] == pytest.approx(float(ece))
    crossed = torch.empty_like(p)
    crossed[half] = torch.softmax(logits[half].double() / second, 1)
    crossed[~half] = torch.softmax(logits[~half].double() / first, 1)
    assert found["test", "brier", "at=fitted"] == pytest.approx(float(softmax.brier_score(labels, probabilities=crossed)))
    counts = [
        value for key, value in found.items() if key[1] == "reliability" and "at=fitted" in key[2] and "part=count" in key[2]
    ]
    assert sum(counts) == len(labels)


def test_what_cannot_be_fitted_has_no_rows(gen: torch.Generator) -> None:
    """A net whose features are all zero: detectors of features and of distances have nothing to go by; it still scans."""
    scene = Scene(gen)
    nn.init.zeros_(scene.net[0].weight)
    nn.init.constant_(scene.net[0].bias, -1.0)
    found = rows(scene, "auroc", "ece", "fitted_temperature")
    assert all(math.isfinite(value) for value in found.values())
    assert ("o/test", "auroc", "detector=msp") in found
    nn.init.zeros_(scene.net[2].bias)
    assert not any(key[1] == "fitted_temperature" for key in rows(scene, "ece", "fitted_temperature"))


class Cosine(nn.Linear):
    """A head that is called linear and does more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 5 * nn.functional.normalize(super().forward(x), dim=1)


def test_a_head_that_is_not_linear_has_no_detectors_of_its_weight(gen: torch.Generator) -> None:
    scene = Scene(gen)
    with torch.random.fork_rng(devices=[]):
        scene.net[2] = Cosine(9, 5)
    with pytest.warns(UserWarning, match="residual, vim, react, ash and nci left out"):
        found = {key[2].split(",")[0].removeprefix("detector=") for key in rows(scene, "auroc")}
    assert found == DETECTORS - {"residual", "vim", "react", "ash", "nci"}


def test_a_detector_that_cannot_score_a_sample_is_left_out(gen: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """ASH-S of signed features may overflow, and not on the sample it is tried on: the scan goes on without it."""
    scene, score = Scene(gen), detect.ASH.score
    places = torch.arange(2000, dtype=torch.float64)
    monkeypatch.setattr(detect.ASH, "score", lambda self, x, e: torch.where(places[: len(x)] == 7, math.nan, score(self, x, e)))
    found = rows(scene, "auroc", "ece")
    names = {key[2].split(",")[0] for key in found if key[1] == "auroc"}
    assert "detector=msp" in names
    assert "detector=ash" not in names
    assert all(math.isfinite(value) for value in found.values())


def test_one_class_can_be_scanned_without_probes() -> None:
    with torch.random.fork_rng(devices=[]):
        net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    data = torch.arange(12.0).reshape(4, 3), torch.zeros(4, dtype=torch.long)
    measures = [name for name, one in tc.MEASURES.items() if "probes" not in one.needs]
    assert tc.scan(net, data, data, measures=measures).rows.num_rows
