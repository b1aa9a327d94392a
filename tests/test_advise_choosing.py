"""Which setting for which goal: made-up runs with a known answer, scipy's intervals, false alarms, and the verb."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import printed, thermocline
from report_cases import record_run
from scipy import stats

from thermocline import advise, record
from thermocline.advise import Choice, Goal, Option, choosing
from thermocline.record import Row
from thermocline.spec import Data, InputError, Net, Run, Train

Numbers = dict[str, float]


def write(
    path: Path, numbers: Numbers, *, temperature: float = 1, seed: int = 0, train: dict | None = None, learned: bool = True,
    finish: bool = True, detectors: Numbers | None = None, probe: float | None = None,
) -> None:  # fmt: skip
    """A run with the numbers that goals are judged by: accuracy, effective_depth, ood_drop, ece; and AUROCs by detector.

    `probe`: the accuracy of one, where guessing gets a tenth.
    """
    spec = Run(Data("runes", 10, ood=("svhn",)), Net(), Train(temperature=temperature, **(train or {})), seed=seed)
    places = {"accuracy": ("test", ""), "effective_depth": ("test", "probe=ridge"), "ood_drop": ("svhn/test", "probe=ridge"),
              "ece": ("test", "at=fitted,scheme=equal-width")}  # fmt: skip
    rows = [Row(places[name][0], "", 0, "", name, places[name][1], value) for name, value in numbers.items()]
    rows += [Row("svhn/test", "", 0, "", "auroc", f"detector={name}", value) for name, value in (detectors or {}).items()]
    rows += [Row("test", "head", 1, "", "probe_accuracy", "probe=ridge,guessing=0.1,tested=900", probe)] if probe else []
    rows.append(Row("train", "", 0, "", "accuracy", "", 0.99 if learned else 0.1))
    record_run(path, spec, {100: rows}, finish=finish)


def sweep(folder: Path, shifts: dict[float, Numbers], *, seeds: int = 4, noise: float = 0.002, **more) -> Path:
    """Seeds share what they do to a number, so that only differences are precise."""
    generator = np.random.default_rng(0)
    common = 0.05 * generator.standard_normal(seeds)
    base = {"accuracy": 0.8, "effective_depth": 0.5, "ood_drop": 0.3, "ece": 0.2}
    for temperature, shift in shifts.items():
        for seed in range(seeds):
            own = {name: value + common[seed] + shift.get(name, 0.0) + noise * generator.standard_normal()
                   for name, value in base.items()}  # fmt: skip
            write(folder / f"T{temperature:g}s{seed}", own, temperature=temperature, seed=seed, **more)
    return folder


def test_advice_follows_the_numbers(tmp_path):
    hot = {"accuracy": 0.05, "ood_drop": 0.2, "effective_depth": 0.0, "ece": -0.009}
    found = advise.advise(sweep(tmp_path, {1: {}, 10: hot}))
    assert [one.goal.title for one in found.choices] == ["accuracy", "few layers", "transfer, svhn", "calibration"]
    assert [one.change.status for one in found.choices] == ["better", "same", "worse", "unclear"]
    assert [one.words for one in found.choices] == [
        "take T = 10",
        "either: no difference that counts",
        "stay at T = 1",
        "not settled",
    ]
    assert [one.setting for one in found.choices] == ["T = 10", None, "T = 1", None]
    (costs,) = advise.besides(found.choices)
    assert costs.startswith("What T = 10 costs: OOD drop, svhn +0.20 [+0.")
    assert "ECE" not in costs
    said = printed(advise.told(found))
    assert "mlp on runes, data.classes = 10" not in said  # nothing to tell it from
    assert "high test accuracy" in said
    assert "low OOD drop, svhn" in said
    with pytest.raises(KeyError, match="'speed'; there are: 'accuracy', 'few layers', 'transfer, "):
        found["speed"]
    assert repr(found).startswith(
        "Advice(accuracy: take T = 10; few layers: either: no difference that counts; transfer, svhn: "
    )


def test_the_best_layer_is_judged_by_what_it_knows_not_by_what_is_lost(tmp_path):
    """A hot net that loses more by its last layer may know as much of other data at its best."""
    for temperature, layers in ((1, (0.5, 0.8, 0.6)), (10, (0.8, 0.6, 0.3))):
        for seed in range(3):
            spec = Run(Data("runes", 10, ood=("svhn",)), Net(), Train(temperature=temperature), seed=seed)
            kind = "probe=ridge,guessing=0.1,tested=900"
            rows = [Row("svhn/test", f"layer{depth}", depth, "", "probe_accuracy", kind, right + 0.01 * seed)
                    for depth, right in enumerate(layers, 1)]  # fmt: skip
            rows.append(Row("svhn/test", "", 0, "", "ood_drop", "probe=ridge", 1 - layers[-1] / max(layers)))
            rows.append(Row("train", "", 0, "", "accuracy", "", 0.99))
            record_run(tmp_path / f"T{temperature}s{seed}", spec, {100: rows})
    found = advise.advise(tmp_path)
    assert found["transfer, svhn"].words == "stay at T = 1"
    assert found["best layer, svhn"].words == "either: no difference that counts"
    said = " ".join(printed(advise.told(found)).split())
    assert "Layers are the best of those measured. Settings and layers were chosen on the images they are judged by." in said


def test_the_interval_is_that_of_a_paired_test_at_the_level_of_all_comparisons(tmp_path):
    sweep(tmp_path, {1: {}, 10: {"accuracy": 0.01}, 100: {"accuracy": 0.02}, 1000: {"accuracy": -0.3}}, noise=0.01)
    choice = advise.advise(tmp_path)["accuracy"]
    assert choice.other == Option("T = 100")
    values = {run.spec.train.temperature: [] for run in record.load_runs(tmp_path)}
    for run in record.load_runs(tmp_path):
        (row,) = [r for r in run.rows.to_pylist() if r["measure"] == "accuracy" and r["split"] == "test"]
        values[run.spec.train.temperature].append((run.spec.seed, row["value"]))
    after, before = ([value for _, value in sorted(values[at])] for at in (100, 1))
    wanted = stats.ttest_rel(after, before).confidence_interval(1 - 0.05 / 3)
    assert (choice.change.by.low, choice.change.by.high) == pytest.approx((wanted.low, wanted.high), rel=1e-3)
    # What else changes was not chosen, and has its plain interval.
    choice = advise.advise(tmp_path)["few layers"]
    (beside,) = [change for change in choice.besides if change.goal.title == "accuracy"]
    after = [value for _, value in sorted(values[float(choice.other.setting.removeprefix("T = "))])]
    wanted = stats.ttest_rel(after, before).confidence_interval(0.95)
    assert (beside.by.low, beside.by.high) == pytest.approx((wanted.low, wanted.high), rel=1e-3)


GOAL = Goal("a", "a", "any", +1, 0.0, lambda one: {})


def chosen(values: np.ndarray, usual: int = 1) -> Choice:
    """Of (settings, detectors, seeds), the first settings being the usual ones."""
    options = {
        Option(f"T = {s}", str(d)): dict(enumerate(by_seed)) for s, some in enumerate(values) for d, by_seed in enumerate(some)
    }
    first = {f"T = {s}" for s in range(usual)}
    ours, others = ({at: v for at, v in options.items() if (at.setting in first) == own} for own in (True, False))
    return choosing._choice("net", GOAL, ours, others, [])


@pytest.mark.parametrize(("settings", "detectors", "seeds"), [(2, 1, 3), (6, 1, 3), (6, 1, 6), (4, 17, 3), (4, 17, 6)])
def test_settings_that_are_alike_seldom_seem_better(settings, detectors, seeds):
    """By rights in 2.5 % of cases, of which 600 give 4.5 % about once in a thousand times."""
    generator = np.random.default_rng(1)
    statuses = [chosen(generator.standard_normal((settings, detectors, seeds))).change.status for _ in range(600)]
    assert statuses.count("better") / 600 < 0.045


@pytest.mark.parametrize("seeds", [3, 6])
def test_nor_does_the_best_of_many_ways_to_stay(seeds):
    """Six usual settings and one other, all alike."""
    generator = np.random.default_rng(1)
    statuses = [chosen(generator.standard_normal((7, 1, seeds)), usual=6).change.status for _ in range(600)]
    assert statuses.count("worse") / 600 < 0.045


def test_without_paying_for_the_choice_they_would_more_often():
    generator = np.random.default_rng(1)
    seen = []
    for _ in range(600):
        values = generator.standard_normal((6, 1, 6))
        best = int(values[1:, 0].mean(1).argmax()) + 1
        seen.append(stats.ttest_rel(values[best, 0], values[0, 0]).confidence_interval(0.95).low > 0)
    assert np.mean(seen) > 0.06


def test_an_effect_that_is_there_is_found():
    generator = np.random.default_rng(1)
    values = generator.standard_normal((200, 4, 1, 10))
    values[:, 2] += 3
    found = [chosen(one) for one in values]
    assert np.mean([one.setting == "T = 2" for one in found]) > 0.95


def test_each_side_has_its_best_detector(tmp_path):
    for seed in range(3):
        wobble = 0.001 * seed
        write(tmp_path / f"c{seed}", {}, seed=seed, detectors={"neco": 0.60 + wobble, "energy": 0.80 - wobble, "msp": 0.70})
        write(tmp_path / f"h{seed}", {}, seed=seed, temperature=50, detectors={"neco": 0.75, "energy": 0.5, "msp": 0.70})
    choice = advise.advise(tmp_path)["detection, svhn"]
    assert (choice.usual, choice.other) == (Option("T = 1", "energy"), Option("T = 50", "neco"))
    assert choice.words == "stay at T = 1"  # though by NECO alone heat would win
    assert "0.799, energy" in printed(advise.told(advise.advise(tmp_path)))


@pytest.mark.parametrize(
    ("runs", "usual"),
    [
        ([(1, {}), (10, {})], "T = 1"),
        ([(0.5, {}), (1, {}), (10, {})], "T = 1"),
        ([(5, {}), (10, {})], "T = 5"),
        ([(1, {"temperature_schedule": "hold-norm", "temperature_target": 0.1}), (5, {}), (10, {})], "T = 5"),
    ],
)
def test_usual_is_one_or_the_coldest_that_stays(tmp_path, runs, usual):
    for number, (temperature, train) in enumerate(runs):
        write(tmp_path / str(number), {"accuracy": 0.5}, temperature=temperature, train=train)
    assert advise.advise(tmp_path)["accuracy"].usual.setting.startswith(usual)


@pytest.mark.parametrize(
    ("train", "label"),
    [
        ({"temperature_schedule": "step", "temperature_end": 500.0}, "T = 7, then 500 from 50% on"),
        ({"temperature_schedule": "step", "temperature_end": 5.0, "temperature_at": 0.505}, "T = 7, then 5 from 50.5% on"),
        ({"temperature_schedule": "cosine", "temperature_end": 0.5}, "T = 7 to 0.5, cosine"),
        ({"temperature_schedule": "learned"}, "T = 7, learned"),
        ({"lr": 0.1 + 0.2}, "T = 7, train.lr = 0.3"),
    ],
)
def test_a_setting_is_named_by_what_was_done(tmp_path, train, label):
    write(tmp_path / "a", {"accuracy": 0.5})
    write(tmp_path / "b", {"accuracy": 0.5}, temperature=7, train=train)
    assert advise.advise(tmp_path)["accuracy"].other.setting == label


def test_the_best_of_the_usual_is_what_others_must_beat(tmp_path):
    for lr, right in ((0.1, 0.7), (0.3, 0.9)):
        write(tmp_path / f"c{lr}", {"accuracy": right}, train={"lr": lr})
        write(tmp_path / f"h{lr}", {"accuracy": 0.8}, temperature=10, train={"lr": lr})
    choice = advise.advise(tmp_path)["accuracy"]
    assert choice.usual.setting == "T = 1, train.lr = 0.3"
    assert choice.change.by.mean == pytest.approx(-0.1)
    assert choice.words == "not settled: one seed"


def test_settings_with_fewer_seeds_are_named_where_they_would_cost_the_others_theirs(tmp_path):
    sweep(tmp_path / "runs", {1: {}, 10: {}}, seeds=4)
    sweep(tmp_path / "runs", {100: {}}, seeds=2)
    with pytest.warns(UserWarning, match="T = 100 is left out of mlp on runes: it lacks seeds that the others have"):
        found = advise.advise(tmp_path / "runs")
    assert {one.seeds for one in found.choices} == {4}
    sweep(tmp_path / "runs", {1000: {}}, seeds=3)
    with pytest.warns(UserWarning, match="T = 100 is left out"):
        assert {one.seeds for one in advise.advise(tmp_path / "runs").choices} == {3}  # which the other three share
    assert {one.words for one in advise.advise(sweep(tmp_path / "two", {1: {}, 10: {}}, seeds=2)).choices} == {
        "not settled: two seeds"
    }


@pytest.mark.parametrize(("cold", "hot", "seeds"), [(2, 3, 2), (1, 3, 1), (4, 2, 2)])
def test_with_few_seeds_on_one_side_there_is_still_a_comparison(tmp_path, cold, hot, seeds):
    sweep(tmp_path, {1: {}}, seeds=cold)
    sweep(tmp_path, {10: {}, 100: {}}, seeds=hot)
    assert {one.seeds for one in advise.advise(tmp_path).choices} == {seeds}


def test_seeds_apart_are_said_to_be_and_do_not_hide_those_in_common(tmp_path):
    for temperature, seeds in {1: range(6), 10: range(3), 100: range(3, 6)}.items():
        for seed in seeds:
            write(tmp_path / "runs" / f"T{temperature}s{seed}", {"accuracy": 0.5}, temperature=temperature, seed=seed)
    with pytest.warns(UserWarning, match="T = 100 is left out of mlp on runes: it lacks seeds that the others have"):
        assert advise.advise(tmp_path / "runs")["accuracy"].seeds == 3
    write(tmp_path / "apart" / "c", {"accuracy": 0.5}, seed=0)
    write(tmp_path / "apart" / "h", {"accuracy": 0.5}, seed=1, temperature=10)
    warned = pytest.warns(UserWarning, match="mlp on runes is left out: no seed was measured both")
    with pytest.raises(InputError, match="no two temperatures"), warned:
        advise.advise(tmp_path / "apart")


def test_a_number_that_one_run_lacks_costs_neither_its_setting_nor_other_goals(tmp_path):
    for seed in range(3):
        more = {"knn": 0.99} if seed == 0 else {}
        write(tmp_path / f"c{seed}", {"accuracy": 0.8}, seed=seed, detectors={"neco": 0.6, "energy": 0.8} | more)
        right = {} if seed == 1 else {"accuracy": 0.8}
        write(tmp_path / f"h{seed}", right, seed=seed, temperature=50, detectors={"neco": 0.75, "energy": 0.5})
    with pytest.warns(UserWarning, match="is left out") as said:
        found = advise.advise(tmp_path)
    assert [str(one.message) for one in said] == [
        "knn at T = 1 is left out of mlp on runes (detection, svhn): it lacks seeds that the others have"
    ]
    assert (found["detection, svhn"].usual, found["detection, svhn"].seeds) == (Option("T = 1", "energy"), 3)
    assert found["accuracy"].words == "not settled: two seeds"


def test_depth_by_probes_that_learned_nothing_is_no_goal(tmp_path):
    for temperature in (1, 10):
        write(tmp_path / f"{temperature}", {"accuracy": 0.8, "effective_depth": 0.5}, temperature=temperature, probe=0.1)
    assert [one.goal.title for one in advise.advise(tmp_path).choices] == ["accuracy"]


def test_what_was_not_set_has_no_place_in_a_name(tmp_path):
    cooled = {"temperature_schedule": "exponential", "temperature_end": 1.0}
    write(tmp_path / "c", {"accuracy": 0.5})
    write(tmp_path / "h", {"accuracy": 0.6}, temperature=10, train=cooled)
    choice = advise.advise(tmp_path)["accuracy"]
    assert choice.usual.setting == "T = 1"
    assert choice.other.setting == "T = 10 to 1, exponential"


def test_nets_that_did_not_learn_or_finish_are_left_out_and_named(tmp_path):
    sweep(tmp_path / "runs", {1: {}, 10: {}}, seeds=3)
    write(tmp_path / "runs" / "idle", {"accuracy": 1.0}, temperature=99, learned=False)
    write(tmp_path / "runs" / "going", {"accuracy": 1.0}, temperature=98, finish=False)
    with pytest.warns(UserWarning, match="(going|idle) is left out") as said:
        found = advise.advise(tmp_path / "runs")
    assert {"T = 1", "T = 10"} == {option.setting for one in found.choices for option in (one.usual, one.other)}
    assert [str(one.message) for one in said] == list(found.left_out)
    assert sorted(found.left_out) == [
        "going is left out: it is unfinished", "idle is left out: it has not learned (training accuracy 10.0%)"
    ]  # fmt: skip


def test_a_setting_of_which_some_runs_did_not_learn_is_advised_with_that_said(tmp_path):
    sweep(tmp_path, {1: {}, 10: {"accuracy": 0.05}})
    write(tmp_path / "idle", {"accuracy": 1.0}, temperature=10, seed=8, learned=False)
    write(tmp_path / "stopped", {}, temperature=10, seed=9, learned=False, finish=False)
    (tmp_path / "stopped" / "provenance.json").write_text('{"stopped": "loss became nan at step 7"}')
    with pytest.warns(UserWarning, match="(idle|stopped) is left out"):
        found = advise.advise(tmp_path)
    assert found["accuracy"].words == "take T = 10 (2 of 6 runs did not learn)"
    assert found["accuracy"].seeds == 4
    assert "stopped is left out: it stopped itself: loss became nan at step 7" in found.left_out


def test_where_there_is_nothing_to_choose_it_says_so(tmp_path):
    sweep(tmp_path, {1: {}}, seeds=2)
    warned = pytest.warns(UserWarning, match="all its runs that can be judged have one temperature")
    with pytest.raises(InputError, match="no two temperatures"), warned:
        advise.advise(tmp_path)


def test_the_verb_says_what_to_train_with(tmp_path):
    sweep(tmp_path / "runs", {1: {}, 10: {"accuracy": 0.05, "ood_drop": 0.2}})
    said = " ".join(thermocline("advise", "runs", cwd=tmp_path).split())
    assert "mlp on runes, 4 seeds" in said
    assert "take T = 10" in said
    assert "What T = 10 costs: OOD drop, svhn +0.20" in said
    write(tmp_path / "runs" / "nan", {}, temperature=10, seed=9, learned=False, finish=False)
    (tmp_path / "runs" / "nan" / "provenance.json").write_text('{"stopped": "loss became nan at step 7"}')
    assert thermocline("advise", "runs", cwd=tmp_path).count("stopped itself") == 1
    assert "no run directory at nowhere" in thermocline("advise", "nowhere", cwd=tmp_path, code=2)
    assert "sweep --over train.temperature" in thermocline("advise", "runs/T1s0", cwd=tmp_path, code=2)
