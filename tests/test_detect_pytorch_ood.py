"""Agreement with pytorch-ood where both have a method, and the ways to and from it."""

import importlib.util
from typing import Any

import pytest
import torch
from detect_cases import Data, drawn, every
from torch import Tensor, nn

from thermocline import detect
from thermocline.bench.detection import OOD, pytorch_ood

missing = [name for name in OOD if importlib.util.find_spec(name) is None]
needs_theirs = pytest.mark.skipif(bool(missing), reason=f"the oracle is not here: {', '.join(missing)}")


@pytest.fixture
def data(gen: torch.Generator) -> Data:
    return drawn(gen)


class Theirs:
    """The shape of a detector of theirs: larger is more OOD, and labels below 0 are not to be learned from."""

    requires_fit = True

    def fit_features(self, x: Tensor, y: Tensor) -> "Theirs":
        self.mean = x[y >= 0].mean(0)
        return self

    def predict_features(self, x: Tensor) -> Tensor:
        return (x - self.mean).norm(dim=1)


def head(data: Data) -> nn.Linear:
    made = nn.Linear(*reversed(data.weight.shape), device="meta").to_empty(device="cpu")
    with torch.no_grad():
        made.weight.copy_(data.weight)
        made.bias.copy_(data.bias)
    return made


def theirs_and_ours(name: str, data: Data) -> tuple[Any, Any]:
    library, linear = pytorch_ood(), head(data)
    flat = nn.Sequential(nn.Flatten(), linear)
    both = {
        "MSP": lambda: (library.MaxSoftmax(None, t=2.0), detect.MSP(temperature=2.0)),
        "MaxLogit": lambda: (library.MaxLogit(None), detect.MaxLogit()),
        "Energy": lambda: (library.EnergyBased(None, t=2.0), detect.Energy(temperature=2.0)),
        "Entropy": lambda: (library.Entropy(None), detect.Entropy()),
        "GEN": lambda: (library.GEN(None, gamma=0.5, M=3), detect.GEN(gamma=0.5, top=3)),
        "KLMatching": lambda: (library.KLMatching(None), detect.KLMatching()),
        "Mahalanobis": lambda: (library.Mahalanobis(None), detect.Mahalanobis()),
        "RelativeMahalanobis": lambda: (library.RMD(None), detect.RelativeMahalanobis()),
        "KNN": lambda: (library.KNN(None, k=11), detect.KNN(k=11)),
        "NNGuide": lambda: (library.NNGuide(None, linear, k=11), detect.NNGuide(k=11)),
        "ViM": lambda: (library.ViM(None, 7, data.weight, data.bias), detect.ViM(data.weight, data.bias, dim=7)),
        "NCI": lambda: (library.NCI(None, linear, alpha=0.01), detect.NCI(data.weight, alpha=0.01)),
        "ReAct": lambda: (
            library.ReAct(None, flat, percentile=0.9),
            detect.ReAct(detect.Energy(), data.weight, data.bias, percentile=90),
        ),
        **{
            f"ASH-{v}": lambda v=v: (
                library.ASH(None, flat, variant=f"ash-{v}", percentile=0.65),
                detect.ASH(detect.Energy(), data.weight, data.bias, percentile=65, variant=v),
            )
            for v in ("p", "b", "s")
        },
    }
    return both[name]()


METHODS = [name for name in detect.DETECTORS if name not in ("NECO", "Residual", "ASH")] + ["ASH-p", "ASH-b", "ASH-s"]


@needs_theirs
@pytest.mark.parametrize("name", METHODS)
def test_where_both_have_a_method_they_agree(data: Data, name: str) -> None:
    # Not negative, as ASH wants them, and no two equal, of which each keeps another; logits that theirs does not clip.
    x, test = (data.x.abs(), data.test.abs()) if name.startswith("ASH") else (data.x, data.test)
    logits, test_logits = (data.logits / 8, data.test_logits / 8) if name == "GEN" else (data.logits, data.test_logits)
    theirs, ours = theirs_and_ours(name, data)
    a, b = (one.fit(x, logits, data.y).score(test, test_logits) for one in (detect.from_pytorch_ood(theirs), ours))
    # Their covariances are sums and not means, Mahalanobis is half a distance, and GEN a mean over classes.
    a = a.double() * {"Mahalanobis": 2 * len(x), "RelativeMahalanobis": len(x), "GEN": 3}.get(name, 1)
    # ... and in float32, with a ridge.
    assert torch.allclose(a, b, rtol=2e-3 if "Mahalanobis" in name else 1e-4, atol=1e-4)


@needs_theirs
def test_what_needs_images_is_refused(data: Data) -> None:
    with pytest.raises(TypeError, match="a ODIN has none of predict_features"):
        detect.from_pytorch_ood(pytorch_ood().ODIN(head(data)))


def test_a_borrowed_detector_turns_its_sign(data: Data) -> None:
    ours = detect.from_pytorch_ood(Theirs()).fit(data.x, data.logits, data.y)
    assert torch.equal(ours.score(data.test, data.test_logits), -(data.test - data.x.mean(0)).norm(dim=1))
    assert isinstance(ours, detect.Detector)
    inside = detect.ReAct(detect.from_pytorch_ood(Theirs()), data.weight, percentile=90).fit(data.x, data.logits, data.y)
    assert inside.score(data.test, data.test_logits).isfinite().all()
    with pytest.raises(ValueError, match="a Borrowed is no detector of ours"):
        detect.state(ours)


@pytest.mark.parametrize("name", ["NECO", "KNN", "ViM", "MSP", "ASH"])
def test_a_lent_detector_is_features_in_and_turns_its_sign(data: Data, name: str) -> None:
    linear = nn.functional.linear
    x, y = torch.cat([data.x, 1000 + data.test]), torch.cat([data.y, -torch.ones(len(data.test)).long()])
    lent = detect.to_pytorch_ood(every(data)[name], weight=data.weight, bias=data.bias).fit_features(x, y)
    ours = every(data)[name].fit(data.x, linear(data.x, data.weight, data.bias), data.y)
    assert torch.equal(lent.predict_features(data.test), -ours.score(data.test, linear(data.test, data.weight, data.bias)))


def test_there_and_back(data: Data) -> None:
    ours = detect.KNN(k=3).fit(data.x, data.logits, data.y)
    back = detect.from_pytorch_ood(detect.to_pytorch_ood(detect.KNN(k=3))).fit(data.x, data.logits, data.y)
    assert torch.equal(back.score(data.test, data.test_logits), ours.score(data.test, data.test_logits))
