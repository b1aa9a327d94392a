"""A report beside its page: advice, Markdown, figures for papers, runs that cannot be read, and a page that is live."""

from __future__ import annotations

import csv
import dataclasses
import functools
import http.client
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import printed, thermocline
from PIL import Image
from report_cases import COLD, HOT, chromium, summarise, trust_rows, write, write_pair

from thermocline import record, report
from thermocline.record import Row
from thermocline.report import advice, figures, marks, page, table, watching
from thermocline.report.estimates import Estimate
from thermocline.report.facts import cases
from thermocline.spec import InputError

browser = pytest.fixture(chromium, scope="module")


def test_advice_names_the_layer_to_cut_after_and_the_one_to_take(tmp_path):
    (case,) = cases(summarise(write_pair(tmp_path)))
    said = {(one.group, one.word): one.sentence for one in advice.given(case)}
    assert said["T = 1000", "Layers to spare"] == (
        "Effective depth 25 %: a linear read-out of runes at layer 2 (layers.2) comes within 1 % of that at the last of 8;"
        " you could cut there."
    )
    assert said["T = 1000", "Take earlier features"] == (
        "Probes of digits lose 35 % of their best accuracy by the last layer, 29 % by the layer before:"
        " take features from layer 2 (layers.2), where they reach 65 %."
    )
    assert said["T = 1", "Full rank"] == "The logits use 19 of the 19 directions in which 20 classes can differ."
    assert "6 of the 19" in said["T = 1000", "Rank deficit"]
    assert (
        "neco (the best of 2 scores here) tells runes:1 from test images with AUROC 0.90"
        in said["T = 1000", "Notices other data"]
    )
    page = report.render(tmp_path, tmp_path / "page.html").read_text()
    assert page.count(advice.CHOSEN) == 1  # not at every sentence


def test_advice_leaves_alone_what_is_well(tmp_path):
    write(tmp_path / "run", **{**COLD, "depth_needed": 8, "drop": 0.01})
    (case,) = cases(summarise(tmp_path))
    found = advice.given(case)
    words = [one.word for one in found]
    assert not advice.note(found[:3])
    assert words[:3] == ["Nothing to cut", "Last layer will do", "Last layer will do"]
    write(tmp_path / "bare", **{**HOT, "finish": False})
    assert all(one.group == "T = 1" for case in cases(summarise(tmp_path)) for one in advice.given(case))


@pytest.mark.parametrize(("auroc", "told"), [(0.28, " Higher for other data: react (0.28)."), (0.46, "")])
def test_advice_names_scores_that_are_higher_for_other_data(tmp_path, auroc, told):
    (one,) = summarise(write(tmp_path / "run", **COLD))
    scores = {("digits", "msp"): 0.92, ("digits", "react"): auroc}
    (case,) = cases([dataclasses.replace(one, auroc=scores, fpr={})])
    (said,) = [advised.sentence for advised in advice.given(case) if advised.word == "Notices other data"]
    assert said == f"msp (the best of 2 scores here) tells digits from test images with AUROC 0.92.{told}"


def test_logits_that_do_not_sum_to_zero_may_have_a_direction_more(tmp_path):
    (one,) = summarise(write(tmp_path / "run", **COLD))
    (case,) = cases([dataclasses.replace(one, solution_rank=20.0)])
    said = {advised.word: advised.sentence for advised in advice.given(case)}
    assert said["Full rank"] == (
        "The logits use all 19 directions in which 20 classes can differ, and the one in which they move together."
    )


@pytest.mark.parametrize(
    ("rank", "word", "said"),
    [(15.0, "Full rank", "use 15 of the 15 "), (10.0, "Rank deficit", "use 10 of the 15 "), (17.0, "Full rank", "and 2 more.")],
)
def test_a_rank_is_held_against_the_classes_that_training_images_have(tmp_path, rank: float, word: str, said: str):
    (one,) = summarise(write(tmp_path / "run", **COLD))
    assert (one.classes, one.unmet) == (20, 0)
    (case,) = cases([dataclasses.replace(one, solution_rank=rank, classes=16, unmet=4)])
    found = {advised.word: advised.sentence for advised in advice.given(case)}
    assert said in found[word]
    assert "the 16 classes of its training images (there are 20 logits)" in found[word]


def everywhere(folder: Path) -> dict[str, str]:
    """What the terminal, the page and Markdown say, without how they say it."""
    said = {"terminal": printed(report.terminal(summarise(folder)), width=2000)}
    for kind in ("html", "md"):
        said[kind] = report.render(folder, folder / f"page.{kind}", format=kind).read_text()
    return {kind: re.sub(r"\s+", " ", text) for kind, text in said.items()}


def test_classes_that_are_one_point_are_named(tmp_path):
    """By most of their test images and the direction of their means, both: often confused is not merged."""
    shares = {(0, 6): (0.9, 1.0), (8, 6): (0.8, 0.995), (3, 5): (0.7, 0.2), (4, 1): (0.1, 1.0)}
    parts = [
        Row("test", "", 0, "", "confusion", f"label={label},predicted={into},part={part}", value)
        for (label, into), pair in shares.items()
        for part, value in zip(("share", "cosine"), pair)
    ]
    write(tmp_path / "hot", **HOT, more=parts)
    (case,) = cases(summarise(tmp_path))
    (said,) = [one.sentence for one in advice.given(case) if one.word == "Merged classes"]
    assert said.startswith("Classes 0, 6 and 8 have one mean, and most test images of them are taken for 6")
    assert said.endswith("Try a lower train.temperature.")


VERDICTS = ("to spare", "earlier features", "Rank deficit", "Notices", "At T = 1000", "Underconfident")


def test_of_a_net_at_chance_nothing_else_is_said(tmp_path, undrawn):
    for name, reached in (("chance", 0.06), ("control", 0.999)):
        write(tmp_path / name / "run", **HOT, reached=reached, more=list(trust_rows(0.5, 0.5, temperature=1000)))
    assert all(words in everywhere(tmp_path / "control")["terminal"] for words in VERDICTS)
    for kind, text in everywhere(tmp_path / "chance").items():
        assert "Not learned" in text, kind
        assert re.search(r"It gets 6.0.% of its training images right, where guessing gets 5.0.%: it has not learned", text), (
            kind
        )
        assert "try a lower train.temperature, a larger train.lr or more train.epochs" in text.replace("\\", ""), kind
        assert not [words for words in VERDICTS if words in text.replace("\u00a0", " ")], kind
    write(tmp_path / "usual" / "run", **COLD, reached=0.06)
    assert "where they started; try a larger train.lr or more train.epochs" in everywhere(tmp_path / "usual")["terminal"]
    (only,) = report.verdicts(summarise(tmp_path / "chance"))
    assert (only.status, only.sentence) == (
        "caution", "None of these nets has learned its training images, so no claim is judged.",
    )  # fmt: skip


def test_where_some_seeds_learned_it_is_not_said_that_none_did(tmp_path, undrawn):
    for seed, reached in enumerate((0.999, 0.999, 0.06)):
        write(tmp_path / str(seed), **COLD, seed=seed, reached=reached)
    assert "At no temperature has every seed learned its training images, so no claim is judged." in [
        one.sentence for one in report.verdicts(summarise(tmp_path))
    ]


def test_a_coldest_net_that_has_not_learned_is_no_baseline(tmp_path, undrawn):
    write(tmp_path / "colder", **{**COLD, "temperature": 0.1}, reached=0.06)
    write_pair(tmp_path)
    found = report.verdicts(summarise(tmp_path))
    assert "T = 0.1 has not learned, so what is hotter is compared with T = 1." in [one.sentence for one in found]
    rank = [one for one in found if one.claim == "Solution rank"]
    assert [(one.temperature, one.baseline, one.status) for one in rank] == [(1000, 1, "present")]
    for kind, text in everywhere(tmp_path).items():
        assert "At T = 1000 the rank of the logits" in text.replace("\u00a0", " "), kind
    text = (tmp_path / "page.html").read_text().replace("\u00a0", " ")
    assert "compared with T = 1:" in text
    write(tmp_path / "two/cold", **COLD, reached=0.06)
    write(tmp_path / "two/hot", **HOT)
    said = [one.sentence for one in report.verdicts(summarise(tmp_path / "two"))]
    assert "T = 1 has not learned, so T = 1000 has nothing to be compared with." in said
    assert any(one.startswith("At T = 1000 effective depth is") for one in said)


@pytest.mark.parametrize(("before", "after"), [(0.386, 0.551), (0.551, 0.386), (0.5, 0.5)])
def test_of_sets_that_neither_net_detects_none_is_easier(tmp_path, undrawn, before, after):
    """The second set's AUROC is a tenth below the first's: of digits, all lie under chance."""
    write(tmp_path / "cold", **{**COLD, "neco": before})
    write(tmp_path / "hot", **{**HOT, "neco": after})
    found = {one.claim: one for one in report.verdicts(summarise(tmp_path))}["Detection, digits"]
    assert (found.status, found.word) == ("neither", "Neither detects (one seed)")
    assert f"{after - 0.1:.3f}" in found.sentence
    assert "so neither detects the set" in found.sentence
    assert "easier" not in found.sentence
    assert all("Neither detects (one seed)" in text for text in everywhere(tmp_path).values())


def test_guessing_is_naming_the_most_frequent_class(tmp_path):
    """Of 20 classes 16 % is more than three times a twentieth; where a sixth are of one class, it is a constant."""
    write(tmp_path / "run", **HOT, reached=0.16)
    assert summarise(tmp_path)[0].learned
    file = tmp_path / "run" / "provenance.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "guessing": 0.16}))
    assert not summarise(tmp_path)[0].learned
    assert "where guessing gets 16.0 %" in advised(tmp_path)["Not learned"].replace("\u00a0", " ")


def test_where_temperature_follows_a_target_the_target_is_what_to_change(tmp_path):
    held = {"temperature_schedule": "hold-norm", "temperature_target": 0.1}
    write(tmp_path / "run", **COLD, reached=0.06, train=held)
    assert "try another train.temperature_target, a larger" in advised(tmp_path)["Not learned"]


def test_nets_are_compared_only_with_those_that_learned(tmp_path, undrawn):
    write_pair(tmp_path, {"reached": 0.06})
    write(tmp_path / "warm", **{**HOT, "temperature": 10})
    for kind, text in everywhere(tmp_path).items():
        text = text.replace("\u00a0", " ")
        assert "Not learned" in text, kind
        assert "At T = 10 the rank of the logits" in text, kind
        assert "At T = 1000" not in text, kind
    assert {verdict.temperature for verdict in report.verdicts(summarise(tmp_path))} == {10.0}
    write(tmp_path / "seeds/0", **HOT)
    write(tmp_path / "seeds/1", **HOT, seed=1, reached=0.06)
    (only,) = advised(tmp_path / "seeds").values()
    assert only.startswith("In 1 of 2 runs it gets 6.0 % of its training images right")


def test_whether_a_net_learned_is_asked_where_it_is_known(tmp_path):
    (one,) = summarise(write(tmp_path / "run", **HOT, reached=0.06))
    for change in ({"train_accuracy": None}, {"guessing": None}, {"train_accuracy": 0.16}):
        assert dataclasses.replace(one, **change).learned, change
    assert dataclasses.replace(one, guessing=0.5, train_accuracy=0.63).learned, "three times a half is more than all"
    scanned = dataclasses.replace(one, step=0)
    (said,) = advice.given(cases([scanned])[0])
    assert said.sentence.endswith(
        "or images and labels do not come to it as they did in its training; nothing else is said of it."
    )


def advised(folder: Path) -> dict[str, str]:
    (case,) = cases(summarise(folder))
    return {one.word: one.sentence for one in advice.given(case)}


def probed(name: str, accuracy: Sequence[float]) -> list[Row]:
    return [Row(name, f"layers.{i}", i, "flatten", "probe_accuracy", "probe=ridge", a) for i, a in enumerate(accuracy, 1)]


def test_advice_on_depth_is_true_of_every_seed(tmp_path):
    for seed, depth in enumerate((4, 8)):
        write(tmp_path / "last" / str(seed), **{**COLD, "depth_needed": depth}, seed=seed)
        write(tmp_path / "early" / str(seed), **{**COLD, "depth_needed": depth // 2}, seed=seed)
    assert advised(tmp_path / "last")["Nothing to cut"] == (
        "Effective depth 75 % on average (layers 4 to 8 of 8, by seed): in at least one seed no layer before the last of 8"
        " comes within 1 % of its accuracy on runes."
    )
    assert (
        "(layers 2 to 4 of 8, by seed): a linear read-out of runes at layer 4 (layers.4)"
        in (advised(tmp_path / "early")["Layers to spare"])
    )


@pytest.mark.parametrize(
    ("later", "said"), [(0.9, "runes at layer 5 (layers.5) comes within 1 %"), (0.5, "runes in every seed.")]
)
def test_a_cut_is_advised_only_where_no_seed_is_worse_again(tmp_path, later, said):
    """Accuracy need not rise with depth: one seed is good at layer 2 and bad at 3 and 4, the other good from layer 4 on."""
    options = {**COLD, "ood": (), "without_final": ("probe_accuracy", "effective_depth")}
    curves = [0.1, 0.9, 0.2, 0.2, later, later, later, 0.9], [0.1, 0.2, 0.2, 0.9, 0.9, 0.9, 0.9, 0.9]
    for seed, (kappa, accuracy) in enumerate(zip((0.25, 0.5), curves, strict=True)):
        kappas = [Row("test", "", 0, "", "effective_depth", "threshold=0.99", kappa)]
        write(tmp_path / str(seed), **options, seed=seed, more=[*probed("test", accuracy), *kappas])
    assert any(said in sentence for sentence in advised(tmp_path).values())


@pytest.mark.parametrize("last", [0.7, 0.62])
def test_a_best_layer_that_differs_by_seed_is_said_and_never_the_last(tmp_path, last):
    options = {**COLD, "ood": ("digits",), "without_final": ("probe_accuracy", "ood_drop")}
    curves = [0.8, 0.55] + [0.5] * 5 + [last], [0.45, 0.75] + [0.5] * 5 + [last]
    for seed, accuracy in enumerate(curves):
        drop = Row("digits/test", "", 0, "", "ood_drop", "", 1 - last / max(accuracy))
        write(tmp_path / str(seed), **options, seed=seed, more=[*probed("digits/test", accuracy), drop])
    found = advised(tmp_path)
    if last == 0.7:
        assert found["No one layer is better"] == (
            "Probes of digits lose 10 % of their best accuracy by the last layer,"
            " but the best layer differs by seed: on average it is the last."
        )
        assert "Take earlier features" not in found
    else:
        assert found["Take earlier features"].startswith(
            "Probes of digits lose 20 % of their best accuracy by the last layer, 35 % by the layer before: take features from"
            " layer 2 (layers.2), where they reach 65 %; it is the best on average, not in"
        )


def read(name: str, best: float, *, guessing: float = 0.1, tested: int = 900) -> list[Row]:
    """Probes of a set, the first layer's the best, and what follows from them; guessing may get 13 % with luck."""
    rows = probed(f"{name}/test" if name else "test", [best, *[0.1] * 7])
    rows = [row._replace(params=f"{row.params},guessing={guessing},tested={tested}") for row in rows]
    whole = Row(f"{name}/test", "", 0, "", "ood_drop", "", 1 - 0.1 / best)
    return [*rows, whole if name else Row("test", "", 0, "", "effective_depth", "threshold=0.99", 0.125)]


def test_nothing_is_made_of_probes_at_chance(tmp_path, undrawn):
    options = {"ood": ("digits",), "without_final": ("probe_accuracy", "ood_drop", "effective_depth")}
    for place, best in (("chance", 0.129), ("luck", 0.131)):
        rows = [*read("digits", best), *read("", best)]
        write(tmp_path / place / "cold", **COLD, **options, more=rows)
        write(tmp_path / place / "hot", **HOT, **options, more=rows)
    spoken = ("of their best accuracy", "probe accuracy lost", "take features from layer 1", "effective depth is 0.12")
    control = everywhere(tmp_path / "luck")["terminal"]
    assert all(words in control for words in spoken)
    for kind, text in everywhere(tmp_path / "chance").items():
        assert not [words for words in spoken if words in text.replace("\u00a0", " ")], kind
    assert [one.sentence for one in advice.given(cases(summarise(tmp_path / "chance"))[0]) if one.word == "Nothing read"][
        :2
    ] == [
        "Probes of digits get at most 12.9 % of 900 test images right, where guessing gets 10.0 %, and 13.0 % with luck:"
        " nothing shows that they learned, so no OOD drop is given.",
        "Probes of its own data get at most 12.9 % of 900 test images right, where guessing gets 10.0 %, and 13.0 % with luck:"
        " nothing shows that they learned, so no effective depth is given.",
    ]
    assert summarise(tmp_path / "chance")[0].ood_drop == {"digits": pytest.approx(1 - 0.1 / 0.129)}, "what was measured stays"


def test_probes_at_chance_in_one_seed_leave_the_set_out(tmp_path):
    options = {"ood": ("digits",), "without_final": ("probe_accuracy", "ood_drop")}
    for seed, best in enumerate((0.8, 0.12)):
        write(tmp_path / str(seed), **COLD, **options, seed=seed, more=read("digits", best))
    found = advised(tmp_path)
    assert found["Nothing read"].startswith("In 1 of 2 runs probes of digits get at most 12.0 % of 900 test images right")
    assert "Take earlier features" not in found
    (case,) = cases(summarise(tmp_path))
    assert "OOD drop" not in {line.part for line in table.lines(case)}


def test_numbers_that_are_written_alike_are_not_flagged(tmp_path):
    for seed in range(3):
        write(tmp_path / f"cold{seed}", **{**COLD, "reached": 0.99998}, seed=seed)
        write(tmp_path / f"hot{seed}", **{**HOT, "reached": 1.0}, seed=seed)
    (case,) = cases(summarise(tmp_path))
    (line,) = [line for line in table.lines(case) if line.label == "Training accuracy"]
    assert [(cell.text, cell.apart) for cell in line.cells] == [("100.0\u202f%", "")] * 2


def test_differences_are_flagged_only_outside_noise(tmp_path, undrawn):
    for seed, (cold, hot) in enumerate([(0.10, 0.30), (0.12, 0.31), (0.11, 0.33)]):
        write(tmp_path / f"cold{seed}", **{**COLD, "drop": cold}, seed=seed)
        write(tmp_path / f"hot{seed}", **{**HOT, "drop": hot, "neco": [0.7, 0.95, 0.8][seed]}, seed=seed)
    (case,) = cases(summarise(tmp_path))
    lines = {(line.part, line.label): line.cells for line in table.lines(case)}
    assert [cell.apart for cell in lines["OOD drop", "digits"]] == ["", "higher"]
    assert [cell.apart for cell in lines["Detection: AUROC", "runes:1, neco"]] == ["", ""]
    for few in (1, 2):  # two ranges of two draws are disjoint once in three times
        assert table.apart(Estimate(1, 1, 1, few), Estimate(5, 5, 5, 3)) == ""
        assert table.apart(Estimate(1, 1, 1, 3), Estimate(5, 5, 5, few)) == ""
    made = report.render(tmp_path, tmp_path / "page.html").read_text()
    assert "higher than the first column by more than the seeds differ" in made


def test_any_number_of_nets_stand_side_by_side(tmp_path):
    write_pair(tmp_path / "a")
    write_pair(tmp_path / "b", data="glyphs", ood=("digits",))
    made = report.render([tmp_path / "a", tmp_path / "b"], tmp_path / "page.html").read_text()
    assert "Side by side" in made
    assert made.count('id="chart-0-all-probes-') == 2
    assert made.index("Side by side") < made.index('id="case-1"')
    side = made[made.index("Side by side") : made.index('id="case-1"')]
    assert "mlp on glyphs" in side
    assert "runes:1" not in side  # a set that only one of them has compares nothing


def test_figures_are_files_for_papers(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "MAKERS", figures.MAKERS[:2])
    report.render(write_pair(tmp_path / "runs"), tmp_path / "page.md", figures=tmp_path / "figures", format="md")
    found = {file.suffix for file in (tmp_path / "figures").iterdir()}
    assert found == {".svg", ".png", ".pdf"}
    pixels = Image.open(io.BytesIO((tmp_path / "figures/probes.png").read_bytes()))
    assert 6 < pixels.width / 300 <= 7.2
    for name, width in (("probes.svg", rb'width="([\d.]+)pt'), ("probes.pdf", rb"/MediaBox \[0 0 ([\d.]+)")):
        points = re.search(width, (tmp_path / "figures" / name).read_bytes())
        assert points
        assert float(points[1]) / 72 == pytest.approx(pixels.width / 300, abs=0.02), name
    text = (tmp_path / "page.md").read_text()
    assert "![Probe accuracy by layer](figures/probes.svg)" in text
    assert "| T = 1000 | Layers to spare | Effective depth 25 %" in text
    assert "**As predicted (one seed)**: At T = 1000 the rank of the logits is 6 of 19" in text


def test_every_chart_is_valid_vega_lite(tmp_path):
    made = page.gather(write_pair(tmp_path))
    for _, figure in made.figures():
        for panel in figure.panels:
            panel.chart.to_dict()
            if panel.other is not None:
                panel.other.to_dict()


def test_a_run_that_cannot_be_read_is_named_and_skipped(tmp_path, undrawn):
    write_pair(tmp_path / "runs")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/notes.txt").write_text("mine")
    for name, file, content in (
        ("torn", "rows.parquet", b"PAR1"),
        ("odd", "spec.json", b'{"data": 3}'),
        ("cut", "spec.json", b"{"),
    ):
        shutil.copytree(tmp_path / "runs/hot", tmp_path / f"runs/{name}")
        (tmp_path / f"runs/{name}" / file).write_bytes(content)
    (tmp_path / "runs/begun").mkdir()
    shutil.copy(tmp_path / "runs/hot/spec.json", tmp_path / "runs/begun")
    runs, notes = report.load([tmp_path / "runs", tmp_path / "foreign", tmp_path / "nowhere"])
    assert len(runs) == 2
    assert len(notes) == 6
    assert f"left out: {tmp_path / 'runs/begun'} has no rows yet" in notes
    (tmp_path / "runs/begun/provenance.json").write_text('{"stopped": "it has not begun to learn"}')
    assert f"left out: {tmp_path / 'runs/begun'} stopped itself: it has not begun to learn" in page.load(tmp_path / "runs")[1]
    made = report.render([tmp_path / "runs", tmp_path / "foreign"], tmp_path / "page.html").read_text()
    for name in ("torn", "odd", "cut", "begun", "foreign"):
        assert re.search(rf"left out: [^<]*/{name}", made), name
    with pytest.raises(InputError, match="no runs to report on.*foreign"):
        report.load(tmp_path / "foreign")
    with pytest.raises(InputError, match=rf"it has no spec.json; there are runs in {tmp_path}/runs\)$"):
        report.load(tmp_path)


def ask(server, path: str, **headers: str) -> tuple[int, bytes]:
    link = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
    link.request("GET", path, headers=headers)
    answer = link.getresponse()
    return answer.status, answer.read()


@pytest.fixture
def served(tmp_path):
    write(tmp_path / "runs/hot", **{**HOT, "finish": False})
    server = watching.server(watching.Watcher([tmp_path / "runs"]))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_live_page_is_for_this_machine_and_reads_nothing_else(served, tmp_path):
    assert served.server_address[0] == "127.0.0.1"
    (tmp_path / "secret").write_text("secret")
    status, content = ask(served, "/")
    assert status == 200
    assert b"unfinished" in content
    for path in (
        "/secret",
        "/../secret",
        "/runs/hot/spec.json",
        "/%2e%2e/secret",
        "//etc/passwd",
        "/?x=/etc/passwd",
        str(tmp_path / "secret"),
    ):
        status, content = ask(served, path)
        assert (status, content) == (404, b"only the page is here"), path
    assert ask(served, "/", Host="evil.example:80")[0] == 403
    assert ask(served, "/", Host="localhost")[0] == 200


def test_a_live_page_follows_the_run(served, browser, tmp_path):
    opened = browser.new_context().new_page()
    heard = []
    opened.on("console", lambda message: heard.append(message.text))
    opened.goto(f"http://127.0.0.1:{served.server_address[1]}/")
    opened.wait_for_selector("html.ready", state="attached", timeout=60_000)
    assert "at step 640" in opened.content()
    opened.locator("[data-sets=chosenLayer]").first.select_option("3")
    shutil.rmtree(tmp_path / "runs/hot")
    write(tmp_path / "runs/hot", **HOT)
    opened.wait_for_selector("text=One temperature, T", timeout=60_000)
    opened.wait_for_selector(".summary, summary:has-text('finished at step 2000')", state="attached", timeout=60_000)
    opened.wait_for_selector("html.ready", state="attached", timeout=60_000)
    assert opened.locator("[data-sets=chosenLayer]").first.input_value() == "3"  # what was chosen stays chosen
    assert heard == []
    opened.context.close()


def test_a_live_page_waits_for_a_run_that_has_not_begun(tmp_path):
    watcher = watching.Watcher([tmp_path / "later"])
    assert b"Waiting for rows" in watcher.page()
    write(tmp_path / "later", **COLD)
    assert b"One temperature" in watcher.page()
    assert record.load_run(tmp_path / "later").finished
    with pytest.raises(InputError, match="cannot serve"):
        watching.server(watcher, port=70_000)


def test_the_verb_writes_markdown_says_verdicts_and_names_what_it_skipped(tmp_path):
    write_pair(tmp_path / "runs")
    (tmp_path / "foreign").mkdir()
    said = thermocline("report", "runs", "foreign", "--format", "md", cwd=tmp_path)
    assert "What to do with these nets" in said
    assert "Layers to spare" in said
    assert "report: report.md" in said
    assert "left out: foreign is not a run directory" in said
    assert (tmp_path / "report.md").read_text().startswith("# mlp on runes")
    assert "report: page.md" in thermocline("report", "runs", "-o", "page.md", cwd=tmp_path)
    assert (tmp_path / "page.md").read_text().startswith("# mlp on runes")
    assert "report: table.tex" in thermocline("report", "runs", "-o", "table.tex", cwd=tmp_path)
    assert (tmp_path / "table.tex").read_text().startswith("% needs")
    for words, told in (
        (("--format", "pdf"), "html"),
        (("--format", "md", "-o", "page.html"), "page.html would hold md: end its name in .md"),
        (("-o", "page.pdf"), "page.pdf would hold html: end its name in .html"),
        (("--watch", "-o", "page.html"), "writes nothing"),
    ):
        assert told in thermocline("report", "runs", *words, cwd=tmp_path, code=2)


def test_the_table_alone_is_written_for_latex_and_for_programs(tmp_path, undrawn):
    for seed, neco in ((0, 0.7), (1, 0.72), (2, 0.71)):
        write(tmp_path / "runs" / f"cold{seed}", **COLD, seed=seed)
        write(tmp_path / "runs" / f"hot{seed}", **{**HOT, "neco": neco}, seed=seed)
    write(tmp_path / "runs" / "other", **COLD, data="a_b&c")
    text = report.render(tmp_path / "runs", tmp_path / "deep/table.tex", format="tex").read_text()
    assert r" & \multicolumn{2}{c}{mlp on runes} & \multicolumn{1}{c}{mlp on a\_b\&c} \\" in text
    assert " & $T = 1$ & $T = 1000$ & $T = 1$ " in text
    assert "% under each mean: 95 % t-interval, 3 seeds" in text
    assert r"digits, neco & 0.700 & 0.610 & 0.700 \\" in text
    assert r"{\scriptsize 0.585 to 0.635}" in text
    rows = csv.DictReader(report.render(tmp_path / "runs", tmp_path / "table.csv", format="csv").read_text().splitlines())
    (one,) = (
        row for row in rows if (row["quantity"], row["temperature"], row["measure"]) == ("digits, neco", "1000.0", "auroc")
    )
    assert (one["nets"], one["part"], one["seeds"]) == ("mlp on runes", "Detection: AUROC", "3")
    assert [float(one[name]) for name in ("low", "mean", "high")] == pytest.approx([0.5852, 0.61, 0.6348], abs=1e-4)
    write(tmp_path / "later/hot", **HOT, finish=False)
    write(tmp_path / "later/chance", **COLD, reached=0.06)
    assert (
        "& $T = 1$ (not learned) & $T = 1000$ (unfinished) "
        in report.render(tmp_path / "later", tmp_path / "later.tex", format="tex").read_text()
    )


def test_the_verb_watches_until_it_is_stopped(tmp_path):
    write(tmp_path / "run", **COLD)
    environment = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "thermocline", "report", "--watch", "run", "later"]
    # Started from a shell's background, this process and its children would ignore the signal.
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    pipes["preexec_fn"] = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
        assert process.stdout
        said = process.stdout.readline()
        port = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
        assert port, said
        link = http.client.HTTPConnection("127.0.0.1", int(port[1]), timeout=60)
        link.request("GET", "/version")
        assert len(link.getresponse().read()) == 16
        process.send_signal(signal.SIGINT)
        said, told = process.communicate()
    assert "stopped" in said
    assert told == "there is no later yet: the page waits for it\n"
    assert process.returncode == 0


@pytest.mark.parametrize("axis", [marks.LAYER, marks.INDEX])
def test_the_axis_of_a_few_layers_or_classes_names_each_once(axis):
    """Where there is room for more ticks than places, those between would be rounded to places."""
    import altair as alt
    import vl_convert

    places = alt.Chart(alt.InlineData(values=[{"x": layer} for layer in (1, 2, 3)])).mark_point()
    chart = places.encode(x=axis.x(), y=alt.value(10)).properties(width=530)
    drawn = vl_convert.vegalite_to_svg(chart.to_dict(validate=False))
    assert re.findall(r">(\d+)</text>", drawn) == ["1", "2", "3"]
