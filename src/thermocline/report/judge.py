"""Facts -> verdicts in words, each computed from the numbers: as predicted, absent, reversed, or within seed noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from thermocline.report.estimates import Estimate, meet
from thermocline.report.facts import Case, Group, Summary, cases

STATUS = {
    "present": "As predicted",
    "absent": "No effect",
    "reversed": "Opposite of the prediction",
    "unclear": "Within seed noise",
    "neither": "Neither detects",
    "alone": "Nothing to compare with",
    "caution": "Read with care",
    "calibrated": "Calibrated",
    "over": "Overconfident",
    "under": "Underconfident",
    "off": "Miscalibrated",
}
NEARLY = 0.05  # temperatures this close are one in words


@dataclass(frozen=True)
class Verdict:
    """One sentence about one claim at one temperature, and which way it falls."""

    case: str
    claim: str
    measure: str
    temperature: float
    baseline: float | None
    status: str
    sentence: str
    seeds: int

    @property
    def word(self) -> str:
        """The status; from fewer than three seeds noise gives any of them often enough, so then it carries their number."""
        few = {1: " (one seed)", 2: " (two seeds)"} if self.status in ("present", "absent", "reversed", "neither") else {}
        return STATUS[self.status] + few.get(self.seeds, "")


@dataclass(frozen=True)
class Claim:
    """What high temperature is said to do to one number [masarczyk2025softmax, Sec. 2], and how to speak of it."""

    title: str
    measure: str
    subject: str
    pick: Callable[[Summary], float | None]
    direction: int
    tolerance: float
    ceiling: float
    digits: str
    spell: Callable[[float], str]
    explain: Callable[[float], str]
    meaning: Mapping[str, str] = field(default_factory=dict)
    chance: float | None = None  # up to which two numbers are alike, whichever is higher
    full: float = math.inf  # from which on they are, whichever is lower


def verdicts(summaries: Iterable[Summary]) -> list[Verdict]:
    """Every claim at every temperature against the lowest that learned, after what bears on the comparison itself."""
    return [verdict for case in cases(list(summaries)) for verdict in judge(case)]


def judge(case: Case) -> list[Verdict]:
    base, *hotter = compared(case)
    found = [caution for group in case.groups for caution in _cautions(case, base, group)]
    found += [Verdict(case.title, "Comparison", "", base.temperature, None, "caution", one, base.seeds) for one in _idle(case)]
    for claim in claims(case):
        for group in hotter or [base]:
            status, sentence = _compare(claim, base, group) if hotter else _describe(claim, base)
            if sentence:
                baseline = base.temperature if hotter else None
                place = (case.title, claim.title, claim.measure, group.temperature, baseline)
                found.append(Verdict(*place, status, sentence, min(base.seeds, group.seeds)))
    for group in case.groups:
        status, sentence = _calibration(group)
        if sentence:
            found.append(Verdict(case.title, "Calibration", "ece", group.temperature, None, status, sentence, group.seeds))
    return found


def compared(case: Case) -> tuple[Group, ...]:
    """What the others are compared with, and those hotter than it: finished nets that have not learned are no baseline."""
    first = next((i for i, group in enumerate(case.groups) if group.learned or not group.finished), 0)
    return case.groups[first:]


def claims(case: Case) -> list[Claim]:
    """The claims that the runs of a case can speak to, with the smallest change of each that counts."""
    sets = dict.fromkeys(name for member in case.members for name in member.ood_drop)
    detected = dict.fromkeys(name for member in case.members for name, detector in member.auroc if detector == "neco")
    return [*_shape_claims(case.members), *map(_drop_claim, sets), *map(_detection_claim, detected)]


def described(case: Case) -> list[Claim]:
    """What is worth a card though no theory says which way temperature moves it."""
    if not any(member.ece for member in case.members):
        return []
    pick, spell = (lambda one: one.ece.get("training")), "{:.3f}".format
    return [Claim("Calibration", "ece", "the expected calibration error", pick, 0, 0.02, 1.0, ".3f", spell, spell)]


def _shape_claims(members: Sequence[Summary]) -> list[Claim]:
    classes = next((member.classes for member in members if member.classes), None)
    layers = next((member.layers for member in members if member.layers), None)
    highest = max((member.solution_rank for member in members if member.solution_rank), default=1.0)
    full = classes - 1 if classes else highest

    def explain_rank(value: float) -> str:
        return f"{value:.3g} of {full} (classes - 1)" if classes and value <= full else f"{value:.3g}"

    def spell_depth(value: float) -> str:
        return f"{value:.2f} (layer {round(value * layers, 1):g})" if layers else f"{value:.2f}"

    def explain_depth(value: float) -> str:
        return spell_depth(value).replace(")", f" of {layers})")

    rank = Claim(
        "Solution rank", "solution_rank", "the rank of the logits", lambda one: one.solution_rank,
        -1, max(1.0, 0.02 * full), max(full, highest), ".3g", "{:.3g}".format, explain_rank,
        {"present": "fewer directions carry the classes", "reversed": "more directions carry the classes, not fewer"},
        full=full,
    )  # fmt: skip
    depth = Claim(
        "Effective depth", "effective_depth", "effective depth", lambda one: one.effective_depth,
        -1, 0.5 / (layers or 20), 1.0, ".2f", spell_depth, explain_depth,
        {"present": "fewer layers do the work", "reversed": "more layers are needed, not fewer"},
    )  # fmt: skip
    return [rank, depth]


def _drop_claim(name: str) -> Claim:
    return Claim(
        f"OOD drop, {name}", "ood_drop", f"the share of {name} probe accuracy lost by the last layer",
        lambda one: one.ood_drop.get(name), +1, 0.02, 1.0, ".2f", "{:.2f}".format, "{:.2f}".format,
        {"present": "late features transfer worse", "reversed": "late features transfer better, not worse"},
    )  # fmt: skip


def _detection_claim(name: str) -> Claim:
    return Claim(
        f"Detection, {name}", "auroc", f"NECO's AUROC on {name}",
        lambda one: one.auroc.get((name, "neco")), +1, 0.01, 1.0, ".3f", "{:.3f}".format, "{:.3f}".format,
        {"present": "the set is easier to detect", "reversed": "the set is harder to detect, not easier",
         "neither": "neither is better than a coin, so neither detects the set"},
        chance=0.5,
    )  # fmt: skip


def _interval(claim: Claim, value: Estimate) -> str:
    return "" if value.count == 1 else f" [{value.low:{claim.digits}} to {value.high:{claim.digits}}]"


def _brackets(*values: Estimate) -> str:
    kinds = dict.fromkeys(value.kind for value in values if value.count > 1)
    cut = ", cut to possible values" if any(value.cut for value in values) else ""
    return f" In brackets: {'; '.join(kinds)}{cut}." if kinds else ""


def _compare(claim: Claim, base: Group, group: Group) -> tuple[str, str]:
    before, after = (one.estimate(claim.pick, of=claim.measure) for one in (base, group))
    if before is None or after is None or not (base.judged and group.judged):
        return "", ""
    change, paired = after.mean - before.mean, group.change(base, claim.pick)
    status = _status(claim, before, after, paired)
    moved = "unchanged from" if change == 0 else "down from" if change < 0 else "up from"
    now, then = claim.explain(after.mean) + _interval(claim, after), claim.spell(before.mean) + _interval(claim, before)
    sentence = f"At {group.label} {claim.subject} is {now}, {moved} {then} at {base.label}"
    if paired and paired.low < paired.high:
        sentence += f"; paired by seed the change is {paired.mean:+{claim.digits}}{_interval(claim, paired)}"
    if status == "absent" and change and min(before.mean, after.mean) >= claim.full:
        sentence += ": both use every direction in which classes can differ"
    elif status == "absent":
        sentence += "" if change == 0 else f", a change of less than {claim.tolerance:.2g}, which counts as none"
    elif status == "unclear":
        sentence += ", which may be none" if paired else ": the intervals overlap, so it is not settled"
    else:
        sentence += f": {claim.meaning[status]}"
    opinion = _second_opinion(base, group, change) if claim.measure == "solution_rank" else ""
    return status, f"{sentence}.{opinion}{_brackets(after, before)}"


def _status(claim: Claim, before: Estimate, after: Estimate, paired: Estimate | None) -> str:
    change = after.mean - before.mean
    if claim.chance is not None and max(before.mean, after.mean) <= claim.chance:
        return "neither"
    if min(before.mean, after.mean) >= claim.full:
        return "absent"
    if abs(change) < claim.tolerance:
        within = paired is None or -claim.tolerance <= paired.low <= paired.high <= claim.tolerance
        return "absent" if within else "unclear"
    if max(before.count, after.count) > 1 and meet(before, after, paired):
        return "unclear"
    return "present" if change * claim.direction > 0 else "reversed"


def _second_opinion(base: Group, group: Group, change: float) -> str:
    """A count above a threshold also falls when the first singular value alone grows, so it never stands alone."""
    before = base.estimate(lambda one: one.solution_entropy_rank)
    after = group.estimate(lambda one: one.solution_entropy_rank)
    if before is None or after is None:
        return ""
    move = after.mean - before.mean
    numbers = f"{before.mean:.3g} to {after.mean:.3g}"
    if change == 0 or move == 0:
        return f" Their entropy rank, which needs no threshold, goes from {numbers}."
    if move * change < 0:
        return f" But their entropy rank, which needs no threshold, goes the other way: {numbers}."
    return f" Their entropy rank, which needs no threshold, goes the same way: {numbers}."


def _describe(claim: Claim, only: Group) -> tuple[str, str]:
    value = only.estimate(claim.pick, of=claim.measure)
    if value is None or not only.learned:
        return "", ""
    return (
        "alone",
        f"At {only.label} {claim.subject} is {claim.explain(value.mean)}{_interval(claim, value)}.{_brackets(value)}",
    )


def _calibration(group: Group) -> tuple[str, str]:
    """Whether confidence is accuracy [guo2017calibration], which way it is off, and what another temperature would do."""
    error = group.estimate(lambda one: one.ece.get("training"), of="ece")
    if error is None or not group.learned:
        return "", ""
    fitted, softening = group.estimate(lambda one: one.ece.get("fitted")), group.estimate(lambda one: one.softening)
    spread = "" if error.count == 1 else f" [{error.low:.3f} to {error.high:.3f}]"
    sentence = f"At {group.label} ECE is {error.mean:.3f}{spread} at the training temperature"
    if fitted and round(fitted.mean, 3) >= round(error.mean, 3):
        sentence += f"; no other temperature was found to lower it ({fitted.mean:.3f} at the fitted one)"
    elif fitted and softening and abs(softening.mean - 1) < NEARLY:
        sentence += f"; no other temperature helps: the fitted one is within {100 * NEARLY:.0f} % of it ({fitted.mean:.3f})"
    elif fitted and softening:
        by = softening.mean
        change = f"dividing the logits by {by:.2g} more" if by >= 1 else f"multiplying the logits by {1 / by:.2g}"
        sentence += f"; {change} brings it to {fitted.mean:.3f}"
    status = _leaning(error.mean, group.estimate(lambda one: one.overconfidence), softening)
    return status, f"{sentence}.{_brackets(error)}"


def _leaning(error: float, overconfidence: Estimate | None, softening: Estimate | None) -> str:
    if error < 0.02:
        return "calibrated"
    way = 0.0
    if overconfidence:
        way = overconfidence.mean / error
    elif softening:
        way = float((softening.mean > 1) - (softening.mean < 1))
    # Bins may be off both ways: it is one way where half of the error is.
    return "over" if way > 0.5 else "under" if way < -0.5 else "off"


def _cautions(case: Case, base: Group, group: Group) -> list[Verdict]:
    """What to know before believing a comparison: unfinished, untrained, another accuracy, more than
    temperature changed, or that within a run.

    Of nets that have not learned the advice says so, and `_idle` what that leaves to compare.
    """
    found = []
    if not group.finished:
        found.append(f"{group.label} is unfinished, at step {group.members[0].step or 0}: it is drawn but not judged.")
    last = group.estimate(lambda one: one.last_temperature)
    if last and not math.isclose(last.mean, group.temperature, rel_tol=1e-3):
        found.append(f"{group.label} is only its label: the temperature moves, and was {last.mean:.3g} when last measured.")
    fit = group.estimate(lambda one: one.train_accuracy)
    if group.judged and fit and fit.mean < 0.99:
        reached = f"{group.label} reached only {100 * fit.mean:.1f} % training accuracy"
        found.append(f"{reached}: what it shows may be unfinished training.")
    before, after = base.estimate(lambda one: one.test_accuracy), group.estimate(lambda one: one.test_accuracy)
    if group.judged and base.judged and before and after and abs(after.mean - before.mean) > 0.02:
        found.append(
            f"{group.label} reaches {100 * after.mean:.1f} % test accuracy against {100 * before.mean:.1f} % at {base.label}:"
            " what differs below may come from that."
        )
    if differing := _differing(base, group):
        found.append(f"{group.label} differs from {base.label} in more than temperature: {', '.join(differing)}.")
    return [
        Verdict(case.title, "Comparison", "", group.temperature, base.temperature, "caution", sentence, group.seeds)
        for sentence in found
    ]


def _idle(case: Case) -> list[str]:
    """What follows for the comparison where the coldest nets, or all, have not learned."""
    if all(group.finished and not group.learned for group in case.groups):
        some = any(member.learned for member in case.members)
        who = "At no temperature has every seed learned" if some else "None of these nets has learned"
        return [f"{who} its training images, so no claim is judged."]
    base, *hotter = compared(case)
    idle = [group.label for group in case.groups[: -1 - len(hotter)]]
    if not idle or not base.judged:
        return []
    then = f"what is hotter is compared with {base.label}" if hotter else f"{base.label} has nothing to be compared with"
    return [f"{', '.join(idle)} {'has' if len(idle) == 1 else 'have'} not learned, so {then}."]


def _differing(base: Group, group: Group) -> list[str]:
    one, other = base.members[0], group.members[0]
    before, after = one.settings, other.settings
    paths = [path for path in one.known if path.startswith("train.") and path in other.known]
    paths = [path for path in paths if path not in ("train.temperature", "train.snapshots")]
    return [f"{path} {before[path]} to {after[path]}" for path in paths if before[path] != after[path]]
