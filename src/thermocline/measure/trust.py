"""Measures of whether a net can be trusted: does it notice other data, and do its probabilities mean what they say?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, SupportsFloat

import torch
from torch import Tensor

from thermocline import detect, softmax
from thermocline.measure import collect, source
from thermocline.measure.passes import Found, Seen
from thermocline.record import Row, params

BINS = 15  # of confidence, as [guo2017calibration] has them
SCORE_BINS = 30  # of a detector's scores
RATES = (0, 0.01, 0.02, 0.03, 0.05, 0.07, *(i / 20 for i in range(2, 21)))  # false positives at which a ROC curve is kept
DIMS = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # axes of NECO
PAIRS = 20  # of classes, the most confused


def auroc(seen: Seen) -> Iterator[Row]:
    """How well a score tells test images from other data: 0.5 is chance, 1 is perfect.

    P(s_id > s_ood) + P(s_id = s_ood) / 2                                     [fawcett2006roc, Sec. 7]
    """
    for found in seen.found():
        yield _detection(seen, found, "auroc", detect.auroc(found.inside, found.outside))


def auroc_interval(seen: Seen) -> Iterator[Row]:
    """Where the AUROC would lie with other samples of the same two data sets, 95 times of 100.

    logit A +- 1.96 sqrt(var(V) / n + var(W) / m) / (A (1 - A)),  V, W = placements   [delong1988roc]
    """
    for found in seen.found():
        if min(len(found.inside), len(found.outside)) < 2:
            continue  # one score has no variance
        interval = detect.auroc_interval(found.inside, found.outside, level=0.95)
        for part, value in (("low", interval.low), ("high", interval.high)):
            yield _detection(seen, found, "auroc_interval", value, part=part, level=0.95)


def aupr(seen: Seen) -> Iterator[Row]:
    """Precision of taking samples for test images, averaged over thresholds; chance is the share of test images.

    sum_t (R_t - R_{t-1}) P_t,  P = precision, R = recall, thresholds from the highest score down   [boyd2013area]
    """
    for found in seen.found():
        value = detect.aupr(found.inside, found.outside, positive="id")
        yield _detection(seen, found, "aupr", value, positive="id")


def fpr(seen: Seen) -> Iterator[Row]:
    """The share of other data let through by the threshold that keeps 95 % of test images.

    mean(s_ood >= t),  t = the floor(0.95 n)-th largest s_id                  [liang2018odin, Sec. 4]
    """
    for found in seen.found():
        value = detect.fpr_at_tpr(found.inside, found.outside, tpr=0.95, positive="id")
        yield _detection(seen, found, "fpr", value, tpr=0.95, positive="id")


def neco_oracle(seen: Seen) -> Iterator[Row]:
    """NECO's AUROC at the number of axes that is best for these very images, as its authors choose; never a result by itself.

    max_k AUROC(s_k),   s_k = ||P_k z|| / ||z||,   and that k                 [benammar2024neco]
    """
    for name, inside, outside in _unseen(seen):
        try:
            dim, value = detect.neco_oracle(seen.last.moments.all, inside, outside)
        except ValueError:
            return  # features that it cannot be fitted to
        yield _neco(seen, name, inside, outside, "neco_oracle", float(value), part="auroc")
        yield _neco(seen, name, inside, outside, "neco_oracle", float(dim), part="dim")


def neco_by_dim(seen: Seen) -> Iterator[Row]:
    """NECO's AUROC at fixed numbers of axes: its code's default is 100, and a verdict may depend on how many there are.

    AUROC(s_k),   s_k = ||P_k z|| / ||z||,   k = 1, 2, 5, ... 500             [benammar2024neco]
    """
    for name, inside, outside in _unseen(seen):
        try:
            found = detect.neco_by_dim(seen.last.moments.all, inside, outside, dims=DIMS)
        except ValueError:
            return
        for dim, value in found.items():
            yield _neco(seen, name, inside, outside, "neco_by_dim", float(value), dim=dim)


def _unseen(seen: Seen) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Last features of some test images and of each other set: NECO is tried with many numbers of axes on them."""
    for name in seen.ood:
        if {"test", f"{name}/test"} <= seen.unseen.keys():
            inside, outside = (seen.unseen[split].some.values[0] for split in ("test", f"{name}/test"))
            yield name, inside[source.some(collect.ORACLE, of=len(inside)).to(inside.device)], outside


def _neco(seen: Seen, name: str, inside: Tensor, outside: Tensor, measure: str, value: float, **how: str | int) -> Row:
    said = params(**how, id=len(inside), ood=len(outside), **seen.last.subset)
    return seen.before_head(f"{name}/test")(measure, said, value)


def roc(seen: Seen) -> Iterator[Row]:
    """The share of test images kept by the best threshold that lets at most a share `fpr` of other data pass.

    max{mean(s_id >= t) : mean(s_ood >= t) <= fpr}                            [fawcett2006roc, Sec. 5]
    """
    for found in seen.found():
        ordered = found.outside.sort(descending=True).values
        for fpr in RATES:
            passed = int(fpr * len(ordered) + 1e-9)  # which absorbs the rounding of fpr * n
            kept = (found.inside > ordered[passed]).double().mean() if passed < len(ordered) else torch.ones(())
            yield _detection(seen, found, "roc", kept, positive="id", fpr=float(fpr))


def score_histogram(seen: Seen) -> Iterator[Row]:
    """How scores lie: the share of test images (id) and of other data (ood) in each of 30 bins from `low` to `high`.

    mean(low + b w <= s < low + (b + 1) w), low and high = quantiles 0.005 and 0.995 of all   [fawcett2006roc, Sec. 3]
    """
    for found in seen.found():
        ordered = torch.cat([found.inside, found.outside]).sort().values
        low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.005, 0.995))
        if not (high - low).isfinite() or low == high:
            continue  # scores that are all the same, or infinite, have no bins
        for part, value in (("low", low), ("high", high)):
            yield _detection(seen, found, "score_histogram", value, bins=SCORE_BINS, part=part)
        for part, scores in (("id", found.inside), ("ood", found.outside)):
            # What lies beyond the ends is counted in the bins there.
            places = ((scores.clamp(low, high) - low) / (high - low) * SCORE_BINS).long().clamp(max=SCORE_BINS - 1)
            for index, count in enumerate(places.bincount(minlength=SCORE_BINS).tolist()):
                share = torch.tensor(count / len(scores))
                yield _detection(seen, found, "score_histogram", share, bins=SCORE_BINS, part=part, bin=index)


def confusion(seen: Seen) -> Iterator[Row]:
    """The pairs of classes most often confused: the share of the first taken for the second, and the cosine of their means.

    #{i : y_i = label, argmax e_i = predicted} / #{i : y_i = label};  cos(mu_a - mu_G, mu_b - mu_G)   [fawcett2006roc, Sec. 2]
    """
    if "test" not in seen.outputs or seen.outputs["test"].count < 1:
        return
    logits, labels = seen.outputs["test"].some.values
    said, sizes, classes = logits.argmax(1), labels.bincount(minlength=logits.shape[1]), logits.shape[1]
    wrong = said != labels
    pairs, counts = (labels[wrong] * classes + said[wrong]).unique(return_counts=True)
    shares = counts.double() / sizes[pairs // classes]
    means = seen.last.moments.means
    towards = torch.nn.functional.normalize(means - means[seen.last.moments.counts > 0].mean(0), dim=1)
    for index in shares.sort(descending=True, stable=True).indices[:PAIRS].tolist():
        label, predicted = divmod(int(pairs[index]), classes)
        place = {"label": label, "predicted": predicted}
        parts = {"share": float(shares[index]), "cosine": float(towards[label] @ towards[predicted])}
        for part, value in parts.items():
            yield Row.whole("test", "confusion", params(**place, part=part, **_thinned(seen)), value)


def _detection(seen: Seen, found: Found, measure: str, value: SupportsFloat, **counted_by: object) -> Row:
    how = ",".join(filter(None, (found.detector, params(**counted_by))))
    return seen.before_head(found.split)(measure, how, float(value))


def fitted_temperature(seen: Seen) -> Iterator[Row]:
    """The temperature at which the test labels are likeliest: above that of training, the net is overconfident.

    argmin_T -sum_i log softmax_T(e_i)_{y_i}, the geometric mean over two halves   [guo2017calibration, Sec. 4.2]
    """
    if seen.calibrated and seen.calibrated.temperatures:
        value = torch.tensor(seen.calibrated.temperatures, dtype=torch.float64).log().mean().exp()
        yield Row.whole("test", "fitted_temperature", params(**_thinned(seen)), value)


def ece(seen: Seen) -> Iterator[Row]:
    """How far confidence is from accuracy on test images; `fitted`: at a temperature fitted to the other half of them.

    sum_b (n_b / n) |accuracy_b - confidence_b|                               [guo2017calibration, Sec. 2]
    """
    schemes: tuple[Literal["equal-width", "adaptive"], ...] = ("equal-width", "adaptive")
    for at, probabilities, labels in _probabilities(seen):
        for scheme in schemes:
            value = softmax.expected_calibration_error(labels, probabilities=probabilities, bins=BINS, scheme=scheme)
            yield Row.whole("test", "ece", params(scheme=scheme, bins=BINS, at=at, **_thinned(seen)), value)


def brier(seen: Seen) -> Iterator[Row]:
    """Squared distance of the probabilities of test images from their labels, from 0 to 2.

    (1/n) sum_i ||softmax_T(e_i) - onehot(y_i)||^2                            [brier1950verification]
    """
    for at, probabilities, labels in _probabilities(seen):
        value = softmax.brier_score(labels, probabilities=probabilities)
        yield Row.whole("test", "brier", params(at=at, **_thinned(seen)), value)


def reliability(seen: Seen) -> Iterator[Row]:
    """The reliability diagram: how often test images of about the same confidence are right.

    accuracy_b, confidence_b and n_b of bin b = (b / 15, (b + 1) / 15]         [guo2017calibration, Sec. 2]
    """
    for at, probabilities, labels in _probabilities(seen):
        read = softmax.reliability(labels, probabilities=probabilities, bins=BINS, scheme="equal-width")
        for index in read.counts.nonzero()[:, 0].tolist():
            for part, values in (("count", read.counts), ("confidence", read.confidence), ("accuracy", read.accuracy)):
                how = params(at=at, bin=index, part=part, **_thinned(seen))
                yield Row.whole("test", "reliability", how, values[index])


def _probabilities(seen: Seen) -> Iterator[tuple[str, Tensor, Tensor]]:
    if seen.calibrated:
        for at, probabilities in seen.calibrated.probabilities.items():
            yield at, probabilities, seen.calibrated.labels


def _thinned(seen: Seen) -> dict[str, int]:
    """How many test samples there were probabilities of, where it was not all."""
    return seen.outputs["test"].some.thinned
