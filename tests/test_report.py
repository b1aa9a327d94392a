"""The report as its reader meets it: facts, verdicts in words, and the page in a real browser. Every number is made up."""

from __future__ import annotations

import shutil
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest
from commands import printed
from report_cases import (
    CLASSES,
    COLD,
    HOSTILE,
    HOT,
    LAYERS,
    chromium,
    final_rows,
    judged,
    layer_rows,
    show,
    summarise,
    trust_rows,
    write,
    write_pair,
)

from thermocline import record, report
from thermocline.record import Row
from thermocline.report import table
from thermocline.report.curves import reliability
from thermocline.report.estimates import estimate
from thermocline.report.facts import cases
from thermocline.report.trading import traded
from thermocline.spec import InputError

browser = pytest.fixture(chromium, scope="module")


def test_summary_has_the_numbers_of_the_rows(tmp_path):
    cold, hot = summarise(write_pair(tmp_path))
    assert (cold.name, cold.data, cold.net, cold.temperature, cold.seed) == ("cold", "runes", "mlp", 1.0, 0)
    assert (cold.finished, cold.step, cold.classes, cold.layers) == (True, 2000, CLASSES, LAYERS)
    assert cold.train_accuracy == pytest.approx(0.999)
    assert cold.test_accuracy == pytest.approx(0.8991)
    assert (cold.solution_rank, hot.solution_rank) == (19, 6)  # 6: exp(-0.6 i) > sqrt(1e-3) for i = 0..5
    assert hot.solution_entropy_rank < cold.solution_entropy_rank
    assert (cold.effective_depth, hot.effective_depth) == (0.5, 0.25)
    assert hot.ood_drop == {"runes:1": 0.35, "digits": 0.35}
    assert hot.auroc["runes:1", "neco"] == 0.9
    assert hot.fpr["digits", "msp"] == pytest.approx(0.34)
    assert hot.tempered_logit_norm == pytest.approx(hot.logit_norm / 1000)


def test_what_was_not_measured_is_none(tmp_path):
    gone = ("solution_rank", "effective_depth", "ood_drop", "auroc", "fpr", "accuracy")
    (one,) = summarise(write(tmp_path / "run", **COLD, without=gone).parent)
    assert one.solution_rank is one.effective_depth is one.train_accuracy is None
    assert one.ood_drop == one.auroc == {}
    assert report.verdicts([one]) == []


def test_classes_are_counted_from_the_logits_when_the_spec_leaves_them_open(tmp_path):
    write(tmp_path / "run", **COLD, classes=None)
    assert summarise(tmp_path)[0].classes == CLASSES


def test_intervals_are_those_of_student():
    stats = pytest.importorskip("scipy.stats")
    for values in ([1.0, 2.0, 4.0], [0.3, 0.1, 0.2, 0.25, 0.6], [float(i % 7) for i in range(31)]):
        found = estimate(values)
        low, high = stats.t.interval(0.95, len(values) - 1, loc=found.mean, scale=stats.sem(values))
        assert (found.low, found.high) == pytest.approx((low, high), rel=1e-3)
    assert estimate([]) is None
    assert estimate([1.0, 3.0]).kind == "range of 2 seeds"


def test_what_is_kept_lies_where_what_is_lost_does(tmp_path):
    drops = [0.1, 0.15, 0.35]
    for seed, drop in enumerate(drops):
        write(tmp_path / f"cold{seed}", **{**COLD, "drop": drop}, seed=seed)
    ((at,),) = (traded(case, "digits") for case in cases(summarise(tmp_path)))
    lost = estimate(drops, of="ood_drop")
    assert (at.transfer.low, at.transfer.mean, at.transfer.high) == pytest.approx((1 - lost.high, 1 - lost.mean, 1 - lost.low))
    mean, *seeds = at.marks()
    assert (mean["x_low"], mean["x_high"], mean["seeds"]) == (at.transfer.low, at.transfer.high, "mean of 3")
    assert [(mark["seeds"], mark["x"]) for mark in seeds] == [("0", 0.9), ("1", 0.85), ("2", 0.65)]


def test_intervals_end_where_their_numbers_do(tmp_path, undrawn):
    """A drop of 0 to 0.3 over three seeds, an AUROC up to 1, a rank of 1 to 12: Student's intervals reach beyond all three."""
    assert (estimate([0.0, 0.0, 0.3], of="ood_drop").low, estimate([0.0, 0.0, 0.3]).low < 0) == (0, True)
    assert [estimate([1.0, 1.9, 1.9], of=of).high for of in ("auroc", "brier")] == [1, 2]
    assert estimate([1.0, 2.0, 12.0], of="solution_rank").low == 0
    assert [estimate(values, of="auroc").cut for values in ([0.6, 0.7, 0.8], [0.6, 0.8, 1.0])] == [False, True]
    for seed, (drop, neco) in enumerate(((0.0, 1.0), (0.01, 0.99), (0.3, 0.6))):
        write(tmp_path / str(seed), **{**COLD, "drop": drop, "neco": neco}, seed=seed)
    (case,) = cases(summarise(tmp_path))
    intervals = {(line.part, line.label): line.cells[0].interval for line in table.lines(case)}
    assert intervals["OOD drop", "digits"].startswith("0.00 to ")
    assert intervals["Detection: AUROC", "runes:1, neco"].endswith(" to 1.000")
    found = judged(tmp_path)
    assert found["OOD drop, digits"].sentence.endswith("In brackets: 95 % t-interval, 3 seeds, cut to possible values.")
    assert found["Solution rank"].sentence.endswith("In brackets: 95 % t-interval, 3 seeds.")
    made = report.render(tmp_path, tmp_path / "page.html").read_text()
    assert "95 % t-interval, 3 seeds; cut to possible values" in made.replace("\u00a0", " ")


def test_an_arm_at_one_temperature_is_a_case_of_its_own(tmp_path):
    for decay in (0.0, 1e-4):
        write_pair(tmp_path / f"{decay:g}", train={"weight_decay": decay})
    found = cases(summarise(tmp_path / "*"))
    assert [len(case.groups) for case in found] == [2, 2]
    assert found[1].title == "mlp on runes, train.weight_decay = 0.0001"


def test_an_effect_that_is_there_is_called_so_with_its_numbers(tmp_path):
    found = judged(write_pair(tmp_path))
    assert {verdict.status for verdict in found.values()} == {"present"}
    rank = found["Solution rank"].sentence
    assert rank.startswith("At T = 1000 the rank of the logits is 6 of 19 (classes - 1), down from 19 at T = 1: fewer")
    assert "entropy rank, which needs no threshold, goes the same way" in rank
    assert "0.25 (layer 2 of 8), down from 0.50 (layer 4)" in found["Effective depth"].sentence
    assert "is 0.35, up from 0.10" in found["OOD drop, digits"].sentence
    assert "is 0.900, up from 0.800" in found["Detection, runes:1"].sentence


def test_an_effect_that_is_absent_is_called_so(tmp_path):
    found = judged(write_pair(tmp_path, {**COLD, "temperature": 1000, "neco": 0.804}))
    assert {verdict.status for verdict in found.values()} == {"absent"}
    assert "is 19 of 19 (classes - 1), unchanged from 19 at T = 1." in found["Solution rank"].sentence
    assert "a change of less than 0.01, which counts as none" in found["Detection, digits"].sentence


def test_the_direction_in_which_classes_move_together_is_no_lost_one(tmp_path):
    write_pair(tmp_path, {**COLD, "temperature": 1000, "decay": 0.197}, classes=19)
    found = judged(tmp_path)["Solution rank"]
    assert found.status == "absent"
    told = "is 18 of 18 (classes - 1), down from 19 at T = 1: both use every direction in which classes can differ."
    assert told in found.sentence


def test_an_effect_that_is_reversed_is_called_so(tmp_path):
    write(tmp_path / "cold", **{**HOT, "temperature": 1})
    write(tmp_path / "hot", **{**COLD, "temperature": 1000})
    found = judged(tmp_path)
    assert {verdict.status for verdict in found.values()} == {"reversed"}
    assert found["Solution rank"].word == "Opposite of the prediction (one seed)"
    assert "is 19 of 19 (classes - 1), up from 6 at T = 1: more directions" in found["Solution rank"].sentence


def test_overlapping_seeds_do_not_settle_it(tmp_path):
    for seed, (cold, hot) in enumerate([(0.1, 0.2), (0.3, 0.15), (0.2, 0.45)]):
        write(tmp_path / f"cold{seed}", **{**COLD, "drop": cold}, seed=seed)
        write(tmp_path / f"hot{seed}", **{**HOT, "drop": hot}, seed=seed)
    found = judged(tmp_path)
    assert found["OOD drop, digits"].status == "unclear"
    assert "In brackets: 95 % t-interval, 3 seeds, cut to possible values." in found["OOD drop, digits"].sentence
    assert found["Solution rank"].status == "present"


def test_what_seeds_share_is_no_noise(tmp_path):
    for seed, (cold, hot) in enumerate([(0.1, 0.16), (0.3, 0.35), (0.2, 0.27)]):
        write(tmp_path / f"cold{seed}", **{**COLD, "drop": cold}, seed=seed)
        write(tmp_path / f"hot{seed}", **{**HOT, "drop": hot, "temperature": 1000}, seed=seed)
    found = judged(tmp_path)["OOD drop, digits"]
    assert found.status == "present"
    assert (
        "up from 0.20 [0.00 to 0.45] at T = 1; paired by seed the change is +0.06 [0.04 to 0.08]: late features"
        in found.sentence
    )
    (case,) = cases(summarise(tmp_path))
    (line,) = [line for line in table.lines(case) if (line.part, line.label) == ("OOD drop", "digits")]
    assert [cell.apart for cell in line.cells] == ["", "higher"]
    for seed in range(3):  # no seed is shared
        shutil.rmtree(tmp_path / f"hot{seed}")
        write(tmp_path / f"hot{seed}", **{**HOT, "drop": (0.16, 0.35, 0.27)[seed], "temperature": 1000}, seed=seed + 3)
    found = judged(tmp_path)["OOD drop, digits"]
    assert found.status == "unclear"
    assert "the intervals overlap, so it is not settled" in found.sentence


def test_that_there_is_no_effect_takes_seeds_that_agree(tmp_path):
    for name, changes, status in (("agree", (0.01, 0.012, 0.009), "absent"), ("differ", (0.1, -0.1, 0.02), "unclear")):
        for seed, change in enumerate(changes):
            write(tmp_path / name / f"cold{seed}", **{**COLD, "drop": 0.2}, seed=seed)
            write(tmp_path / name / f"hot{seed}", **{**HOT, "drop": 0.2 + change, "temperature": 1000}, seed=seed)
        found = judged(tmp_path / name)["OOD drop, digits"]
        assert found.status == status
        assert ("which may be none" in found.sentence) == (status == "unclear")


def test_a_temperature_that_moves_is_said(tmp_path):
    for name, last in (("moves", 3.4492), ("stays", 1000.0)):
        write_pair(tmp_path / name, {"more": [record.Row("train", "", 0, "", "temperature", "", last)]})
        said = [verdict.sentence for verdict in report.verdicts(summarise(tmp_path / name)) if verdict.status == "caution"]
        moves = ["T = 1000 is only its label: the temperature moves, and was 3.45 when last measured."]
        assert said == (moves if name == "moves" else [])


def test_what_weakens_a_comparison_is_said(tmp_path):
    write_pair(tmp_path / "lr", {"train": {"lr": 0.5}})
    assert judged(tmp_path / "lr")["Comparison"].sentence.endswith("more than temperature: train.lr 0.1 to 0.5.")
    write_pair(tmp_path / "unfinished", {"finish": False})
    (only,) = report.verdicts(summarise(tmp_path / "unfinished"))
    assert only.sentence == "T = 1000 is unfinished, at step 640: it is drawn but not judged."
    write_pair(tmp_path / "untrained", {"reached": 0.6})
    untrained, inaccurate, *_ = report.verdicts(summarise(tmp_path / "untrained"))
    assert "only 60.0 % training accuracy" in untrained.sentence
    assert "reaches 54.0 % test accuracy against 89.9 % at T = 1" in inaccurate.sentence


def test_one_temperature_is_described_not_judged(tmp_path):
    write(tmp_path / "cold", **COLD)
    assert {verdict.status for verdict in judged(tmp_path).values()} == {"alone"}
    page = report.render(tmp_path, tmp_path / "page.html").read_text()
    assert "One temperature, T\u00a0=\u00a01" in page
    assert "<h2>Numbers</h2>" in page
    assert "Nothing to compare with" not in page  # once is enough, above


def test_the_terminal_says_the_same(tmp_path):
    write_pair(tmp_path, data="[bold]runes[/]")
    text = printed(report.terminal(summarise(tmp_path)))
    assert "mlp on [bold]runes[/]" in text
    assert "As predicted (one seed): At T = 1000 the rank of the logits is 6 of 19" in text


@pytest.mark.parametrize("hot", [True, False])
def test_the_terminal_says_what_its_marks_and_intervals_are(tmp_path, hot):
    for seed in range(3):
        write(tmp_path / f"cold{seed}", **COLD, seed=seed)
        if hot:
            write(tmp_path / f"hot{seed}", **HOT, seed=seed)
    text = " ".join(printed(report.terminal(summarise(tmp_path))).split())
    assert "under each mean: 95 % t-interval, 3 seeds" in text
    assert (table.LEGEND in text) == hot


def test_what_the_table_of_one_temperature_says_is_not_said_again_below_it(tmp_path):
    write(tmp_path / "cold", **COLD)
    text = printed(report.terminal(summarise(tmp_path)))
    assert "Effective depth" in text
    assert "effective depth is" not in text
    assert "Nothing to compare with" not in text


def test_facts_need_neither_torch_nor_the_extra(tmp_path):
    write_pair(tmp_path / "runs")
    code = f"""
import sys
sys.modules["altair"] = None
from thermocline import record, report, spec
assert "torch" not in sys.modules and "jinja2" not in sys.modules
assert report.verdicts(report.summary([record.load_run(path) for path in record.find_runs({str(tmp_path / "runs")!r})]))
try:
    report.render({str(tmp_path / "runs")!r}, {str(tmp_path / "page.html")!r})
except spec.InputError as error:
    print(error)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a report needs altair, which is not installed: pip install '.[report]' in the clone\n"


def test_bad_input_is_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    for paths in ([], tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(InputError):
            report.render(paths, tmp_path / "page.html")
    write(tmp_path / "run", **COLD)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write"):
        report.render(tmp_path / "run", tmp_path / "file/page.html")


def test_a_copy_of_a_run_is_no_second_seed(tmp_path):
    write_pair(tmp_path)
    shutil.copytree(tmp_path / "hot", tmp_path / "hot-again")
    page = report.render(tmp_path, tmp_path / "page.html").read_text()
    assert "is the same run as" in page
    assert "2 runs" in page


def test_missing_measures_leave_a_line_and_no_chart(tmp_path):
    write_pair(tmp_path, without=("probe_accuracy", "auroc", "fpr", "stable_rank"))
    page = report.render(tmp_path, tmp_path / "page.html", figures=tmp_path / "figures").read_text()
    for name in ("probe_accuracy", "auroc", "stable_rank"):
        assert f"these runs have no rows of <code>{name}</code>" in page
    assert "chart-1-probes-0" not in page
    assert "chart-1-layer-ranks-1" in page
    assert not (tmp_path / "figures/probes.svg").exists()
    nothing = tuple({row.measure for row in [*layer_rows(1.0, final=True), *final_rows(2, 0.1, 0.9, ("digits",))]})
    write(tmp_path / "bare/run", **COLD, without=(*nothing, "accuracy", "loss", "logit_norm", "tempered_logit_norm"))
    assert "Not drawn" in report.render(tmp_path / "bare", tmp_path / "bare.html").read_text()


def write_trusted(folder: Path, ood: tuple[str, ...] = ("runes:1", "digits")) -> Path:
    """The pair with seventeen detectors and with calibration: an overconfident cold net, an underconfident hot one."""
    both: dict[str, Any] = {"ood": ood, "without_final": ("auroc", "fpr")}
    write(folder / "cold", **COLD, **both, more=list(trust_rows(2.2, 1.8, ood=ood)))
    write(folder / "hot", **HOT, **both, more=list(trust_rows(0.5, 0.5, temperature=1000, ood=ood)))
    return folder


def test_calibration_is_said_in_words(tmp_path):
    found = [verdict for verdict in report.verdicts(summarise(write_trusted(tmp_path))) if verdict.claim == "Calibration"]
    assert [verdict.word for verdict in found] == ["Overconfident", "Underconfident"]
    cold, hot = (verdict.sentence for verdict in found)
    assert cold == ("At T = 1 ECE is 0.089 at the training temperature; dividing the logits by 1.8 more brings it to 0.000.")
    assert "multiplying the logits by 2 brings it to 0.000" in hot


def test_a_temperature_that_is_the_same_in_words_is_no_advice(tmp_path):
    write(tmp_path / "run", **COLD, more=[
        Row("test", "", 0, "", "ece", "scheme=equal-width,bins=15,at=training", 0.048),
        Row("test", "", 0, "", "ece", "scheme=equal-width,bins=15,at=fitted", 0.045),
        Row("test", "", 0, "", "fitted_temperature", "", 1.02),
    ])  # fmt: skip
    (found,) = (verdict for verdict in report.verdicts(summarise(tmp_path)) if verdict.claim == "Calibration")
    assert found.sentence.endswith("; no other temperature helps: the fitted one is within 5 % of it (0.045).")


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ({"ece": 0.01, "fitted": 0.012, "softening": 1.1}, "Calibrated"),
        ({"ece": 0.0122, "fitted": 0.0118, "softening": 1.1}, "Calibrated"),
        ({"ece": 0.2}, "Miscalibrated"),
        ({"ece": 0.2, "fitted": 0.1, "softening": 3.0}, "Overconfident"),
        ({"ece": 0.2, "fitted": 0.1, "softening": 0.3}, "Underconfident"),
        ({"ece": 0.2, "gap": 0.02}, "Miscalibrated"),
    ],
)
def test_calibration_is_said_from_what_there_is(tmp_path, rows, word):
    """Without the reliability diagram the fitted temperature tells the way; bins that are off both ways lean no way."""
    given = [Row("test", "", 0, "", "ece", "scheme=equal-width,bins=15,at=training", rows["ece"])]
    if "fitted" in rows:
        given.append(Row("test", "", 0, "", "ece", "scheme=equal-width,bins=15,at=fitted", rows["fitted"]))
        given.append(Row("test", "", 0, "", "fitted_temperature", "", rows["softening"]))
    if "gap" in rows:
        parts = {"count": 50, "confidence": 0.5 + rows["gap"], "accuracy": 0.5}
        given += [Row("test", "", 0, "", "reliability", f"at=training,bin=7,part={part}", parts[part]) for part in parts]
    write(tmp_path / "run", **COLD, more=given)
    verdict = judged(tmp_path)["Calibration"]
    assert verdict.word == word
    assert ("0.012 at the fitted one" in verdict.sentence) == (word == "Calibrated")
    assert "Not drawn" in report.render(tmp_path, tmp_path / "page.html").read_text()


def test_seventeen_detectors_do_not_clutter_the_table(tmp_path):
    (case,) = cases(summarise(write_trusted(tmp_path)))
    shown = [line.label for line in table.lines(case) if line.measure == "auroc"]
    assert shown == [f"{name}, {one}" for name in ("runes:1", "digits") for one in ("neco", "neco-maxlogit", "msp")]
    cold, _ = summarise(tmp_path)
    assert len(cold.auroc) == 34
    assert cold.auroc_interval["digits", "knn"] == pytest.approx(
        (cold.auroc["digits", "knn"] - 0.012, cold.auroc["digits", "knn"] + 0.01)
    )
    assert (cold.softening, cold.ece["fitted"]) == (1.8, 0)


def test_a_second_variant_of_a_detector_keeps_its_numbers_together(tmp_path):
    rows = []
    for dim, value in (("0.9", 0.7), ("50", 0.8)):
        place, name = ("digits/test", "", 0, ""), f"detector=neco,dim={dim}"
        rows += [Row(*place, "auroc", name, value), Row(*place, "fpr", f"{name},tpr=0.95,positive=id", 1 - value)]
        rows += [
            Row(*place, "auroc_interval", f"{name},part={part},level=0.95", value + by)
            for part, by in (("low", -0.1), ("high", 0.1))
        ]
    write(tmp_path / "run", **COLD, without_final=("auroc", "fpr"), more=rows)
    (one,) = summarise(tmp_path)
    assert one.auroc == {("digits", "neco"): 0.7, ("digits", "neco dim=50"): 0.8}
    assert one.fpr.keys() == one.auroc_interval.keys() == one.auroc.keys()
    assert one.auroc_interval["digits", "neco dim=50"] == pytest.approx((0.7, 0.9))


def test_seeds_are_pooled_in_the_reliability_diagram(tmp_path):
    for seed, (count, right) in enumerate(((10, 0.9), (30, 0.5))):
        parts = {"count": count, "confidence": 0.7, "accuracy": right}
        rows = [Row("test", "", 0, "", "reliability", f"at=training,bin=10,part={part}", parts[part]) for part in parts]
        write(tmp_path / str(seed), **COLD, seed=seed, more=rows)
    runs = {run.spec.key: run for run in record.load_runs(tmp_path)}
    (case,) = cases(summarise(tmp_path))
    (point,) = reliability(case, runs, "training")
    assert point == {"series": "T = 1", "count": 40, "x": 0.7, "value": 0.6, "share": 1.0}
    assert reliability(case, runs, "fitted") == []


def test_detectors_and_reliability_are_drawn(browser, tmp_path):
    write_trusted(tmp_path / "runs", ood=("digits", HOSTILE))
    made = report.render(tmp_path / "runs", tmp_path / "page.html", figures=tmp_path / "figures")
    assert {"detection", "reliability"} <= {file.stem for file in (tmp_path / "figures").iterdir()}
    page = show(browser, made)
    for chart, symbols in (("detection-0", 34), ("detection-1", 34), ("reliability-0", 22), ("reliability-1", 22)):
        assert page.locator(f"#chart-1-{chart} .mark-symbol path").count() == symbols
    assert page.locator("#chart-1-detection-0 .role-mark.mark-rule line").count() == 35  # chance, and an interval a dot
    assert page.locator("#chart-1-reliability-0 .mark-line path").count() == 3  # the diagonal too
    assert page.locator(".card", has_text="Calibration").locator(".chip.under").count() == 1
    assert page.locator("img").count() == 0
    phone = show(browser, made, width=390)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390


def test_what_charts_do_not_need_stays_off_the_page(tmp_path):
    page = report.render(write_trusted(tmp_path / "runs"), tmp_path / "page.html").read_text()
    plain = report.render(write_pair(tmp_path / "plain"), tmp_path / "plain.html").read_text()
    assert len(page) - len(plain) < 40_000
    for word in ("part=low", "part=count", "adaptive", "aupr"):
        assert word not in page


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_pair(folder / "runs", {"train": {"lr": 0.5}})
    return report.render(folder / "runs", folder / "page.html", figures=folder / "figures")


def test_the_page_says_what_each_measure_means_and_how_it_was_made(made):
    page = made.read_text()
    assert made.stat().st_size < 3_000_000
    assert "How many directions the logits use." in page
    assert "#{i : sigma_i &gt; rtol * sigma_1}" in page
    assert "[masarczyk2025softmax, Sec. 2.1]" in page
    assert "thermocline train" in page
    assert "0.0-synthetic" in page


def test_every_figure_is_an_svg_in_plain_colours(made):
    names = {file.stem for file in (made.parent / "figures").iterdir()}
    assert names == {
        "probes", "deficit", "layer-ranks", "spectra", "rank-training", "norms", "accuracy", "detection", "tradeoff",
    }  # fmt: skip
    for file in (made.parent / "figures").glob("*.svg"):
        drawing = xml.etree.ElementTree.parse(file).getroot()
        assert len(list(drawing.iter("{http://www.w3.org/2000/svg}path"))) > 10
        assert "var(--" not in file.read_text()


def test_dark_mode_recolours_the_charts(browser, made):
    seen = []
    for scheme in ("light", "dark"):
        page = show(browser, made, scheme=scheme)
        line = page.locator("#chart-1-norms-0 .mark-line path").first
        seen.append(
            (page.evaluate("getComputedStyle(document.body).backgroundColor"), line.evaluate("e => getComputedStyle(e).stroke"))
        )
    assert seen[0][0] == "rgb(255, 255, 255)"
    assert all(light != dark for light, dark in zip(*seen))


def test_nothing_overflows_at_phone_width(browser, made):
    page = show(browser, made, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert (
        page.evaluate("Math.max(...[...document.querySelectorAll('.chart svg')].map(s => s.getBoundingClientRect().right))")
        <= 390
    )


def test_a_note_on_top_of_a_page_keeps_clear_of_the_line_above_it(browser, tmp_path):
    write_pair(tmp_path / "runs")
    (tmp_path / "runs" / "odd").mkdir()
    (tmp_path / "runs" / "odd" / "spec.json").write_text("{")
    page = show(browser, report.render(tmp_path / "runs", tmp_path / "page.html"))
    note, above = (page.locator(one).first.bounding_box() for one in ("main > .note", "header"))
    assert note["y"] - (above["y"] + above["height"]) >= 12


def test_a_table_wider_than_a_phone_scrolls_by_itself(browser, tmp_path):
    """The words that its marks stand for are out of sight, and must not widen the page."""
    for seed in range(3):
        for run in (COLD, {**HOT, "temperature": 100}, HOT):
            write(tmp_path / "runs" / f"{run['temperature']}-{seed}", **run, seed=seed)
    page = show(browser, report.render(tmp_path / "runs", tmp_path / "page.html"), width=390)
    assert page.locator(".comparison .apart .hidden").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
