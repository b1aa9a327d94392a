"""Studies as Markdown: a page for each, and one for all. The same rows give the same bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from thermocline.experiments._claims import TEST_ACCURACY, TRAIN_ACCURACY, Claim
from thermocline.report.estimates import plural
from thermocline.reproduce import quantities, tables, wording
from thermocline.reproduce.figure import caption
from thermocline.reproduce.study import Study, counted, words
from thermocline.reproduce.verdict import ABSENT, RULE, WORDS, Finding

HEADS = ("quantity", "claim", "published", "ours", "difference", "seeds", "verdict")
KINDS = ("published numbers", "directions or bounds claimed", "derived or closed form", "what these rows themselves suggested")
DIFFERS = (
    'The papers\' "low logit norm" is a temperature here: T = 100, 500 or 20 on runes, and 10 in controls/strong-baseline.'
    " Their own value is not known.",
    "Rank is the number of eigenvalues of the covariance above 1e-3 of the largest, as in [masarczyk2023tunnel]. The"
    " paper's convention is not known: for CIFAR-100 / ResNet-18 at T = 1 it prints 99, and ours is 82. Singular values of"
    " the logits themselves give 99 at 1e-2 or 1e-3 of the largest, but they give 99 at T = 100 too"
    " (controls/rank-threshold). Differences are still judged against the printed ones.",
    "The OOD drop is read at the logits, the last of the layers counted, and also at the layer before them (in a ResNet,"
    " the outputs of its last convolution). The paper does not say which it means, and logits of few classes lose other"
    " data whether hot or cold. The second reading was added after the rows of the MLPs, the ResNet-18s and the ResNet-20"
    " existed; for these it is counted with what was found on rows.",
    "Probes are ridge regressions on outputs pooled to 2 x 2; those of [masarczyk2023tunnel] were trained with Adam on"
    " flattened outputs. Other probes give other depths and drops. On the large activations of hot nets such training"
    " leaves much unread, so that these nets seem to lose more of other data (controls/probes).",
    "Recipes are those of [masarczyk2023tunnel]; the paper's own are in an appendix that we do not have. MLPs stop at 500"
    " of up to 1000 epochs; the VGG-19 has batch normalisation and torch's initialisation (docs/decisions.md says why).",
    "CIFAR and SVHN were JPEG copies, not the originals, wherever the list of images on a page says so.",
)
ATTENTION = "Attention: max retrieval, dispersion, the rule"
GROUPS = {
    "table1": "Table 1: effective depth, OOD drop, rank of the logits",
    "table2": "Table 2: detection by NECO",
    "table3": "Table 3: VGG-19",
    "figure": "Figures",
    "prop": "Propositions",
    "compression": "Compression",
    "appendix": "Appendix",
    "controls": "Controls, of reviewers and of ours",
    "retrieval": ATTENTION,
    "dispersion": ATTENTION,
    "beta-fit": ATTENTION,
}


def page(study: Study, *, figure: bool, notes: str = "", whole: str = "") -> str:
    """The page of one experiment; `whole` is where that of all lies, seen from it: docs/reproduction.md beside the results."""
    experiment = study.experiment
    whole = whole or "../" * (len(PurePosixPath(experiment.name).parts) + 1) + "docs/reproduction.md"
    parts = [
        f"# {experiment.name}",
        experiment.says,
        *([experiment.more] if experiment.more else []),
        f"*Generated from the rows by `thermocline reproduce {experiment.name} --report`: edit `notes.md`, not this page.*",
        "## Verdict",
        f"{study.summary}." + (f" Not run: {study.why}." if study.why else ""),
        _table(HEADS, (cells(study, finding) for finding in study.findings)),
        "An arm is shown by its mean and, from three seeds on, Student's 95 % interval over its seeds; a difference likewise,"
        f" paired over the seeds that both arms have.{_factors(study)} The rule is in [{PurePosixPath(whole).name}]({whole}).",
        *([f"![{experiment.name}](figure.svg)", caption(study)] if figure else []),
        *_by_seed(study),
        "## Where each number is",
        _table(
            ("quantity", "rows"), dict.fromkeys((f.claim.quantity.name, wording.rows(f.claim.quantity)) for f in study.findings)
        ),
        *_missing(study),
        *_made(study),
        *([f"## Notes\n\n{notes.strip()}"] if notes.strip() else []),
    ]
    return "\n\n".join(parts) + "\n"


def _factors(study: Study) -> str:
    some = any(finding.claim.quantity.factors for finding in study.findings)
    return " For a factor (x), mean and interval are those of the logarithm." if some else ""


def cells(study: Study, finding: Finding) -> tuple[str, ...]:
    """What a table of claims says of one, under `HEADS`."""
    claim = finding.claim
    arms = range(len(claim.arms))
    printed = wording.published(claim) or wording.DASH
    ours = " → ".join(wording.arm(finding, place) for place in arms)
    verdict = f"**{finding.verdict.word}**: {finding.verdict.why}"
    if name := study.origin(finding):
        verdict = f"as in {name} ({finding.verdict.word})"
    seeds = wording.seeds(finding)
    return claim.quantity.name, wording.claimed(claim), printed, ours, wording.difference(finding), seeds, verdict


def _by_seed(study: Study) -> Iterator[str]:
    """Every number behind the means, after what training reached."""
    lines: dict[tuple[str, str], dict[int, str]] = {}
    arms = {arm.label: arm for finding in study.findings for arm in finding.claim.arms if arm.settings}
    for quantity, (label, arm) in itertools.product((TRAIN_ACCURACY, TEST_ACCURACY), arms.items()):
        if reached := quantities.reached(study.found.sources, quantity, arm):
            lines[quantity.name, label] = {seed: wording.number(value, quantity) for seed, value in reached.items()}
    for finding in study.findings:
        for arm, values in zip(finding.claim.arms, finding.values):
            shown = {seed: wording.number(value, finding.claim.quantity) for seed, value in values.items()}
            lines[finding.claim.quantity.name, arm.label] = shown
    seeds = sorted({seed for shown in lines.values() for seed in shown})
    if seeds:
        yield "## By seed"
        values = ((*key, *(shown.get(seed, wording.DASH) for seed in seeds)) for key, shown in lines.items())
        yield _table(("quantity", "arm", *(f"seed {seed}" for seed in seeds)), values)


def _missing(study: Study) -> Iterator[str]:
    found, experiment = study.found, study.experiment
    lines = [f"- {line}" for line in wording.lacking(found)]
    lines += [f"- {name}: begun, not finished" for name in found.unfinished]
    lines += ["- its computed rows"] if found.lacks_table else []
    lines += [f"- {line}" for line in wording.unmeasured(study)]
    if lines and not experiment.why:
        how = [f"`{experiment.command}` runs it ({experiment.cost.words})."] if found.wanting else []
        yield "\n\n".join(["## What is missing", *how, "\n".join(lines)])
    if found.stopped:
        lines = [f"- `{one.name}`: {one.why}." for one in found.stopped]
        told = "They would stop again, so they are run again only if their folders are removed."
        yield f"## What stopped itself\n\n{told}\n\n" + "\n".join(lines)
    if found.problems:
        yield "## What could not be read\n\n" + "\n".join(f"- {line}" for line in found.problems)


def _made(study: Study) -> Iterator[str]:
    """Code, card, time and images."""
    found = study.found
    if not found.sources:
        return
    yield "## How it was made"
    heads = ("run", "code", "on", "torch", "minutes")
    lines = dict.fromkeys(
        (
            f"`{source.name.rsplit(', seed', 1)[0]}`",
            wording.code(source),
            wording.card(source),
            source.provenance.get("versions", {}).get("torch", wording.DASH),
            wording.minutes(source),
        )
        for source in found.sources
    )
    yield _table(heads, lines)
    if images := wording.images(found):
        yield "Images, by fingerprint: " + "; ".join(images) + "."
    if found.others:
        yield "In the same folder, but in no claim here: " + ", ".join(f"`{name}`" for name in found.others) + "."


def overview(studies: Sequence[Study], *, notes: str = "", results: str = "../results") -> str:
    """The page that says what holds: in words, then every experiment in a line, then every claim there are rows for.

    `results` is where the pages of experiments lie, seen from it.
    """
    parts = [
        "# What holds",
        "Neither paper's code is public; this is an independent reproduction from their text. Every number here is read from"
        f" rows committed under [results]({results}), by `thermocline reproduce all --report`, which writes this page. The page"
        " of an experiment has its numbers by seed, the rows each comes from, the code and the hardware. Keys in brackets are"
        " those of docs/references.bib: [masarczyk2025softmax] is [arXiv 2506.01562](https://arxiv.org/abs/2506.01562),"
        " [velickovic2024softmax] is [arXiv 2410.01104](https://arxiv.org/abs/2410.01104).",
        *_tables(studies, results),
        *([f"## In short\n\n{notes.strip()}"] if notes.strip() else []),
        "## By verdict",
        totals(studies),
        _by_kind(studies),
        "## What differs from the papers",
        "\n".join(f"- {line}" for line in DIFFERS),
        "## At a glance",
        _table(
            ("experiment", "what is claimed", "runs", "verdict"),
            (_glance(study, results) for _, members in grouped(studies) for study in members),
        ),
        "## The rule",
        "\n".join(f"- {line}" for line in RULE),
    ]
    for title, members in grouped(studies):
        parts.append(f"## {title}")
        if lines := [line for study in members for line in _lines(study, results)]:
            parts.append(_table(("experiment", *HEADS), lines))
        if absent := [line for study in members if (line := _not_run(study))]:
            parts.append("\n".join(absent))
    return "\n\n".join(parts) + "\n"


def _tables(studies: Sequence[Study], results: str) -> Iterator[str]:
    if lines := tables.lines(studies):
        rows = ((f"[{tail}]({results}/{name}/README.md)", *map(str, cells)) for tail, (name, cells) in lines.items())
        yield from ("## The tables in one", _table(("net", *tables.COLUMNS.values()), rows), tables.LEGEND)


def totals(studies: Sequence[Study]) -> str:
    """How many claims of these experiments have which verdict, each counted once."""
    kinds = _kinds(studies)
    claims, closed, suggested = [*kinds[KINDS[0]], *kinds[KINDS[1]]], kinds[KINDS[2]], kinds[KINDS[3]]
    again = sum(len(study.findings) for study in studies) - len(claims) - len(closed) - len(suggested)
    many = plural(len(studies), "experiment")
    parts = [f"{len(claims)} claims in {many}: {words(counted(claims))}."] if claims else []
    if closed:
        known = f"{len(closed)} follow from a formula and check the code as much as the papers ({words(counted(closed))})."
        parts.append(f"Besides, {known}" if claims else known)
    if suggested:
        were = "were found on the rows they are" if len(suggested) > 1 else "was found on the rows it is"
        parts.append(f"{len(suggested)} more {were} judged by ({words(counted(suggested))}).")
    if again:
        same = "about the same quantity of the same runs as in an earlier experiment: shown as such, and counted there."
        parts.append(f"Another {again} {'are' if again > 1 else 'is'} {same}")
    return " ".join(parts)


def _by_kind(studies: Sequence[Study]) -> str:
    kinds = _kinds(studies)
    every = list(itertools.chain.from_iterable(kinds.values()))
    lines = (
        (kind, *(str(counted(some).get(word, 0)) for word in WORDS), str(len(some)))
        for kind, some in (*kinds.items(), ("all", every))
    )
    return _table(("claims by what they are measured against", *WORDS, "all"), lines)


def _kinds(studies: Sequence[Study]) -> dict[str, list[Finding]]:
    """Findings by what they are measured against, but for those of an earlier experiment among these."""
    kinds: dict[str, list[Finding]] = {kind: [] for kind in KINDS}
    names = {study.experiment.name for study in studies}
    for study in studies:
        for finding in study.findings:
            if study.origin(finding) not in names:
                kinds[_kind(finding.claim)].append(finding)
    return kinds


def _kind(claim: Claim) -> str:
    if claim.found:
        return KINDS[3]
    if claim.derived or claim.exact:
        return KINDS[2]
    return KINDS[0] if claim.published else KINDS[1]


def _glance(study: Study, results: str) -> tuple[str, ...]:
    return _link(study, results), study.experiment.says, wording.runs(study), study.line


def _link(study: Study, results: str) -> str:
    name = study.experiment.name
    return f"[{name}]({results}/{name}/README.md)" if study.found.begun else name


def _lines(study: Study, results: str) -> Iterator[tuple[str, ...]]:
    """The claims that there are rows for; only the first names the experiment."""
    told = [finding for finding in study.findings if finding.verdict.word != ABSENT]
    yield from ((_link(study, results) if place == 0 else "", *cells(study, finding)) for place, finding in enumerate(told))


def _not_run(study: Study) -> str:
    """The claims without rows, and what would give them some."""
    absent = [finding for finding in study.findings if finding.verdict.word == ABSENT]
    if not absent:
        return ""
    experiment = study.experiment
    names = {f.claim.quantity.name for f in absent}
    gaps = wording.unmeasured(study, of=names)
    how = (f" `{experiment.command}` runs it." if study.found.wanting else "") + "".join(
        f" Of the runs that are there, {gap}." for gap in gaps
    )
    why = f": {study.why}." if study.why else "."
    head = f"- **{experiment.name}**, {ABSENT}{why}{'' if experiment.why else how}"
    return "\n".join([head, *(f"  - {claimed}: {'; '.join(names)}" for claimed, names in lacking(study).items())])


def lacking(study: Study) -> dict[str, list[str]]:
    """The claims without rows: what is claimed, and of which quantities."""
    claims: dict[str, list[str]] = {}
    for finding in study.findings:
        if finding.verdict.word == ABSENT:
            printed = f" ({numbers})" if (numbers := wording.published(finding.claim)) else ""
            claims.setdefault(wording.claimed(finding.claim), []).append(finding.claim.quantity.name + printed)
    return claims


def grouped(studies: Iterable[Study]) -> Iterator[tuple[str, list[Study]]]:
    """Experiments under the title of their group, tables first."""
    by_title: dict[str, list[Study]] = {title: [] for title in GROUPS.values()}
    for study in studies:
        title = next((title for start, title in GROUPS.items() if study.experiment.name.startswith(start)), "Other")
        by_title.setdefault(title, []).append(study)
    yield from ((title, members) for title, members in by_title.items() if members)


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    body = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]
    return "\n".join([f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *body])
