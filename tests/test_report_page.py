"""The page in a real browser, as a reader uses it: chosen layers, the tolerance slider, files saved, print, many runs."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from report_cases import COLD, HOSTILE, HOT, chromium, show, trust_rows, until, write, write_many

from thermocline import record, report
from thermocline.record import Row
from thermocline.report import markdown
from thermocline.report.curves import HEADLINE_PLACE, recounted
from thermocline.report.facts import cases
from thermocline.report.figures import to_svg
from thermocline.report.page import gather, html

browser = pytest.fixture(chromium, scope="module")


def more_rows(layer: str, ood: tuple[str, ...], sure: float) -> list[Row]:
    """What scans of this version have beside the rest: alignment, collapse, scores, confused classes."""
    rows = []
    for depth in range(1, 9):
        for part, value in (("max", 0.4 + 0.05 * depth), ("first", 0.1 * depth), ("null", 0.2)):
            rows.append(Row("train", f"{layer}{depth}", depth, "flatten", "alignment", f"part={part},top=15", value))
    for part, value in (("nc1", 0.5), ("nc2_equinorm", 0.1), ("nc3", 0.02), ("nc4", 0.0)):
        rows.append(Row("train", f"{layer}8", 8, "", "neural_collapse", f"part={part}", value / sure))
    for name in ood:
        for detector, power in (("neco,dim=0.9", 0.1), ("msp", 0.4)):

            def row(measure: str, more: str, value: float, name=name, detector=detector) -> Row:
                return Row(f"{name}/test", f"{layer}8", 8, "input", measure, f"detector={detector},{more}", value)

            rows += [row("roc", f"positive=id,fpr={i / 20:g}", (i / 20) ** power) for i in range(21)]
            rows += [row("score_histogram", f"bins=30,part={end}", value) for end, value in (("low", 0), ("high", 3))]
            for side, middle in (("id", 20), ("ood", 9)):
                shares = [max(0, 9 - abs(i - middle)) / 81 for i in range(30)]
                rows += [row("score_histogram", f"bins=30,part={side},bin={i}", share) for i, share in enumerate(shares)]
    for label, predicted in ((3, 7), (7, 3), (0, 1)):
        for part, value in (("share", 0.1 + 0.01 * label), ("cosine", 0.5)):
            rows.append(Row("test", "", 0, "", "confusion", f"label={label},predicted={predicted},part={part}", value))
    return rows


def write_whole(folder: Path, *, ood: tuple[str, ...] = ("runes:1", "digits"), layer: str = "layers.", **both: Any) -> Path:
    """A cold and a hot run with every measure there is."""
    for name, numbers, sure in (("cold", COLD, 1.0), ("hot", HOT, 3.0)):
        more = [*trust_rows(2.2, 1.8, ood=ood), *more_rows(layer, ood, sure)]
        options = {"ood": ood, "layer": layer, "without_final": ("auroc", "fpr"), "more": more, **both}
        write(folder / name, **numbers, **options)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    return report.render(write_whole(folder / "runs"), folder / "page.html")


@pytest.fixture(scope="module")
def page(browser, made) -> Any:
    return show(browser, made)


def heights(page: Any, chart: str) -> list[str]:
    return page.locator(f"#{chart} .mark-symbol path").evaluate_all("all => all.map(e => e.getAttribute('transform'))")


def test_everything_is_drawn_and_nothing_is_missing(page):
    assert page.locator(".missing").count() == 1  # alignment and OrthoDev over training, which a run does not follow
    drawn = page.evaluate(
        "[...document.querySelectorAll('.chart')].map(c => [c.id, c.querySelectorAll('.role-mark :is(path, line)').length])"
    )
    assert len(drawn) == 34
    assert min(count for _, count in drawn) >= 3, drawn
    assert page.locator(".card").count() == 7
    assert page.locator(".chip.present").first.inner_text() == "✓ As predicted (one seed)"


def test_the_slider_counts_anew(page, made):
    output = page.locator("output").first
    runs = {run.spec.key: run for run in record.load_runs(made.parent / "runs")}
    (case,) = cases(report.summary(runs.values()))
    logits = {row["series"]: row["counts"] for row in recounted(case, runs) if row["x"] == 8}
    # The slider starts where the headline rank is counted, from all singular values.
    assert {name: counts[HEADLINE_PLACE] for name, counts in logits.items()} == {"T = 1": 19, "T = 1000": 6}
    assert output.inner_text().replace("\u00a0", " ").endswith("Rank of the logits: T = 1: 19, T = 1000: 6")
    before = heights(page, "chart-1-spectra-2")
    slider = page.locator("[data-sets=cutAt]").first
    slider.focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    wanted = ", ".join(f"{name}: {counts[HEADLINE_PLACE - 10]}" for name, counts in logits.items())
    said = f"0.10 of the largest singular value. Rank of the logits: {wanted}"
    until(page, lambda: output.inner_text().replace("\u00a0", " ") == said)
    until(page, lambda: heights(page, "chart-1-spectra-2") != before)
    label = page.locator("#chart-1-spectra-0 .role-mark.mark-text text", has_text="threshold").first
    until(page, lambda: label.text_content() == "threshold 0.1")
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    until(page, lambda: heights(page, "chart-1-spectra-2") == before)


def bands(page: Any) -> dict[str, str]:
    """Where every band over a layer stands, by chart; those that cannot be seen are left out."""
    return page.evaluate(
        """Object.fromEntries([...document.querySelectorAll('.chart')].map(c => [c.id, c.querySelector(
           '.mark-rule line[stroke-width="9"]')]).filter(([, e]) => e && +e.getAttribute('opacity') > 0)
           .map(([id, e]) => [id, e.getAttribute('transform')]))"""
    )


def test_a_layer_chosen_in_one_figure_is_chosen_in_all(page):
    assert bands(page) == {}
    page.locator("#chart-1-probes-1 .mark-symbol path").nth(4).click()  # layer 5 of the first curve
    until(page, lambda: page.locator("[data-sets=chosenLayer]").first.input_value() == "5")
    shown = {f"chart-1-{name}" for name in ("probes-0", "probes-2", "layer-ranks-0", "spectra-2", "alignment-0")}
    until(page, lambda: shown <= set(bands(page)))
    until(page, lambda: page.locator('#chart-1-spectra-0 .mark-line path[stroke-width="3.5"]').count() == 1)
    found = bands(page)
    page.locator("[data-sets=chosenLayer]").first.select_option("2")  # as one does from a keyboard
    until(page, lambda: bands(page).keys() == found.keys() and not set(bands(page).items()) & set(found.items()))
    page.keyboard.press("Escape")
    until(page, lambda: bands(page) == {})


def saved(page: Any, figure: str, kind: str) -> bytes:
    with page.expect_download() as waiting:
        page.locator(f"#figure-1-{figure} [data-action={kind}]").click()
    assert waiting.value.suggested_filename == f"1-{figure}.{kind}"
    return Path(waiting.value.path()).read_bytes()


def test_the_buttons_give_the_data_and_the_figure(page):
    rows = list(csv.DictReader(io.StringIO(saved(page, "probes", "csv").decode())))
    assert len(rows) == 3 * 2 * 8
    assert {row["panel"] for row in rows} == {"runes (in distribution)", "runes:1 (OOD)", "digits (OOD)"}
    first = rows[0]
    assert (first["series"], first["x"], first["layer"], float(first["value"])) == (
        "T = 1",
        "1",
        "layers.1",
        pytest.approx(0.59625),
    )
    counted = [row for row in csv.DictReader(io.StringIO(saved(page, "spectra", "csv").decode())) if row["tolerance"]]
    assert [row["value"] for row in counted if row["x"] == "8"] == ["19", "6"]
    drawing = saved(page, "probes", "svg").decode()
    assert "var(--" not in drawing
    assert len(list(xml.etree.ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}path"))) > 40
    pixels = Image.open(io.BytesIO(saved(page, "spectra", "png")))
    assert pixels.width > 1500
    assert len(pixels.convert("RGB").resize((300, 100)).getcolors(30_000) or []) > 50
    assert page.heard == []


def test_the_scale_and_the_detector_can_be_changed(page):
    def ticks() -> list[str]:
        return page.locator("#chart-1-norms-0 .role-axis-label text").all_text_contents()

    before = ticks()
    assert any("10" in tick and "⁰" in tick for tick in before)
    page.locator("#figure-1-norms [data-action=scale]").click()
    until(page, lambda: not any("⁰" in tick for tick in ticks()))
    page.locator("#figure-1-norms [data-action=scale]").click()
    until(page, lambda: ticks() == before)
    curve = page.locator("#chart-1-scores-0 .mark-line path").nth(1)
    shape = curve.get_attribute("d")
    page.locator("#figure-1-scores select").select_option("msp")
    until(page, lambda: curve.get_attribute("d") != shape)
    assert page.heard == []


def test_shift_and_wheel_zoom_and_a_plain_wheel_does_not(page):
    def ticks() -> set[str]:
        return set(page.locator("#chart-1-probes-0 .role-axis-label text").all_text_contents())

    page.locator("#chart-1-probes-0").scroll_into_view_if_needed()
    before = ticks()
    page.locator("#chart-1-probes-0 svg").hover()
    page.mouse.wheel(0, -100)
    page.wait_for_timeout(200)  # long enough, most often, to see what must not come
    assert ticks() == before
    page.locator("#chart-1-probes-0 svg").hover()
    page.keyboard.down("Shift")
    page.mouse.wheel(0, -400)
    until(page, lambda: ticks() != before)
    page.keyboard.up("Shift")
    page.locator("#chart-1-probes-0 svg").dblclick()
    until(page, lambda: ticks() == before)


def test_colour_is_never_alone_and_can_be_read(browser, made):
    """Every chip has words; text and its ground differ by 4.5 to 1 at least [WCAG 2.2, 1.4.3], light and dark."""
    for scheme in ("light", "dark"):
        page = show(browser, made, scheme=scheme)
        assert all(len(text) > 5 for text in page.locator(".chip").all_text_contents())
        low = page.evaluate(
            """() => {
              const seen = document.querySelectorAll('p, li, .chip, h1, h2, h3, h4, td, th, button, summary, output, cite');
              const straight = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
              const light = words => {
                const [r, g, b] = words.match(/[\\d.]+/g).slice(0, 3).map(v => straight(v / 255));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
              };
              const ground = light(getComputedStyle(document.body).backgroundColor);
              const inks = [...seen].map(e => light(getComputedStyle(e).color));
              return Math.min(...inks.map(ink => (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05)));
            }"""
        )
        assert low >= 4.5
        page.context.close()


def test_every_control_can_be_reached_and_is_named(page):
    names = page.evaluate(
        """[...document.querySelectorAll('button, select, input')].map(e =>
           [e.tabIndex, e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')?.textContent || ''])"""
    )
    assert names
    assert all(index >= 0 and words.strip() for index, words in names)
    assert page.locator(".chart:not([aria-label])").count() == 0


def test_the_page_prints_light_without_its_controls(browser, made):
    page = show(browser, made, width=794, scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper').trim()") == "#ffffff"
    assert not page.locator(".controls").first.is_visible()
    assert not page.locator(".tools").first.is_visible()
    assert page.locator("#chart-1-probes-0 svg").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 794
    assert len(page.pdf(format="A4")) > 100_000


def test_many_long_runs_stay_small_and_open(browser, tmp_path):
    """50 layers, 20 temperatures, 100 checkpoints."""
    made = report.render(write_many(tmp_path / "runs", layers=50, runs=20, checkpoints=100), tmp_path / "page.html")
    assert made.stat().st_size < 10_000_000
    page = show(browser, made)  # until the last chart is drawn, or a minute, is over
    assert page.locator("#chart-1-spectra-19 .mark-line path").count() > 40


def test_hostile_names_are_shown_as_text_everywhere(browser, tmp_path):
    write_whole(tmp_path / "runs", ood=(HOSTILE,), layer=HOSTILE, data=HOSTILE, command=HOSTILE)
    write(tmp_path / "runs" / HOSTILE.replace("/", ""), **COLD, data="=cmd()" + HOSTILE, ood=(HOSTILE,), layer=HOSTILE)
    found = gather(tmp_path / "runs")
    (tmp_path / "page.html").write_text(html(found))
    page = show(browser, tmp_path / "page.html")
    assert HOSTILE in page.locator(".which").first.inner_text()
    assert page.locator("h4", has_text=HOSTILE + " (OOD)").count() >= 2
    page.locator("#chart-1-probes-0 .mark-symbol path").first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert HOSTILE in page.locator("#vg-tooltip-element").inner_text()
    page.locator("[data-sets=chosenLayer]").first.select_option("3")
    for kind in ("csv", "svg", "png"):
        assert saved(page, "probes", kind)
    assert "<script" not in saved(page, "probes", "svg").decode()
    assert not [figure.key for _, figure in found.figures() if b"<script" in to_svg(figure, found.scale)]
    assert (page.locator("script").count(), page.locator("img").count()) == (3, 0)
    assert page.heard == []
    assert HOSTILE in page.locator(".advised li").first.inner_text()
    text = markdown.page(found, {})
    assert "<script" not in text
    assert "<img" not in text
