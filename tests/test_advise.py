"""Transfer against detection: made-up runs with a known relation, outside oracles, and the verb as a user meets it."""

from __future__ import annotations

import re
import warnings
import xml.etree.ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from commands import printed, thermocline
from hypothesis import given
from hypothesis import strategies as st
from report_cases import HOSTILE, chromium, record_run, show
from scipy import stats

from thermocline import advise, record, report
from thermocline.advise import Tradeoff, relation
from thermocline.record import Row
from thermocline.spec import Data, InputError, Net, Run, Train

browser = pytest.fixture(chromium, scope="module")


def write(
    path: Path, rho: float, auroc: float, *, temperature: float = 1, seed: int = 0, ood: str = "svhn", data: str = "runes",
    net: Net | None = None, train: dict[str, Any] | None = None, without: tuple[str, ...] = (), finish: bool = True,
    probes: tuple[str, ...] = ("ridge",), measures: tuple[str, ...] = ("all",), detectors: tuple[str, ...] = ("neco,dim=0.9",),
    classes: int | None = None, right: float | None = None,
) -> Path:  # fmt: skip
    """A run directory with nothing but the two numbers, the earlier step's wrong on purpose, as is the second probe's."""
    spec = Run(
        Data(data, classes, ood=(ood,)), net or Net(), Train(temperature=temperature, **(train or {})), measures, seed, probes
    )
    steps, place = {}, (f"{ood}/test", "", 0, "")
    for step, off in ((0, 0.3), (100, 0.0)):
        rows = [Row(*place, "ood_drop", f"probe={probe}", rho + off + i / 4) for i, probe in enumerate(probes)]
        rows += [Row(*place, "auroc", f"detector={d}", auroc - off - i / 10) for i, d in enumerate(detectors)]
        rows += [] if right is None else [Row("train", "", 0, "", "accuracy", "", right)]
        steps[step] = [row for row in rows if row.measure not in without]
    return record_run(path, spec, steps, finish=finish)


def sweep(
    folder: Path,
    slope: float,
    *,
    seeds: int = 3,
    noise: float = 0.01,
    temperatures: tuple[int, ...] = (1, 10, 100, 1000),
    **more: Any,
) -> Path:
    """Three seeds at four temperatures: rho rises with temperature, and the AUROC by `slope` of that."""
    generator = np.random.default_rng(0)
    for place, temperature in enumerate(temperatures):
        for seed in range(seeds):
            rho = 0.2 + 0.1 * place + noise * generator.standard_normal()
            auroc = 0.7 + slope * (rho - 0.35) + noise * generator.standard_normal()
            write(folder / f"T{temperature}s{seed}", rho, auroc, temperature=temperature, seed=seed, **more)
    return folder


def found(*folders: Path) -> Tradeoff:
    return advise.tradeoff(record.load_runs(folders))


def shown(some: Tradeoff) -> str:
    return printed(advise.terminal(some), width=160)


def test_points_are_of_the_last_step_and_the_first_probe(tmp_path):
    write(tmp_path / "run", 0.25, 0.8, temperature=10, seed=3, probes=("logistic", "ridge"))
    (point,) = found(tmp_path).points
    assert (point.run, point.subject, point.setting, point.seed) == ("run", "mlp on runes", "T = 10", 3)
    assert (point.ood, point.detector) == ("svhn", "neco")
    assert (point.transfer, point.auroc) == pytest.approx((0.75, 0.8))


@pytest.mark.parametrize(
    ("slope", "status", "words"),
    [
        (+0.5, "present", "move against each other: r = -1.00 [-1.00, -0."),
        (-0.5, "reversed", "move together: r = 1.00 [0."),
        (0.0, "unclear", "have no clear relation: r = "),
    ],
)
def test_the_verdict_follows_the_numbers(tmp_path, slope, status, words):
    (one,) = found(sweep(tmp_path, slope)).relations
    assert one.status == status
    assert one.sentence.startswith(f"Over 4 settings (12 runs), transfer and NECO detection on svhn {words}")
    assert f"r = {one.pearson}; {'the paper' if slope else 'these settings'}" in one.sentence


def test_a_trade_off_that_heat_goes_along_backwards_is_not_the_papers(tmp_path):
    for place, temperature in enumerate((1, 10, 100, 1000)):
        write(tmp_path / str(place), 0.5 - 0.1 * place, 0.9 - 0.1 * place + 0.01 * (place % 2), temperature=temperature)
    (one,) = found(tmp_path).relations
    assert one.status == "turned"
    assert "; but here it is the hotter settings that transfer better." in one.sentence


def test_a_setting_of_many_seeds_does_not_outvote_the_others(tmp_path):
    """Over settings the hotter transfer a little worse; over runs, most of them of one setting, they would transfer better."""
    for place, (temperature, transfer) in enumerate(((1, 0.6), (10, 0.9), (100, 0.5), (1000, 0.6))):
        for seed in range(20 if place == 0 else 1):
            write(tmp_path / f"{place}-{seed}", 1 - transfer, 1 - transfer + 0.3, temperature=temperature, seed=seed)
    (one,) = found(tmp_path).relations
    assert (one.status, len(one.settings), len(one.points)) == ("present", 4, 23)
    heat, kept = zip(*((np.log(point.temperature), point.transfer) for point in one.points))
    assert np.corrcoef(heat, kept)[0, 1] > 0


def test_intervals_are_over_seeds(tmp_path):
    (one,) = found(sweep(tmp_path, 0.5)).relations
    assert [at.label for at in one.settings] == ["T = 1", "T = 10", "T = 100", "T = 1000"]
    for at in one.settings:
        values = [point.transfer for point in one.points if point.setting == at.label]
        low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
        assert (at.transfer.mean, at.transfer.low, at.transfer.high) == pytest.approx((np.mean(values), low, high), rel=1e-3)
        assert at.auroc.kind == "95 % t-interval, 3 seeds"


def test_intervals_end_where_their_numbers_do(tmp_path):
    for seed, (rho, auroc) in enumerate(((0.0, 1.0), (0.0, 1.0), (0.9, 0.2))):
        write(tmp_path / str(seed), rho, auroc, seed=seed)
    some = found(tmp_path)
    ((at,),) = (one.settings for one in some.relations)
    assert (at.transfer.mean, at.auroc.mean) == pytest.approx((0.7, 2.2 / 3))
    assert (at.transfer.low, at.transfer.high, at.auroc.low, at.auroc.high) == (0, 1, 0, 1)
    assert "0.733 [0.000, 1.000]" in shown(some)
    assert "cut to [0, 1]" in " ".join(shown(some).split())


def test_one_seed_has_no_interval(tmp_path):
    some = found(sweep(tmp_path, 0.5, seeds=1, noise=0))
    assert {at.transfer.count for at in some.relations[0].settings} == {1}
    text = shown(some)
    assert "one seed for each setting, so no intervals" in text
    assert "│ T = 1    │ 1     │ 0.800   │ 0.625 │ yes" in text


def test_correlations_are_those_of_scipy(tmp_path):
    (one,) = found(sweep(tmp_path, 0.1)).relations
    x, y = (
        [np.mean([getattr(p, column) for p in one.points if p.temperature == heat]) for heat in (1, 10, 100, 1000)]
        for column in ("transfer", "auroc")
    )
    linear = stats.pearsonr(x, y)
    assert one.pearson.value == pytest.approx(linear.statistic)
    assert (one.pearson.low, one.pearson.high) == pytest.approx(tuple(linear.confidence_interval(0.95)), rel=1e-6)
    assert one.spearman.value == pytest.approx(stats.spearmanr(x, y).statistic)


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=4, max_size=12))
def test_rank_correlation_with_ties_is_that_of_scipy(pairs):
    x, y = zip(*pairs)
    one = advise.spearman(x, y)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert one is advise.pearson(x, y) is None
        return
    assert one.value == pytest.approx(stats.spearmanr(x, y).statistic)
    assert -1 <= one.low <= one.value + 1e-12
    assert one.value - 1e-12 <= one.high <= 1


def test_a_correlation_needs_four_pairs_that_differ():
    assert advise.pearson([1, 2, 3], [3, 1, 2]) is advise.spearman([1, 2, 3], [3, 1, 2]) is None
    assert advise.pearson([1, 1, 1, 1], [3, 1, 2, 4]) is None
    assert advise.pearson([0.0, 1e-200, 2e-200, 3e-200], [3, 1, 2, 4]) is None  # squares are 0
    assert advise.pearson([1, 2, 3, 4], [-2, -4, -6, -8]) == advise.Correlation(-1.0, -1.0, -1.0)


def test_fishers_interval_covers_where_a_bootstrap_does_not():
    """Why settings are not resampled: of samples of 6 with a correlation of -0.9, its interval holds that too rarely."""
    generator = np.random.default_rng(0)
    r, n, count = -0.9, 6, 600
    held = np.zeros(2)
    for _ in range(count):
        x, noise = generator.standard_normal((2, n))
        y = r * x + np.sqrt(1 - r * r) * noise
        one = advise.pearson(x.tolist(), y.tolist())
        index = generator.integers(0, n, (300, n))
        a, b = (v[index] - v[index].mean(1, keepdims=True) for v in (x, y))
        again = (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1) + 1e-300)
        low, high = np.quantile(again, (0.025, 0.975))
        held += [one.low <= r <= one.high, low <= r <= high]
    assert held[0] / count > 0.93 > 0.91 > held[1] / count


@pytest.mark.parametrize(("settings", "seeds"), [(4, 3), (6, 3), (6, 10)])
def test_settings_that_have_nothing_to_do_with_each_other_seldom_seem_to(settings, seeds):
    """Why settings are correlated and not runs: seeds of one setting share what it does to either number."""
    generator = np.random.default_rng(settings + seeds)
    count, wrong = 400, np.zeros(2)
    for _ in range(count):
        does, chance = generator.standard_normal((settings, 1, 2)), generator.standard_normal((settings, seeds, 2))
        values = 0.5 + 0.05 * does + 0.02 * chance
        one = relation._relation([
            advise.Point("", "", f"T = {at}", float(at + 1), seed, "svhn", "neco", *values[at, seed].tolist())
            for at in range(settings) for seed in range(seeds)
        ])  # fmt: skip
        over_runs = advise.pearson(*values.reshape(-1, 2).T.tolist())
        wrong += [not r.low <= 0 <= r.high for r in (one.pearson, over_runs)]
        assert (one.status == "unclear") == (one.pearson.low <= 0 <= one.pearson.high)
    assert wrong[0] / count <= 0.08 < 0.25 < wrong[1] / count


def test_equal_settings_share_the_front(tmp_path):
    for temperature, rho, auroc in ((1, 0.2, 0.7), (2, 0.2, 0.7), (3, 0.2, 0.6), (4, 0.1, 0.5)):
        write(tmp_path / str(temperature), rho, auroc, temperature=temperature)
    (one,) = found(tmp_path).relations
    assert [at.front for at in one.settings] == [True, True, False, True]


def test_equal_settings_give_no_correlation(tmp_path):
    """Whatever the number of seeds: the mean of three times 0.1 is not 0.1 in floats."""
    for temperature, seeds in ((1, 1), (2, 2), (3, 3), (4, 6)):
        for seed in range(seeds):
            write(tmp_path / f"{temperature}-{seed}", 0.1 * temperature, 0.1, temperature=temperature, seed=seed)
    (one,) = found(tmp_path).relations
    assert (one.status, one.word) == ("alone", "No verdict")
    assert one.sentence.startswith("4 settings (12 runs) cannot say")
    assert "one of the two is the same in all of them" in one.sentence


@pytest.mark.parametrize(
    ("settings", "seeds", "over"), [(1, 1, "1 setting (1 run)"), (1, 5, "1 setting (5 runs)"), (3, 4, "3 settings (12 runs)")]
)
def test_fewer_than_four_settings_are_tabled_without_a_verdict(tmp_path, settings, seeds, over):
    """However many seeds they have, and however well those agree."""
    for at in range(settings):
        for seed in range(seeds):
            more = at / 10 + seed / 100
            write(tmp_path / f"{at}-{seed}", 0.2 + more, 0.7 + more, temperature=10**at, seed=seed)
    some = found(tmp_path)
    (one,) = some.relations
    assert (one.status, one.pearson, one.spearman) == ("alone", None, None)
    both = "transfer and NECO detection on svhn move together"
    assert one.sentence == f"{over} cannot say how {both}: a correlation needs 4 settings."
    assert "a correlation needs 4 settings" in shown(some)


def test_nets_and_data_are_kept_apart(tmp_path):
    """Each alone has the trade-off; thrown together they would not."""
    sweep(tmp_path / "a", 0.5)
    sweep(tmp_path / "b", 0.5, data="digits", net=Net(width=64))
    sweep(tmp_path / "c", 0.5, data="digits", net=Net(width=32))
    some = found(*(tmp_path / name for name in "abc"))
    assert [one.subject for one in some.relations] == [
        "mlp on runes", "mlp on digits, net.width = 64", "mlp on digits, net.width = 32",
    ]  # fmt: skip
    assert [len(one.points) for one in some.relations] == [12, 12, 12]
    assert {one.status for one in some.relations} == {"present"}


def test_how_weights_start_is_a_setting_of_one_net(tmp_path):
    for place, scale in enumerate((1.0, 0.5, 0.1, 0.01)):
        write(tmp_path / str(place), 0.1 * place, 0.6 + 0.1 * place, net=Net(head_init_scale=scale), train={"lr": 0.1 + place})
    (one,) = found(tmp_path).relations
    assert len(one.points) == len(one.settings) == 4
    assert one.settings[1].label == "T = 1, net.head_init_scale = 0.5, train.lr = 1.1"


def test_probes_of_another_kind_are_another_relation(tmp_path):
    write(tmp_path / "ridge", 0.2, 0.7)
    write(tmp_path / "logistic", 0.3, 0.7, probes=("logistic",))
    assert len(found(tmp_path).relations) == 2


def test_a_run_that_was_only_observed_anew_counts_once(tmp_path):
    write(tmp_path / "a", 0.2, 0.7)
    write(tmp_path / "b", 0.2, 0.7, measures=("ood_drop", "auroc"))
    (one,) = found(tmp_path).relations
    assert len(one.points) == one.settings[0].auroc.count == 1


@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        ({"without": ("ood_drop",)}, f"cannot weigh svhn: {relation.NO_DROP}"),
        ({"without": ("auroc",)}, "has no rows of auroc"),
        ({"without": ("auroc", "ood_drop")}, "has no rows of ood_drop or auroc"),
        ({"finish": False}, "is unfinished"),
        ({"classes": 20, "right": 0.06}, "has not learned (training accuracy 6.0%)"),
    ],
)
def test_a_run_without_the_numbers_is_named_and_left_out(tmp_path, lacking, words):
    write(tmp_path / "whole", 0.2, 0.7)
    write(tmp_path / "part", 0.3, 0.8, temperature=10, **lacking)
    with pytest.warns(UserWarning, match=re.escape(f"part is left out: it {words}")):
        some = found(tmp_path)
    assert [point.run for point in some.points] == ["whole"]
    assert some.left_out == (f"part is left out: it {words}",)
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(InputError, match="none of 1 runs learned and has both.*--ood NAME"),
    ):
        found(tmp_path / "part")
    with pytest.raises(InputError, match="none of 0 runs"):
        advise.tradeoff([])


def test_sets_of_two_kinds_do_not_meet(tmp_path):
    rows = [Row("a/test", "", 0, "", "ood_drop", "", 0.2), Row("b/test", "", 0, "", "auroc", "detector=neco", 0.7)]
    record_run(tmp_path / "run", Run(), {0: rows})
    with pytest.warns(UserWarning, match="cannot weigh b: it has no ood_drop"), pytest.raises(InputError, match="none of 1"):
        found(tmp_path)


def write_sets(path: Path, **right: float | None) -> None:
    """Sets by what probes get right of them, guessing 10 % and 13 % with luck; None: detectors alone were shown the set."""
    rows = [Row(f"{ood}/test", "", 0, "", "auroc", "detector=neco", 0.7) for ood in right]
    for ood, share in right.items():
        if share is not None:
            rows.append(Row(f"{ood}/test", "head", 1, "", "probe_accuracy", "probe=ridge,guessing=0.1,tested=900", share))
            rows.append(Row(f"{ood}/test", "", 0, "", "ood_drop", "probe=ridge", 0.2))
    record_run(path, Run(), {0: rows})


@pytest.mark.parametrize(("right", "why"), [(0.12, "its probes do no better than guessing"), (None, relation.NO_DROP)])
def test_a_set_that_cannot_be_weighed_is_named_and_left_out(tmp_path, right, why):
    write_sets(tmp_path / "both", photos=right, digits=0.9)
    with pytest.warns(UserWarning, match=f"^photos is left out of both: {why}$"):
        some = found(tmp_path)
    assert [point.ood for point in some.points] == ["digits"]
    assert some.left_out == (f"photos is left out of both: {why}",)
    with pytest.raises(InputError, match=f"^photos is left out of both: {why}$"):
        some.only(ood="photos")
    write_sets(tmp_path / "none", photos=right)
    with (
        pytest.warns(UserWarning, match=f"^none is left out: it cannot weigh photos: {why}$"),
        pytest.raises(InputError, match="none of 1 runs .* a set with training images and labels; thermocline report shows"),
    ):
        found(tmp_path / "none")


def test_neco_is_shown_and_the_others_are_listed(tmp_path):
    some = found(sweep(tmp_path, 0.5, detectors=("msp", "neco,dim=0.9", "neco,dim=50")))
    assert [one.detector for one in some.relations] == ["msp", "neco", "neco dim=50"]
    assert [one.detector for one in some.headline] == ["neco"]
    text = shown(some)
    assert "mlp on runes: svhn, neco" in text
    assert "mlp on runes: every detector" in text
    assert f"│ neco dim=50 │ {some.relations[2].pearson} │" in text
    few = found(sweep(tmp_path / "few", 0.5, temperatures=(1, 10), detectors=("msp", "neco,dim=0.9")))
    assert "every detector" not in shown(few), "there is no correlation to list"
    assert "Every detector" not in advise.save(few, tmp_path / "few.html").read_text()
    only = some.only(detector="MSP")
    assert "every detector" not in shown(only)
    assert "msp detection on svhn" in shown(only)
    with pytest.raises(InputError, match="unknown detector 'necco'; did you mean 'neco'"):
        some.only(detector="necco")
    with pytest.raises(InputError, match="unknown OOD set 'shvn'"):
        some.only(ood="shvn")
    apart = [replace(one, ood=ood) for one, ood in zip(some.relations, ("svhn", "digits"))]
    with pytest.raises(InputError, match="no run has both: detector msp on digits"):
        replace(some, relations=tuple(apart)).only(detector="msp", ood="digits")


def test_files_say_the_same(tmp_path):
    some = found(sweep(tmp_path / "runs", 0.5, detectors=("neco", "msp")))
    for name in ("page.html", "figure.svg", "figure.PNG", "figure.pdf", "deep/points.csv", "points.parquet"):
        assert advise.save(some, tmp_path / name).stat().st_size > 500
    rows = pyarrow.parquet.read_table(tmp_path / "points.parquet")
    assert rows.num_rows == 24
    assert rows.column_names == [*advise.Point.__dataclass_fields__, "mean_transfer", "mean_auroc", "front"]
    means = {(row["mean_transfer"], row["mean_auroc"]) for row in rows.to_pylist() if row["detector"] == "neco"}
    assert means == {(at.transfer.mean, at.auroc.mean) for at in some.relations[0].settings}
    assert "4 settings, 12 runs, 3 seeds" in (tmp_path / "page.html").read_text()
    assert pyarrow.csv.read_csv(tmp_path / "deep/points.csv").to_pylist()[0] == pytest.approx(rows.to_pylist()[0])
    drawing = xml.etree.ElementTree.parse(tmp_path / "figure.svg").getroot()
    assert len(list(drawing.iter("{http://www.w3.org/2000/svg}path"))) > 10
    assert (tmp_path / "figure.PNG").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="end its name in one of .html, .svg"):
        advise.save(some, tmp_path / "page.docx")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write"):
        advise.save(some, tmp_path / "file/page.html")


def test_the_page_is_drawn_and_hostile_names_are_text(browser, tmp_path):
    sweep(tmp_path / "runs", 0.5, data=HOSTILE, ood=HOSTILE + "ood", detectors=("neco", HOSTILE.replace("=", "")))
    write(tmp_path / "runs" / HOSTILE.replace("/", ""), 0.1, 0.9, finish=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        some = found(tmp_path / "runs")
    page = show(browser, advise.save(some, tmp_path / "page.html"))
    assert page.locator("script").count() == 3
    assert page.locator("img").count() == 0
    assert page.locator(".note").inner_text().startswith(HOSTILE.replace("/", ""))
    assert page.locator(".chip.present").inner_text() == "✓ Trade-off"
    assert HOSTILE + "ood" in page.locator(".verdict p").inner_text()
    assert page.locator(".chart .role-mark.mark-symbol path").count() == 16  # twelve runs, four means
    assert page.locator(".chart .role-mark.mark-rule line").count() == 8
    assert page.locator(".chart .mark-line path").count() == 1
    page.locator(".chart .role-mark.mark-symbol path").last.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert page.heard == []
    phone = show(browser, tmp_path / "page.html", width=390)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    assert "<script" not in advise.save(some, tmp_path / "figure.svg").read_text()
    assert "<img src=x" in shown(some)


def test_the_verb_prints_the_table_and_the_verdict(tmp_path):
    sweep(tmp_path / "runs", 0.5)

    def tradeoff(*words: str, code: int = 0) -> str:
        return " ".join(thermocline("tradeoff", *words, cwd=tmp_path, code=code).split())

    said = tradeoff("runs", "-o", "page.html")
    assert (
        "Trade-off: Over 4 settings (12 runs), transfer and NECO detection on svhn move against each other: r = -1.00 [" in said
    )
    assert "trade-off: page.html" in said
    assert (tmp_path / "page.html").exists()
    assert "error: unknown detector 'nceo'; did you mean 'neco'?" in tradeoff("runs", "--detector", "nceo", code=2)
    assert "error: page.doc does not say what to write" in tradeoff("runs", "-o", "page.doc", code=2)
    assert "no run directory at nowhere" in tradeoff("nowhere", code=2)
    broken = next(path for path in sorted((tmp_path / "runs").rglob("spec.json")))
    broken.write_text("{")
    said = tradeoff("runs")
    assert f"warning: left out: {broken.relative_to(tmp_path).parent}" in said
    assert "(11 runs)" in said


def test_paths_are_read_and_runs_taken_as_they_are(tmp_path):
    folder = sweep(tmp_path / "runs", slope=0.5)
    runs = record.load_runs(folder)
    assert advise.tradeoff(str(folder)) == advise.tradeoff([folder]) == advise.tradeoff(runs)
    assert report.summary(folder) == report.summary([str(run.path) for run in runs]) == report.summary(iter(runs))
