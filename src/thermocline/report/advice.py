"""Facts -> what they mean for whoever uses the net: which layers to cut, where to take features from. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from thermocline.report.facts import Case, Group, Summary, detected, lucky

SMALL = 0.05
"""The OOD drop below which the last layer is taken to be as good as any."""

NEAR = 0.99 - 1e-9
"""The share of the last layer's accuracy from which on a layer is as good: that of effective depth, and its slack."""

MANY = 6  # classes that are named one by one
BACKWARDS = 0.45  # AUROC: from half down to here a score may just tell nothing
WORST = 3  # of those that are, the ones that are named

CHOSEN = "Layers and detectors were chosen on the test images that these numbers are of: expect a little less on new ones."
"""What is said, once, of advice that was `chosen`."""


@dataclass(frozen=True)
class Advice:
    """One sentence on the nets of one temperature, a word for it, and how it is coloured: "good", "warn" or "calm"."""

    group: str
    status: str
    word: str
    sentence: str
    chosen: bool = False  # a layer or a score was picked by the numbers it is shown with


def given(case: Case) -> list[Advice]:
    """What the finished nets of a case suggest, coldest first; a measure that was not made says nothing.

    Of nets that have not learned this is said and nothing else, here or in `judge`.
    """
    found = []
    for group in case.groups:
        makers = (_merged, _depth, _transfer, _unread, _rank, _detection) if group.learned else (_unlearned,)
        found += [one for make in makers if group.finished for one in make(group)]
    return found


def note(found: Iterable[Advice]) -> str:
    """`CHOSEN` where that is so, and else nothing."""
    return CHOSEN if any(one.chosen for one in found) else ""


def _unlearned(group: Group) -> Iterator[Advice]:
    """By the rule of `facts.learned`. A scan has no steps: its net was trained elsewhere."""
    idle = [one for one in group.members if not one.learned]
    right = group.estimate(lambda one: None if one.learned else one.train_accuracy)
    if right is None or not (guessing := idle[0].guessing):
        return
    who = "It" if len(idle) == len(group.members) else f"In {len(idle)} of {len(group.members)} runs it"
    said = f"{who} gets {_percent(right.mean, 1)} of its training images right, where guessing gets {_percent(guessing, 1)}"
    held = idle[0].settings["train.temperature_target"] is not None
    colder = "another train.temperature_target, " if held else "a lower train.temperature, " if idle[0].temperature > 1 else ""
    ours = f"so what its layers show is where they started; try {colder}a larger train.lr or more train.epochs"
    other = "or images and labels do not come to it as they did in its training; nothing else is said of it"
    yield Advice(group.label, "warn", "Not learned", f"{said}: it has not learned, {ours if idle[0].step else other}.")


def _merged(group: Group) -> Iterator[Advice]:
    """Of classes that are one point to the net, by the rule of `Summary.merged`."""
    found: dict[tuple[int, ...], list[Summary]] = {}
    for one in group.members:
        for classes in one.merged.values():
            found.setdefault(tuple(classes), []).append(one)
    for classes, members in found.items():
        who = "Classes" if len(members) == len(group.members) else f"In {len(members)} of {len(group.members)} runs classes"
        said = f"{who} {_listed([*map(str, classes)], most=MANY)} have one mean, and most test images of them"
        into = next(into for into, merged in members[0].merged.items() if tuple(merged) == classes)
        colder = " Try a lower train.temperature." if members[0].step and members[0].temperature > 1 else ""
        yield Advice(
            group.label,
            "warn",
            "Merged classes",
            f"{said} are taken for {into}: it does not tell them apart{_parted(group)}.{colder}",
        )


def _parted(group: Group) -> str:
    """Which layer's read-out gets more of the test images right than the net does, if one gets 1 % more."""
    right, means = group.estimate(lambda one: one.test_accuracy), _means(group.members, "test")
    layer = max(means, key=lambda depth: means[depth], default=None)
    if right is None or layer is None or NEAR * means[layer] < right.mean:
        return ""
    read = f"a linear read-out of layer {layer}{_name(group, 'test', layer)} gets {_percent(means[layer])}"
    return f", while {read} of all test images right and the net {_percent(right.mean)}"


def _depth(group: Group) -> Iterator[Advice]:
    """From kappa: how much of the net a linear read-out needs [masarczyk2025softmax, Sec. 2.1]."""
    kappa, layers = group.estimate(lambda one: one.effective_depth), group.first(lambda one: one.layers)
    if kappa is None or not layers:
        return
    depths = [round(one.effective_depth * layers) for one in group.members if one.effective_depth is not None]
    share, data = f"Effective depth {_percent(kappa.mean)}", group.members[0].data
    if min(depths) < max(depths):
        share += f" on average (layers {min(depths)} to {max(depths)} of {layers}, by seed)"
    cut = _within(group, layers, max(depths))
    if cut == layers:
        where = "in at least one seed no layer" if min(depths) < max(depths) == layers else "no layer"
        every = " in every seed" if max(depths) < layers else ""
        near = f"before the last of {layers} comes within 1 % of its accuracy on {data}{every}"
        yield Advice(group.label, "calm", "Nothing to cut", f"{share}: {where} {near}.")
        return
    place = f"layer {cut}{_name(group, 'test', cut)}"
    where = f"a linear read-out of {data} at {place} comes within 1 % of that at the last of {layers}"
    yield Advice(group.label, "warn", "Layers to spare", f"{share}: {where}; you could cut there.", chosen=True)


def _within(group: Group, layers: int, deepest: int) -> int:
    """The first layer, from the deepest effective depth on, that is within 1 % of the last in every seed.

    Accuracy need not rise with depth: a layer beyond a seed's own effective depth can be worse again.
    """
    found = [{depth: value for depth, _, value in one.probes.get("test", ())} for one in group.members]
    known = [(one, accuracy) for one, accuracy in zip(group.members, found) if layers in accuracy]

    def good(depth: int) -> bool:
        return all(
            round((one.effective_depth or 0) * layers) == depth or accuracy.get(depth, 0) >= NEAR * accuracy[layers]
            for one, accuracy in known
        )

    return next(filter(good, range(deepest, layers)), layers)


def _transfer(group: Group) -> Iterator[Advice]:
    """From rho: whether the last layer is the one to take features for other data from, and else which."""
    for name in dict.fromkeys(name for one in group.members for name in one.ood_drop):
        rho = group.estimate(lambda one, name=name: one.ood_drop.get(name))
        means = _means(group.members, name)
        if rho is None or not means:
            continue
        if rho.mean < SMALL:
            kept = f"probes of {name} keep {_percent(1 - rho.mean)} of their best accuracy"
            yield Advice(group.label, "good", "Last layer will do", f"At the last layer {kept}: its features serve {name} too.")
            continue
        layer = max(means, key=lambda depth: means[depth])
        lost = "half" if 0.475 <= rho.mean < 0.525 else _percent(rho.mean)
        said = f"Probes of {name} lose {lost} of their best accuracy by the last layer"
        each = [_means([one], name) for one in group.members if name in one.probes]
        differ = any(one.get(layer, 0.0) < max(one.values()) for one in each)
        if layer == max(means):
            why = ", but the best layer differs by seed: on average it is the last" if differ else ""
            yield Advice(group.label, "calm", "No one layer is better", f"{said}{why}.")
            continue
        best = "; it is the best on average, not in every seed" if differ else ""
        early = group.estimate(lambda one, name=name: _early_drop(one, name))  # logits of few classes lose by being few
        before = f", {_percent(early.mean)} by the layer before" if early else ""
        take = f"take features from layer {layer}{_name(group, name, layer)}, where they reach {_percent(means[layer])}"
        yield Advice(group.label, "warn", "Take earlier features", f"{said}{before}: {take}{best}.", chosen=True)


def _unread(group: Group) -> Iterator[Advice]:
    """Of probes that are at chance themselves, that they are; by the rule of `Summary.unread`."""
    for name in dict.fromkeys(name for one in group.members for name in one.unread):
        idle = [one for one in group.members if name in one.unread]
        best = max(right for one in idle for _, _, right in one.probes[name])
        share, count = guess = idle[0].guesses[name]
        data, lost = ("its own data", "effective depth") if name == "test" else (name, "OOD drop")
        who = "Probes" if len(idle) == len(group.members) else f"In {len(idle)} of {len(group.members)} runs probes"
        luck = f"guessing gets {_percent(share, 1)}, and {_percent(lucky(*guess), 1)} with luck"
        right = f"get at most {_percent(best, 1)} of {count} test images right, where {luck}"
        yield Advice(
            group.label,
            "warn",
            "Nothing read",
            f"{who} of {data} {right}: nothing shows that they learned, so no {lost} is given.",
        )


def _rank(group: Group) -> Iterator[Advice]:
    rank, classes = group.estimate(lambda one: one.solution_rank), group.first(lambda one: one.classes)
    if rank is None or not classes or classes < 3:
        return
    full, unmet = classes - 1, max(one.unmet for one in group.members)
    fewer = f"the {classes} classes of its training images (there are {classes + unmet} logits)"
    these = fewer if unmet else f"{classes} classes"
    used, can = f"The logits use {rank.mean:.3g} of the", f"{full} directions in which {these} can differ"
    if rank.mean > full:  # nothing makes the logits of a sample sum to zero
        more = f"{rank.mean - full:.3g} more" if unmet else "the one in which they move together"
        yield Advice(group.label, "good", "Full rank", f"The logits use all {can}, and {more}.")
    elif rank.mean < 0.9 * full:
        yield Advice(group.label, "warn", "Rank deficit", f"{used} {can}: not every class has one of its own.")
    else:
        yield Advice(group.label, "good", "Full rank", f"{used} {can}.")


def _detection(group: Group) -> Iterator[Advice]:
    """The score that does best, and what it lets through; chosen on the data it is reported on, as `note` says."""
    for name, detectors in detected(group.members).items():
        found = {}
        for detector in detectors:
            value = group.estimate(lambda one, key=(name, detector): one.auroc.get(key))
            found[detector] = value.mean if value else 0.0
        if not (best := max(found, key=lambda key: found[key], default="")):
            continue
        passed = group.estimate(lambda one, key=(name, best): one.fpr.get(key))
        missed = f", and lets {_percent(passed.mean)} of them pass where it keeps 95 % of test images" if passed else ""
        of = f"the best of {len(found)} scores here" if len(found) > 1 else "the only score measured"
        good = found[best] >= 0.9
        word = "Notices other data" if good else "Hardly notices other data" if found[best] < 0.7 else "Notices some other data"
        sentence = f"{best} ({of}) tells {name} from test images with AUROC {found[best]:.2f}{missed}."
        yield Advice(group.label, "good" if good else "warn", word, sentence + _backwards(found), chosen=len(found) > 1)


def _backwards(found: Mapping[str, float]) -> str:
    """Which scores are higher for other data, if any are: a detector's settings may not fit this net."""
    worst = sorted(found, key=lambda name: found[name])
    wrong = [f"{name} ({found[name]:.2f})" for name in worst if found[name] < BACKWARDS]
    return f" Higher for other data: {_listed(wrong, most=WORST)}." if wrong else ""


def _listed(words: Sequence[str], *, most: int) -> str:
    """Words in a row, and how many more there are.

    >>> _listed("ab", most=3), _listed("abcde", most=3)
    ('a and b', 'a, b, c and 2 more')
    """
    *first, last = [*words[:most], *([f"{len(words) - most} more"] if len(words) > most else [])]
    return f"{', '.join(first)} and {last}" if first else last


def _means(members: Iterable[Summary], name: str) -> dict[int, float]:
    """The mean accuracy over seeds of the probes of a set, by layer."""
    layers: dict[int, list[float]] = {}
    for one in members:
        for depth, _, accuracy in one.probes.get(name, ()):
            layers.setdefault(depth, []).append(accuracy)
    return {depth: sum(values) / len(values) for depth, values in layers.items()}


def _early_drop(one: Summary, name: str) -> float | None:
    """What of the best layer's accuracy the layer before the last has lost."""
    by_layer = [accuracy for _, _, accuracy in sorted(one.probes.get(name, ()))]
    return 1 - by_layer[-2] / max(by_layer) if len(by_layer) > 1 and max(by_layer) else None


def _name(group: Group, name: str, depth: int) -> str:
    """The layer's own name in brackets, where it has one."""
    layers = group.members[0].probes.get(name, ())
    word = next((layer for at, layer, _ in layers if at == depth), "")
    return f" ({word})" if word else ""


def _percent(value: float, digits: int = 0) -> str:
    return f"{value:.{digits}%}".replace("%", " %")
