"""Facts -> the plain values that the page template writes. Standard library only; nothing here is HTML."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from thermocline import spec as specs
from thermocline.record import Loaded
from thermocline.report import advice, judge, table
from thermocline.report.estimates import plural
from thermocline.report.facts import Case, Group, Summary
from thermocline.report.figure import Figure
from thermocline.report.judge import Claim, Verdict
from thermocline.report.theme import Temperatures

GLYPHS = {
    "present": "✓",
    "partly": "↗",
    "absent": "=",
    "reversed": "⇄",
    "unclear": "?",
    "alone": "·",
    "neither": "½",
    "caution": "!",
}
GLYPHS |= {"calibrated": "≈", "over": "↑", "under": "↓", "off": "≠", "turned": "⟲"}
GLYPHS |= {"good": "✓", "warn": "!", "calm": "·"}
_COUNTED = {"absent": "absent", "reversed": "reversed", "unclear": "within seed noise", "neither": "where neither detects"}
MANY = 4  # temperatures from which on the page says of most of them only where to look
_FACTS = ("command", "started", "wall_seconds", "commit", "source", "hardware", "versions")


_OOD = "Give --ood NAME to thermocline train or scan."
_NEW = "Give --ood NAME, and train or scan with this version."
_WATCH = 'A watch records {0} while a net trains: tc.Watch(model, train, measures=["{0}"]).'
HINTS = {
    "auroc": _OOD, "orthodev": _OOD, "roc": _NEW, "score_histogram": _NEW,
    "alignment over training": _WATCH.format("alignment"),
    "orthodev over training": "Train with --set follow=orthodev to record it.",
    "alignment and orthodev over training": f"Train with --set follow=alignment,orthodev. {_WATCH.format('alignment')}",
    "confusion": "Train or scan with test data, measures=all and this version.",
    "confused classes": "Every test image is given its own class.",
    "reliability (fitted)": "No temperature fits best where test images are all classified correctly, or as by chance.",
    "ood_drop and auroc at two temperatures": "Give --ood NAME, and train at two temperatures or more.",
}  # fmt: skip


def hint(name: str) -> str:
    """How to get what is missing."""
    return HINTS.get(name, "A finished run with measures=all has them.")


def title(summaries: Sequence[Summary]) -> str:
    subjects = list(dict.fromkeys(f"{one.net} on {one.data}" for one in summaries))
    values = sorted({one.temperature for one in summaries})
    heat = f"T = {values[0]:g}" if len(values) == 1 else f"T = {values[0]:g} to {values[-1]:g}"
    return f"{subjects[0] if len(subjects) == 1 else f'{len(subjects)} pairs of net and data'}, {heat}"


def subtitle(summaries: Sequence[Summary]) -> str:
    """How much evidence there is."""
    parts = [plural(len(summaries), "run")]
    for words, values in (("classes", {one.classes for one in summaries}), ("layers", {one.layers for one in summaries})):
        if len(values) == 1 and None not in values:
            parts.append(f"{values.pop()} {words}")
    seeds = sorted({one.seed for one in summaries})
    return ", ".join([*parts, f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"])


def case(case: Case, figures: Sequence[Figure], scale: Temperatures, number: int) -> dict[str, Any]:
    """One comparison: its verdicts as cards, its table, its figures."""
    found, spoken_of = judge.judge(case), [*judge.claims(case), *judge.described(case)]
    return {
        "title": case.title,
        "lede": _lede(case, found),
        "advice": _advice(case, scale),
        "chosen": advice.note(advice.given(case)),
        "cautions": [verdict.sentence for verdict in found if verdict.status == "caution"],
        "cards": [card for claim in spoken_of if (card := _card(claim, case, found, scale))],
        "legend": [scale.swatch(group.temperature) for group in case.groups],
        "columns": [{"label": group.label, "seeds": _seeds(group)} for group in case.groups],
        "intervals": intervals(case),
        "tables": _tables(case),
        "figures": [shown(figure, number) for figure in figures],
        "layers": _layers(figures),
        "counts": next((chart for one in figures if one.key == "spectra" for chart in reversed(one.charts(number))), ""),
    }


def overview(cases: Sequence[Case], figures: Sequence[Figure], scale: Temperatures) -> dict[str, Any]:
    """Every group of every case in one table, as far as several cases have a number, and its small multiples."""
    everything = Case("", tuple(group for case in cases for group in case.groups))
    columns = [{"title": case.title, "label": group.label, "seeds": _seeds(group), "swatch": scale.swatch(group.temperature)}
               for case in cases for group in case.groups]  # fmt: skip
    lines = [line for line in table.lines(everything) if len(_having(line, columns)) > 1]
    legend = [scale.swatch(value) for value in scale.values]
    return {"columns": columns, "parts": table.parts(lines), "legend": legend,
            "figures": [shown(figure, 0) for figure in figures]}  # fmt: skip


def _having(line: table.Line, columns: Sequence[Mapping[str, Any]]) -> set[str]:
    """The cases that have a number on this line."""
    return {column["title"] for column, cell in zip(columns, line.cells) if cell.text}


def intervals(case: Case) -> list[str]:
    """What the numbers under the means are."""
    found = sorted({kind for group in case.groups if (kind := _interval(group))})
    cut = any(cell.cut for line in table.lines(case) for cell in line.cells)
    return [*found, "cut to possible values"] if cut else found


def _advice(case: Case, scale: Temperatures) -> list[dict[str, Any]]:
    """What to do with the nets of each temperature."""
    said = advice.given(case)
    groups = [(group, [one for one in said if one.group == group.label]) for group in case.groups]
    return [
        {**scale.swatch(group.temperature), "said": [{**vars(one), "glyph": GLYPHS[one.status]} for one in some]}
        for group, some in groups
        if some
    ]


def _layers(figures: Sequence[Figure]) -> list[tuple[int, str]]:
    """The layers that can be chosen: those of the first figure that has them."""
    for figure in figures:
        if figure.key in ("probes", "layer-ranks") and figure.panels:
            return sorted({(row["x"], row["layer"]) for row in figure.panels[0].rows})
    return []


def glossary(runs: Iterable[Loaded]) -> dict[str, dict[str, str]]:
    """What each measure means, as the runs recorded it: meaning, formula, reference."""
    found: dict[str, dict[str, str]] = {}
    for run in runs:
        for name, words in _mapping(run.provenance.get("measures")).items():
            known = {part: str(_mapping(words).get(part) or "") for part in ("meaning", "formula", "reference")}
            found.setdefault(name, known)
    return found


def settings(summaries: Sequence[Summary]) -> dict[str, Any]:
    """What was set: shared by all runs, and what differs run by run; of nets trained elsewhere, only what is known."""
    paths = [path for path in summaries[0].settings if any(path in one.known for one in summaries)]
    differing = [path for path in paths if len({(path in one.known and (one.settings[path],)) for one in summaries}) > 1]
    default = dict(specs.leaves(specs.Run()))
    shared = [
        {"path": path, "value": _setting(summaries[0], path), "chosen": summaries[0].settings[path] != default[path]}
        for path in paths
        if path not in differing
    ]
    rows = [{"name": one.name, "values": [_setting(one, path) for path in differing]} for one in summaries]
    return {"shared": shared, "differing": differing, "rows": rows}


def _setting(one: Summary, path: str) -> str:
    return _words(one.settings[path]) if path in one.known else "not known"


def provenance(run: Loaded, one: Summary) -> dict[str, Any]:
    """How one run was made, as far as it says."""
    words = {name: name.replace("_", " ") for name in _FACTS} | {"commit": "thermocline commit"}
    known = [(words[name], _fact(name, run.provenance[name])) for name in _FACTS if run.provenance.get(name)]
    state = f"{'finished' if one.finished else 'unfinished'} at step {one.step or 0}"
    state = "as it was scanned" if run.spec.scanned and not one.step else state  # trained elsewhere, for nobody knows how long
    return {"name": run.name, "state": state, "seed": one.seed, "heat": f"{one.temperature:g}", "facts": known}


def _lede(case: Case, found: Sequence[Verdict]) -> str:
    judged = [verdict for verdict in found if verdict.status == "present" or verdict.status in _COUNTED]
    if len(case.groups) == 1:
        return f"One temperature, {case.groups[0].label}: described below, with nothing to compare it with."
    if not judged:
        return "No claim can be judged from these runs: what they lack is named below."
    parts = []
    base, *groups = judge.compared(case)
    hotter = [(group.label, {group.temperature}) for group in groups]
    if len(hotter) > MANY:
        hotter = [(f"{len(hotter)} hotter temperatures, counted together", {group.temperature for group in groups})]
    for label, values in hotter:
        counts = Counter(verdict.status for verdict in judged if verdict.temperature in values)
        if counts:
            others = "".join(f", {counts[status]} {words}" for status, words in _COUNTED.items() if counts[status])
            parts.append(f"{counts['present']} of {counts.total()} hold at {label}{others}")
    return f"Of the effects that theory predicts for high temperature, compared with {base.label}: {'; '.join(parts)}."


def _card(claim: Claim, case: Case, found: Sequence[Verdict], scale: Temperatures) -> dict[str, Any] | None:
    said = [verdict for verdict in found if verdict.claim == claim.title and verdict.status != "caution"]
    meters = []
    for group in case.groups:
        if value := group.estimate(claim.pick):
            number = claim.explain(value.mean).partition(" (")[0]
            part = min(max(value.mean / claim.ceiling, 0.0), 1.0)
            meters.append({**scale.swatch(group.temperature), "text": number, "percent": f"{100 * part:.1f}"})
    verdicts = [
        {"status": one.status, "word": "" if one.status == "alone" else one.word, "glyph": GLYPHS[one.status],
         "sentence": one.sentence, "short": f"T = {one.temperature:g} {one.word[0].lower()}{one.word[1:]}"}
        for one in said
    ]  # fmt: skip
    others = (
        f"{len(verdicts) - 1} other temperatures" if len(verdicts) > MANY else ", ".join(one["short"] for one in verdicts[:-1])
    )
    return (
        {"title": claim.title, "meters": meters, "first": verdicts[-1:], "others": verdicts[:-1], "told": others}
        if meters
        else None
    )


def shown(figure: Figure, number: int) -> dict[str, Any]:
    """One figure as the page writes it."""
    panels = [
        {"id": chart, "title": panel.title, "height": panel.height, "description": panel.description}
        for chart, panel in figure.charts(number).items()
    ]
    sentence = " ".join(filter(None, (figure.sentence, figure.controls)))
    return {"key": figure.key, "title": figure.title, "sentence": sentence, "measures": figure.measures,
            "panels": panels, "missing": [(name, hint(name)) for name in figure.missing], "columns": figure.columns,
            "rescales": any(panel.other for panel in figure.panels), "choices": figure.choices}  # fmt: skip


def _tables(case: Case) -> list[list[tuple[str, list[table.Line]]]]:
    """The parts of the comparison, in two tables side by side where few temperatures leave the room."""
    parts = table.parts(table.lines(case))
    if len(case.groups) > 3 or len(parts) < 2:
        return [parts]
    heights = list(itertools.accumulate(len(some) + 1 for _, some in parts))
    half = min(range(1, len(parts)), key=lambda i: abs(heights[i - 1] - heights[-1] / 2))
    return [parts[:half], parts[half:]]


def _seeds(group: Group) -> str:
    return plural(group.seeds, "seed") + ("" if group.finished else ", unfinished")


def _interval(group: Group) -> str:
    found = group.estimate(lambda one: one.temperature)
    return found.kind if found and found.count > 1 else ""


def _fact(name: str, value: Any) -> str:
    if name == "wall_seconds" and isinstance(value, (int, float)):
        return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"
    return _words(value)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_words, value)) or "none"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
