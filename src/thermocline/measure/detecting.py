"""The detectors a scan fits, all from what its pass over the training set left behind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from torch import Tensor, nn

from thermocline import detect
from thermocline.measure import collect
from thermocline.measure.collect import LastFeatures, Outputs
from thermocline.record import Row, parameters, params

NEIGHBOURS = 50  # of KNN and NNGuide, at most
HEADED = ("residual", "vim", "react", "ash", "nci")  # that read the head's weight
PERCENTILE, VARIANT, ALPHA = 90, "s", 0.001  # of ReAct and ASH, ASH, NCI


def usual(samples: int, width: int) -> dict[str, int | float | str]:
    """What scans choose for the settings in which papers differ, by name."""
    k, dim = min(NEIGHBOURS, samples), _axes(width)
    return {"k": k, "dim": dim, "percentile": PERCENTILE, "variant": VARIANT, "alpha": ALPHA}


def fitted(head: nn.Module, last: LastFeatures, outputs: Outputs, temperature: float) -> dict[str, detect.Detector]:
    """Every detector that can be fitted to these features, by the name that rows give it.

    One that cannot is left out, as are its rows: Mahalanobis of constant features, say. Settings are the authors', none is
    chosen by how well it does here.
    """
    found = {}
    for name, fit in _candidates(head, last, outputs, temperature):
        try:
            detector = fit()
            detector.score(*(some[:1] for some in (last.some.values[0], outputs.some.values[0])))
        except ValueError:
            continue
        found[name] = detector
    return found


def _candidates(
    head: nn.Module, last: LastFeatures, outputs: Outputs, t: float
) -> Iterator[tuple[str, Callable[[], detect.Detector]]]:
    moments, (features,), (logits, labels) = last.moments, last.some.values, outputs.some.values
    k = min(NEIGHBOURS, len(features))
    plain = [
        # The authors multiply by the largest logit for every net but ResNets: both, so that either can be read off.
        (params(detector="neco", dim=0.9), lambda: detect.NECO(dim=0.9).fit_moments(moments.all)),
        (params(detector="neco-maxlogit", dim=0.9), lambda: detect.NECO(dim=0.9, logit_factor=True).fit_moments(moments.all)),
        (params(detector="mahalanobis"), lambda: detect.Mahalanobis().fit_moments(moments)),
        (params(detector="relative-mahalanobis"), lambda: detect.RelativeMahalanobis().fit_moments(moments)),
    ]
    yield from plain
    for name, detector in {
        params(detector="msp"): detect.MSP(temperature=t),
        params(detector="maxlogit"): detect.MaxLogit(),
        params(detector="energy"): detect.Energy(temperature=t),
        params(detector="entropy"): detect.Entropy(temperature=t),
        params(detector="gen", gamma=0.1): detect.GEN(gamma=0.1, temperature=t),
        params(detector="kl-matching"): detect.KLMatching(temperature=t),
        params(detector="knn", k=k): detect.KNN(k=k),
        params(detector="nnguide", k=k): detect.NNGuide(k=k, temperature=t),
    }.items():
        yield name, lambda detector=detector: detector.fit(features, logits, labels)
    weight, bias = (None, None) if last.subset else linear_head(head, features, logits)
    if weight is not None:
        yield from _with_head(weight, bias, last, outputs, t)


def linear_head(head: nn.Module, features: Tensor, logits: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The weight and bias of a head, if logits are W h + b: a layer may be called linear and do more, or the net after it."""
    if not isinstance(head, nn.Linear):
        return None, None
    weight, bias = head.weight.detach(), None if head.bias is None else head.bias.detach()
    return (weight, bias) if reproduces(weight, bias, features, logits) else (None, None)


def left_out(head: nn.Module, path: str, rows: Iterable[Row], asked: Collection[str]) -> str:
    """What rows lack because a head at `path` is not one that gives W h + b, and why, in a line; empty if nothing."""
    found = {row.measure if row.measure == "compression" else parameters(row.params).get("detector", "") for row in rows}
    gone = [] if found.isdisjoint(("neco", "msp")) or not found.isdisjoint(HEADED) else list(HEADED)
    gone += ["compression"] if "compression" in asked and "compression" not in found else []
    if not gone:
        return ""
    after = "as where they are scaled after it or read at another token"
    why = f"logits are not {path}.weight times its input, plus its bias, {after}"
    if not isinstance(head, nn.Linear):
        why = f"the head {path} is a {type(head).__name__}, not an nn.Linear"
    elif head.in_features > collect.WIDEST:
        why = f"the head {path} reads {head.in_features} features, more than {collect.WIDEST}"
    return f"{why}: {' and '.join([', '.join(gone[:-1])] * (len(gone) > 1) + gone[-1:])} left out"


def reproduces(weight: Tensor, bias: Tensor | None, features: Tensor, logits: Tensor) -> bool:
    """Whether W h + b gives the logits, on a hundred samples or so from all over."""
    every = -(-len(features) // 100)
    some, wanted = features[::every].to(weight.dtype), logits[::every].double()
    gap = (nn.functional.linear(some, weight, bias).double() - wanted).abs().max()
    return bool(gap <= 0.02 * wanted.abs().max())  # a bfloat16 net rounds by half a percent


def _with_head(
    weight: Tensor, bias: Tensor | None, last: LastFeatures, outputs: Outputs, t: float
) -> Iterator[tuple[str, Callable[[], detect.Detector]]]:
    """Those that read the head's weight."""
    all_, (features,), (logits, labels) = last.moments.all, last.some.values, outputs.some.values
    dim = _axes(weight.shape[1])
    yield params(detector="residual", dim=dim), lambda: detect.Residual(weight, bias, dim=dim).fit_moments(all_)
    yield (
        params(detector="vim", dim=dim),
        lambda: detect.ViM(weight, bias, dim=dim, temperature=t).fit_moments(all_).match(features, logits),
    )
    energy = detect.Energy(temperature=t)
    react = detect.ReAct(energy, weight, bias, percentile=PERCENTILE)
    yield params(detector="react", percentile=PERCENTILE), lambda: react.fit(features, logits, labels)
    ash = detect.ASH(energy, weight, bias, percentile=PERCENTILE, variant=VARIANT)
    yield params(detector="ash", variant=VARIANT, percentile=PERCENTILE), lambda: ash.fit(features, logits, labels)
    yield params(detector="nci", alpha=ALPHA), lambda: detect.NCI(weight, alpha=ALPHA).fit_moments(all_)


def _axes(width: int) -> int:
    """The principal axes that ViM's authors take of features so wide [wang2022vim]."""
    return 1000 if width >= 2048 else 512 if width >= 768 else max(width // 2, 1)
