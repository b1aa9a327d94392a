"""The report as its reader meets it: facts, verdicts in words, and the page in a real browser. Every number is made up."""

from __future__ import annotations

import io
import math
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rich.console

from thermocline import record, report
from thermocline.record import Row
from thermocline.report.facts import cases, estimate
from thermocline.report.judge import Verdict
from thermocline.spec import Data, InputError, Net, Run, Train

LAYERS, CLASSES = 8, 20
HOSTILE = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(2)>🔥"
GLOSSARY = {
    "solution_rank": {
        "meaning": "How many directions the logits use.",
        "formula": "#{i : sigma_i > rtol * sigma_1}",
        "reference": "[masarczyk2025softmax, Sec. 2.1]",
    },
    "probe_accuracy": {
        "meaning": "Test accuracy of a linear classifier on one layer's features.",
        "formula": "W = argmin |X W - Y|^2 + lambda |W|^2",
        "reference": "[masarczyk2025softmax, Sec. 2.1]",
    },
}


def layer_rows(decay: float, *, final: bool, layer: str = "layers.") -> Iterator[Row]:
    """Spectra that fall off geometrically, faster in later layers."""
    for depth in range(1, LAYERS + 1):
        name, width = f"{layer}{depth}", CLASSES if depth == LAYERS else 64
        values = [50 * math.exp(-decay * (0.4 + 0.6 * depth / LAYERS) * i) for i in range(width)]
        if depth == LAYERS:
            values[-1] *= 1e-4  # the all-ones direction gets no gradient
        total, power = sum(values), sum(value**2 for value in values)
        entropy = math.exp(-sum(value / total * math.log(value / total) for value in values))

        def row(measure: str, params: str, value: float, name=name, depth=depth) -> Row:
            return Row("train", name, depth, "flatten", measure, params, value)

        rules = [("covariance", 1e-3), *(("features", 10.0**-k) for k in range(1, 7) if final)]
        for of, rtol in rules:
            cut = math.sqrt(rtol) if of == "covariance" else rtol
            count = float(sum(value > cut * values[0] for value in values))
            yield row("rank", record.params(of=of, rtol=rtol), count)
            if depth == LAYERS:
                yield row("solution_rank", record.params(of=of, rtol=rtol), count)
        yield row("entropy_rank", "", entropy)
        yield row("stable_rank", "", power / values[0] ** 2)
        for index, value in enumerate(values if final else values[:5]):
            yield row("singular_value", record.params(index=index), value)


def final_rows(depth_needed: int, drop: float, neco: float, ood: tuple[str, ...], layer: str = "layers.") -> Iterator[Row]:
    """What is measured once, at the end."""
    for depth in range(1, LAYERS + 1):
        share = min(1.0, 0.55 + 0.45 * depth / depth_needed)
        yield Row("test", f"{layer}{depth}", depth, "flatten", "probe_accuracy", "probe=ridge", 0.9 * share)
        for place, name in enumerate(ood):
            lost = drop * max(0, depth - 2) / (LAYERS - 2)
            value = (0.8 - 0.15 * place) * (0.8 + 0.1 * min(depth, 2)) * (1 - lost)
            yield Row(f"{name}/test", f"{layer}{depth}", depth, "flatten", "probe_accuracy", "probe=ridge", value)
    yield Row("test", "", 0, "", "effective_depth", "threshold=0.99", depth_needed / LAYERS)
    for place, name in enumerate(ood):
        yield Row(f"{name}/test", "", 0, "", "ood_drop", "", drop)
        for detector, value in (("detector=neco,dim=0.9", neco - 0.1 * place), ("detector=msp", 0.62 + 0.04 * place)):
            yield Row(f"{name}/test", f"{layer}7", 7, "flatten", "auroc", detector, value)
            yield Row(f"{name}/test", f"{layer}7", 7, "flatten", "fpr", f"{detector},tpr=0.95,positive=id", 1 - value)


def step_rows(done: float, temperature: float, reached: float) -> Iterator[Row]:
    """What is measured at every snapshot, without the layers; `done`: the share of training that is over."""
    norm = 0.5 + 30 * done * math.sqrt(temperature)
    for split, share in (("train", 1.0), ("test", 0.9)):
        yield Row(split, "", 0, "", "accuracy", "", (0.05 + (reached - 0.05) * done**0.3) * share)
        yield Row(split, "", 0, "", "loss", "", 3 * (1 - done) + 0.01)
    yield Row("train", "", 0, "", "logit_norm", "", norm)
    yield Row("train", "", 0, "", "tempered_logit_norm", "", norm / temperature)


def write(
    path: Path, *, temperature: float, decay: float, depth_needed: int, drop: float, neco: float, seed: int = 0,
    finish: bool = True, without: tuple[str, ...] = (), data: str = "runes", classes: int | None = CLASSES,
    ood: tuple[str, ...] = ("runes:1", "digits"), train: dict[str, float] | None = None, reached: float = 0.999,
    command: str = "thermocline train", layer: str = "layers.",
) -> Path:  # fmt: skip
    """A run directory with made-up numbers."""
    run = Run(Data(data, classes=classes, ood=ood), Net("mlp"), Train(temperature=temperature, **(train or {})), seed=seed)
    steps = [0, 10, 40, 160, 640, 2000]
    with record.open_run(path, run) as opened:
        for step in steps if finish else steps[:-1]:
            done, final = step / steps[-1], step == steps[-1]
            rows = [*step_rows(done, temperature, reached), *layer_rows(decay * (0.5 + 0.5 * done), final=final, layer=layer)]
            rows += final_rows(depth_needed, drop, neco, ood, layer) if final else []
            opened.append(step, [row for row in rows if row.measure not in without])
        opened.describe({"measures": GLOSSARY, "versions": {"torch": "0.0-synthetic"}, "commit": "0" * 40, "command": command,
                         "hardware": {"device": "cpu", "threads": 2}, "wall_seconds": 12.5})  # fmt: skip
        if finish:
            opened.finish(steps)
    return path


COLD: dict[str, Any] = {"temperature": 1, "decay": 0.1, "depth_needed": 4, "drop": 0.1, "neco": 0.8}
HOT: dict[str, Any] = {"temperature": 1000, "decay": 0.6, "depth_needed": 2, "drop": 0.35, "neco": 0.9}


def write_pair(folder: Path, hot: dict[str, Any] | None = None, **both: Any) -> Path:
    """T = 1 and T = 1000 with the effect that the paper reports, unless told otherwise."""
    write(folder / "cold", **COLD, **both)
    write(folder / "hot", **{**HOT, **(hot or {})}, **both)
    return folder


def summarise(folder: Path) -> list[report.Summary]:
    return report.summary([record.load_run(path) for path in record.find_runs(folder)])


def judged(folder: Path) -> dict[str, Verdict]:
    return {verdict.claim: verdict for verdict in report.verdicts(summarise(folder))}


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
    assert "In brackets: 95 % t-interval, 3 seeds." in found["OOD drop, digits"].sentence
    assert found["Solution rank"].status == "present"


def test_what_weakens_a_comparison_is_said(tmp_path):
    write_pair(tmp_path / "lr", {"train": {"lr": 0.5}})
    assert judged(tmp_path / "lr")["Comparison"].sentence.endswith("more than temperature: train.lr 0.1 to 0.5.")
    write_pair(tmp_path / "unfinished", {"finish": False})
    (only,) = report.verdicts(summarise(tmp_path / "unfinished"))
    assert only.sentence == "T = 1000 is unfinished, at step 640: it is drawn but not judged."
    write_pair(tmp_path / "untrained", {"reached": 0.6})
    untrained, inaccurate, *_ = report.verdicts(summarise(tmp_path / "untrained"))
    assert "only 60.0% training accuracy" in untrained.sentence
    assert "reaches 54.0% test accuracy against 89.9% at T = 1" in inaccurate.sentence


def test_one_temperature_is_described_not_judged(tmp_path):
    write(tmp_path / "cold", **COLD)
    assert {verdict.status for verdict in judged(tmp_path).values()} == {"alone"}
    assert "One temperature, T\u00a0=\u00a01" in report.render(tmp_path, tmp_path / "page.html").read_text()


def test_the_terminal_says_the_same(tmp_path):
    write_pair(tmp_path, data="[bold]runes[/]")
    console = rich.console.Console(width=200, record=True, file=io.StringIO())
    console.print(report.terminal(summarise(tmp_path)))
    text = console.export_text()
    assert "mlp on [bold]runes[/]" in text
    assert "As predicted (one seed): At T = 1000 the rank of the logits is 6 of 19" in text


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
    assert done.stdout == "a report needs altair, which is not installed: pip install 'thermocline[report]'\n"


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on PATH: the page was not opened in a browser")
    quiet = (
        "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"
    )
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=quiet.split())
        yield opened
        opened.close()


def show(browser: Any, path: Path, *, width: int = 1280, scheme: str = "light") -> Any:
    """Open a page offline; fail on any console message, dialog or request but the file itself."""
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True).new_page()
    page.heard = []
    page.on("console", lambda message: page.heard.append(message.text))
    page.on("pageerror", lambda error: page.heard.append(str(error)))
    page.on("dialog", lambda dialog: (page.heard.append("dialog"), dialog.dismiss()))
    page.on("request", lambda request: page.heard.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    page.wait_for_function("document.querySelectorAll('.chart:not(.drawn)').length === 0", timeout=30_000)
    assert page.heard == []
    return page


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
    assert names == {"probes", "deficit", "layer-ranks", "spectra", "rank-training", "norms", "accuracy", "detection"}
    for file in (made.parent / "figures").iterdir():
        drawing = xml.etree.ElementTree.parse(file).getroot()
        assert len(list(drawing.iter("{http://www.w3.org/2000/svg}path"))) > 10
        assert "var(--" not in file.read_text()


def test_every_chart_is_drawn_offline(browser, made):
    page = show(browser, made)
    marks = page.evaluate(
        "[...document.querySelectorAll('.chart')].map(c => c.querySelectorAll('.mark-line path, .mark-symbol path').length)"
    )
    assert len(marks) == 18
    assert min(marks) >= 2
    assert page.locator(".card").count() == 6
    assert page.locator(".chip.present").first.inner_text() == "✓ As predicted (one seed)"


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


def test_hostile_names_are_shown_as_text(browser, tmp_path):
    folder = tmp_path / "runs"
    for name, numbers in (("cold", COLD), ("hot", HOT)):
        path = folder / (HOSTILE.replace("/", "") + name)
        write(path, **numbers, data=HOSTILE, ood=(HOSTILE + "ood",), command=HOSTILE, layer=HOSTILE)
    page = show(browser, report.render(folder, tmp_path / "page.html", figures=tmp_path / "figures"))
    assert page.locator("script").count() == 3
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("h1").inner_text()
    assert page.locator("h4", has_text=HOSTILE + "ood (OOD)").count() >= 2
    page.locator("#chart-1-probes-0 .mark-symbol path").first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert HOSTILE in page.locator("#vg-tooltip-element").inner_text()
    assert page.locator("img").count() == 0
    assert page.heard == []
    for file in (tmp_path / "figures").iterdir():
        assert "<script" not in file.read_text()
