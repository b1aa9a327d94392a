"""Claims meet rows: what is read, what is missing, what is written; and the claims a CPU can check, in small."""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from commands import printed
from report_cases import record_run

from thermocline import record, run, spec
from thermocline.experiments import _claims, _runes
from thermocline.experiments._claims import Arm, Claim, Cost, Curve, Quantity
from thermocline.record import Row
from thermocline.reproduce import (
    Experiment,
    Shelf,
    catalogue,
    computed,
    continuing,
    figure,
    markdown,
    output,
    quantities,
    study,
    tables,
    verdict,
    webpage,
    wording,
)
from thermocline.reproduce.console import glance, terminal
from thermocline.reproduce.output import write
from thermocline.reproduce.verdict import ABSENT, DIRECTION, HOLDS, UNDECIDED
from thermocline.spec import Data, Net, Run, Train

ROOT = Path(__file__).parents[1]
TABLE = catalogue.load("table1/cifar100-resnet18")


def rows(depth: float, drop: float, rank: float) -> list[Row]:
    return [
        Row("test", "", 0, "", "effective_depth", "probe=ridge,penalty=0.001,threshold=0.99", depth),
        Row("test", "", 0, "", "effective_depth", "probe=logistic,passes=30,threshold=0.99", 0.123),
        Row("svhn/test", "", 0, "", "ood_drop", "probe=ridge,penalty=0.001", drop),
        Row("cifar10/test", "", 0, "", "ood_drop", "probe=ridge,penalty=0.001", 0.456),
        *(
            Row("svhn/test", f"layer{layer}", layer, "", "probe_accuracy", "probe=ridge,penalty=0.001", value)
            for layer, value in ((16, 0.8), (17, 0.8 * (1 - drop)), (18, 0.4 * (1 - drop)))
        ),
        Row("train", "head", 18, "flatten", "solution_rank", "of=covariance,rtol=0.001", rank),
        Row("train", "head", 18, "flatten", "solution_rank", "of=features,rtol=0.001", 98.0),
    ]


def put(folder: Path, what: Run, steps: dict[int, list[Row]], *, finish: bool = True) -> None:
    facts = {"data": {"train": "560f193a4d5c"}, "wall_seconds": 90.0, "versions": {"torch": "2.0"}, "source": "abc"}
    record_run(folder / what.name, what, steps, finish=finish, **facts)


def accuracies(begin: float, end: float) -> dict[int, list[Row]]:
    return {step: [Row("train", "", 0, "", "accuracy", "", value)] for step, value in ((0, begin), (10, end))}


def fill(results: Path, runs: Iterable[Run], *, drop: float = 0.5, right: Callable[[Run], float] | None = None) -> Path:
    """As published, and a little off by seed. `drop`: the hot nets'; `right`: what share of training images is at the end."""
    for what in runs:
        hot, off = what.train.temperature > 1, what.seed / 100
        steps = accuracies(0.01, right(what)) if right else {10: []}
        steps[10] += rows(0.83 + off if hot else 1.0, drop - off if hot else 0.19, 59 if hot else 99)
        put(results / TABLE.name, what, steps)
    return results


def words(results: Path, name: str = TABLE.name) -> list[str]:
    return [finding.verdict.word for finding in study(catalogue.load(name), Shelf(results)).findings]


def test_published_numbers_hold_against_themselves(tmp_path: Path) -> None:
    assert words(fill(tmp_path, TABLE.runs)) == [HOLDS] * 4
    assert words(tmp_path, "figure1") == [HOLDS] * 3, "the same runs"
    assert words(tmp_path, "figure2") == [ABSENT] * 3, "the same runs, without these rows"


def test_a_partial_result_says_which_seeds_are_missing(tmp_path: Path) -> None:
    fill(tmp_path, TABLE.runs[:5])
    one = study(TABLE, Shelf(tmp_path))
    assert [finding.verdict.word for finding in one.findings] == [UNDECIDED] * 4
    assert "2 shared seeds; 1 more needed" in one.findings[0].verdict.why
    page = markdown.page(one, figure=False)
    assert "cifar100-resnet18-T100: seed 2" in page
    assert "thermocline reproduce table1/cifar100-resnet18 --data-dir DIR" in page
    put(tmp_path / TABLE.name, TABLE.runs[5], {10: rows(0.8, 0.5, 59)}, finish=False)
    page = markdown.page(study(TABLE, Shelf(tmp_path)), figure=False)
    assert f"{TABLE.runs[5].name}: begun, not finished" in page
    assert words(tmp_path) == [UNDECIDED] * 4, "an unfinished run does not count"


def test_a_run_that_stopped_itself_is_an_outcome(tmp_path: Path) -> None:
    fill(tmp_path, TABLE.runs[:5])
    last = TABLE.runs[5]
    put(tmp_path / TABLE.name, last, {0: rows(0.8, 0.5, 59)}, finish=False)
    assert continuing.missing(TABLE, tmp_path, seeds=0) == {tmp_path / TABLE.name / last.name: last}
    with record.open_run(tmp_path / TABLE.name / last.name, last) as log:
        log.describe({"stopped": "it has not begun to learn"})
    one = study(TABLE, Shelf(tmp_path))
    assert wording.runs(one) == "5 of 6, 1 stopped"
    page = markdown.page(one, figure=False)
    assert f"- `{last.name}`: it has not begun to learn." in page
    assert "What is missing" not in page
    assert not continuing.missing(TABLE, tmp_path, seeds=0), "it would stop again"
    fill(tmp_path, catalogue.seeded(TABLE.runs, 4)[6:])
    assert wording.runs(study(TABLE, Shelf(tmp_path))) == "5 of 6, 1 stopped, 2 more"
    assert Shelf(tmp_path).count(TABLE) == (5, 1, 6)


def stop(folder: Path, what: Run) -> None:
    with record.open_run(folder / what.name, what) as log:
        log.describe({"stopped": "it has not begun to learn"})


def test_an_arm_of_runs_that_all_stopped_was_tried(tmp_path: Path) -> None:
    hot = [what for what in TABLE.runs if what.train.temperature > 1]
    for what in hot:
        stop(tmp_path / TABLE.name, what)
    assert study(TABLE, Shelf(tmp_path)).line == "not run here: 3 of its 6 runs are missing"
    fill(tmp_path, [what for what in TABLE.runs if what not in hot])
    found = study(TABLE, Shelf(tmp_path))
    assert {finding.verdict.why for finding in found.findings} == {"no net of T = 100 learned"}
    for text in (printed(terminal(found)), webpage.write([found], tmp_path / "a.html", results=tmp_path).read_text()):
        assert "it has not begun to learn" in text
        assert "runs it" not in text
    for what in TABLE.runs:
        shutil.rmtree(tmp_path / TABLE.name / what.name)
        stop(tmp_path / TABLE.name, what)
    found = study(TABLE, Shelf(tmp_path))
    assert {finding.verdict.word for finding in found.findings} == {UNDECIDED}
    write([found], Shelf(tmp_path))
    assert "What stopped itself" in (tmp_path / TABLE.name / "README.md").read_text()


@pytest.mark.parametrize("quantity", [_claims.START_NORM, _claims.TEST_ACCURACY])
def test_what_needs_no_learning_was_tried_too_where_all_runs_stopped(tmp_path: Path, quantity: Quantity) -> None:
    """Of such runs nothing is kept, and that is no reason to say that they were not run."""
    one = dataclasses.replace(TABLE, claims=(Claim(quantity, "falls", _claims.COLD_HOT),))
    cold = [what for what in TABLE.runs if what.train.temperature == 1]
    row = Row(quantity.split, "", 0, "", quantity.measure, "", 1.0)
    for what in cold:
        put(tmp_path / TABLE.name, what, {0: [row], 10: [row]})
    assert study(one, Shelf(tmp_path)).findings[0].verdict.word == ABSENT
    for what in TABLE.runs:
        if what not in cold:
            stop(tmp_path / TABLE.name, what)
    (finding,) = study(one, Shelf(tmp_path)).findings
    assert finding.verdict == verdict.Verdict(UNDECIDED, "no net of T = 100 came to its end")


def test_runs_made_before_a_measure_are_not_missing(tmp_path: Path) -> None:
    fill(tmp_path, catalogue.seeded(TABLE.runs, 5))
    found = study(catalogue.load("figure2"), Shelf(tmp_path))
    assert found.line == "not run here: its runs were made before its measures"
    page = markdown.page(found, figure=False)
    assert "runs it" not in page
    assert "`--seeds 10` adds others" in page, "five seeds are there"


def test_what_did_not_learn_is_left_out_and_said(tmp_path: Path) -> None:
    fill(tmp_path, TABLE.runs, right=lambda what: 0.02 if what.train.temperature > 1 and what.seed == 1 else 1.0)
    found = study(TABLE, Shelf(tmp_path))
    assert {finding.verdict.why for finding in found.findings} == {"2 shared seeds; 1 more needed"}
    assert "(T = 100): seed 1 did not learn" in markdown.page(found, figure=False)
    assert "(T = 100): seed 1 did not learn; --seeds 4 adds others" in " ".join(printed(terminal(found)).split())
    for what in TABLE.runs:
        if what.train.temperature > 1 and what.seed != 1:
            shutil.rmtree(tmp_path / TABLE.name / what.name)
    assert {finding.verdict.why for finding in study(TABLE, Shelf(tmp_path)).findings} == {"no net of T = 100 learned"}


@pytest.mark.parametrize(("hot", "said"), [(0.96, False), (0.7, True)])
def test_nets_that_fit_their_data_less_are_said(tmp_path: Path, hot: float, said: bool) -> None:
    fill(tmp_path, TABLE.runs, right=lambda what: hot if what.train.temperature > 1 else 1.0)
    for finding in study(TABLE, Shelf(tmp_path)).findings:
        assert finding.verdict.word == HOLDS
        assert ("but training accuracy goes from 100 to 70 %" in finding.verdict.why) == said


def test_seeds_beyond_the_experiments_own_count(tmp_path: Path) -> None:
    fill(tmp_path, catalogue.seeded(TABLE.runs, 5))
    assert study(TABLE, Shelf(tmp_path)).findings[0].shared == [0, 1, 2, 3, 4]


def test_folders_that_are_no_runs_are_named_and_skipped(tmp_path: Path) -> None:
    fill(tmp_path, TABLE.runs)
    home = tmp_path / TABLE.name
    (home / "holiday").mkdir()
    (home / "holiday" / "photo.jpg").write_text("sun")
    shutil.copytree(home / TABLE.runs[0].name, home / "torn")
    (home / "torn" / "rows.parquet").write_text("not a table")
    shutil.copytree(home / TABLE.runs[0].name, home / "twice")
    put(home, spec.replace(TABLE.runs[0], {"train.temperature": 10}), {10: rows(0.9, 0.3, 80)})
    one = study(TABLE, Shelf(tmp_path))
    assert [finding.verdict.word for finding in one.findings] == [HOLDS] * 4
    assert len(one.found.sources) == 6, "a copy is no second seed"
    page = markdown.page(one, figure=False)
    assert "holiday is not a run directory" in page
    assert "torn/rows.parquet is damaged" in page
    assert "in no claim here: `cifar100-resnet18-T10-s0" in page
    assert str(tmp_path) not in page
    assert "holiday is not a run directory" in printed(glance([one, one]))


def test_rows_that_leave_the_number_open_are_an_error(tmp_path: Path) -> None:
    fill(tmp_path, TABLE.runs[:1])
    source = Shelf(tmp_path).find(TABLE).sources[0]
    with pytest.raises(ValueError, match="is 2 rows, not one"):
        quantities.value(source, Quantity("rank", "solution_rank"), _claims.COLD)
    assert quantities.value(source, Quantity("depth", "effective_depth"), _claims.COLD) == 1.0, "of two probes, the first"
    assert quantities.value(source, Quantity("other", "nothing"), _claims.COLD) is None


def test_reductions(tmp_path: Path) -> None:
    def at(depth: int, measure: str, value: float) -> Row:
        return Row("train", f"layer{depth}", depth, "", measure, "of=covariance,rtol=0.001", value)

    steps = {
        0: [at(3, "solution_rank", 50.0), Row("train", "", 0, "", "logit_norm", "", 2.0)],
        5: [at(3, "solution_rank", 4.0)],
        9: [at(3, "solution_rank", 20.0), Row("train", "", 0, "", "logit_norm", "", 8.0),
            *(at(d, "rank", v) for d, v in ((1, 9.0), (2, 6.0), (3, 3.0)))],
    }  # fmt: skip
    put(tmp_path / TABLE.name, TABLE.runs[0], steps)
    source = Shelf(tmp_path).find(TABLE).sources[0]
    rank, norm = "solution_rank", "logit_norm"
    cases: list[tuple[str, _claims.Reduction, float]] = [
        (rank, "value", 20), (rank, "start", 50), (rank, "lowest", 4), (norm, "growth", 4), ("rank", "layers", 6),
        ("rank", "last layer", 3), ("rank", "drop before the last", 1 / 3), ("rank", "first half", 9),
        ("rank", "second half", 4.5), ("rank", "best layer", 9),
    ]  # fmt: skip
    for measure, by, expected in cases:
        where = () if measure == norm else ("of=covariance", "rtol=0.001")
        assert quantities.value(source, Quantity("", measure, where=where, by=by), _claims.COLD) == expected


def test_a_number_that_is_not_finite_is_none_not_an_earlier_one(tmp_path: Path) -> None:
    def at(value: float, depth: int = 3, measure: str = "solution_rank") -> Row:
        return Row("train", f"layer{depth}", depth, "", measure, "of=covariance,rtol=0.001", value)

    steps = {5: [at(4.0, 3, "rank")], 9: [at(7.0, 2, "rank"), at(float("nan"), 3, "rank")]}
    put(tmp_path / TABLE.name, TABLE.runs[0], steps)
    one = study(TABLE, Shelf(tmp_path))
    rank = Quantity("", "rank", where=("of=covariance", "rtol=0.001"), by="layers")
    for quantity in (rank, dataclasses.replace(rank, by="last layer")):
        assert quantities.value(one.found.sources[0], quantity, _claims.COLD) is None
    put(tmp_path / "two" / TABLE.name, TABLE.runs[0], {5: [at(4.0)], 9: [at(float("inf"))]})
    one = study(TABLE, Shelf(tmp_path / "two"))
    assert quantities.value(one.found.sources[0], _claims.SOLUTION_RANK, _claims.COLD) is None
    put(tmp_path / "three" / TABLE.name, TABLE.runs[0], {5: [at(0.0)]})
    nothing = study(TABLE, Shelf(tmp_path / "three")).found.sources[0]
    assert quantities.value(nothing, _claims.SOLUTION_RANK, _claims.COLD) == 0
    assert quantities.value(nothing, dataclasses.replace(_claims.SOLUTION_RANK, factors=True), _claims.COLD) is None
    page = markdown.page(one, figure=False)
    assert "rank of the logits (covariance, 1e-3) (T = 1): seed 0 has no finite value; `--seeds 4` adds others" in page
    assert "OOD drop before the head, svhn (T = 1): seed 0 was made before this measure; `--seeds 4` adds others" in page


def test_what_is_missing_is_told_apart_by_its_settings(tmp_path: Path) -> None:
    lines = wording.lacking(Shelf(tmp_path).find(catalogue.load("appendix/width")))
    assert [line.split(" (")[0] for line in lines] == ["runes-mlp-T1"] * 7
    assert lines[0] == "runes-mlp-T1 (net.width=64, net.init=torch, net.head_init_scale=1, train.head_lr=1): seeds 0-2"
    assert wording.lacking(Shelf(tmp_path).find(TABLE)) == [f"cifar100-resnet18-T{t}: seeds 0-2" for t in (1, 100)]


def test_a_finding_is_counted_once(tmp_path: Path) -> None:
    fill(tmp_path, TABLE.runs)
    shelf = Shelf(tmp_path)
    studies = [study(catalogue.load(name), shelf) for name in (TABLE.name, "controls/weight-decay-cifar100")]
    assert [one.summary for one in studies] == ["holds: 4", f"not run here: 6, as in {TABLE.name}: 3"]
    page = markdown.overview(studies)
    assert (
        "9 claims in 2 experiments: holds: 3, not run here: 6. 1 more was found on the rows it is judged by (holds: 1)." in page
    )
    assert "Another 3 are about the same" in page
    assert "| published numbers | 3 | 0 | 0 | 0 | 0 | 3 |" in page
    assert "| directions or bounds claimed | 0 | 0 | 0 | 0 | 6 | 6 |" in page
    assert f"as in {TABLE.name} (holds)" in page


def test_what_was_found_on_its_rows_is_told_and_counted_apart(tmp_path: Path) -> None:
    told, seen = (
        dataclasses.replace(TABLE, claims=tuple(dataclasses.replace(claim, found=found) for claim in TABLE.claims))
        for found in (False, True)
    )
    results = fill(tmp_path, TABLE.runs)
    plain, found = (study(one, Shelf(results)) for one in (told, seen))
    for before, after in zip(plain.findings, found.findings):
        assert after.verdict.word == before.verdict.word
        assert after.verdict.why == f"found on these rows; {before.verdict.why}"
    assert markdown.totals([plain]).startswith(f"{len(TABLE.claims)} claims in 1 experiment: ")
    assert markdown.totals([found]) == f"{len(TABLE.claims)} more were found on the rows they are judged by (holds: 4)."


def test_the_same_finding_has_one_verdict(tmp_path: Path) -> None:
    """Half of what was printed is too little where numbers are, and would be enough where only a direction is claimed."""
    fill(tmp_path, TABLE.runs, drop=0.29)
    for name in (TABLE.name, "figure1"):
        one = study(catalogue.load(name), Shelf(tmp_path))
        assert one.findings[1].verdict.word == DIRECTION
        assert one.findings[1].claim.published == (0.19, 0.50)
    assert f"as in {TABLE.name} ({DIRECTION})" in markdown.page(one, figure=False)


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    pages = []
    for name, order in (("one", TABLE.runs), ("two", TABLE.runs[::-1])):
        results = fill(tmp_path / name / "results", order)
        (results / TABLE.name / "notes.md").write_text("Seen by hand: *nothing*.\n")
        place = write([study(TABLE, Shelf(results))], Shelf(results))
        assert place == results / "reproduction.md", "there are no docs beside these results"
        files = [place, *(results / TABLE.name / file for file in ("README.md", "figure.svg"))]
        pages.append([file.read_bytes() for file in files])
    assert pages[0] == pages[1]
    assert b"Seen by hand: *nothing*." in pages[0][1]
    assert str(tmp_path).encode() not in b"".join(pages[0])


def test_a_computed_table_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    one = catalogue.load("figure6")
    (tmp_path / "figure6").mkdir()
    (tmp_path / "figure6" / "rows.parquet").write_text("torn")
    found = study(one, Shelf(tmp_path)).found
    assert found.lacks_table
    assert "figure6/rows.parquet cannot be read" in found.problems[0]


@pytest.mark.parametrize("name", ["figure6", "prop31"])
def test_computed_claims_are_what_is_committed(name: str) -> None:
    """The committed rows are those of this code: a seed computed anew has the same numbers."""
    one = catalogue.load(name)
    committed = Shelf(ROOT / "results").find(one).sources[0]
    there = {(row["measure"], row["params"]): row["value"] for row in committed.rows.to_pylist()}
    for seed, row in computed.COMPUTED[one.computed](torch.device("cpu")):
        if seed > 0 and name == "figure6":
            break
        if seed == 0:
            assert there[row.measure, row.params] == pytest.approx(row.value, abs=1e-9)


@pytest.mark.parametrize("name", ["figure6", "table1/runes-mlp"])
def test_what_a_cpu_can_check_holds_in_the_committed_rows(name: str) -> None:
    assert set(words(ROOT / "results", name)) == {HOLDS}


@pytest.mark.parametrize("name", ["prop31", "prop32"])
def test_propositions_in_the_committed_rows(name: str) -> None:
    """The bound, and the closed forms."""
    told = study(catalogue.load(name), Shelf(ROOT / "results")).findings
    assert {finding.verdict.word for finding in told if finding.claim.exact} == {HOLDS}


def test_committed_pages_are_those_of_the_committed_rows() -> None:
    shelf, studies = Shelf(ROOT / "results"), []
    for name in catalogue.names():
        one = study(catalogue.load(name), shelf)
        studies.append(one)
        folder = ROOT / "results" / name
        if one.found.sources or (folder / "README.md").exists():
            page = markdown.page(one, figure=(folder / "figure.svg").exists(), notes=output.notes(folder))
            assert (folder / "README.md").read_text() == page, f"{name}: write it anew"
    whole = markdown.overview(studies, notes=output.notes(ROOT / "results"))
    assert (ROOT / "docs" / "reproduction.md").read_text() == whole, "thermocline reproduce all --report"


def plain(quantity: str) -> str:
    """Data sets as they are typed: CIFAR-10 is cifar10."""
    return quantity.lower().replace("cifar-", "cifar")


def test_the_readme_says_what_the_rows_say() -> None:
    shelf, told = Shelf(ROOT / "results"), (ROOT / "README.md").read_text()
    part = told.split("| T = 1 → T = 100 |")[1].split("*Holds in direction*")[0]
    table = [line.split(" | ") for line in part.splitlines() if " → " in line]
    said = {plain(quantity.strip("| ")): (published, ours, word.strip("| ")) for quantity, published, ours, word in table}
    assert len(said) == 8
    for name in (TABLE.name, "table2/cifar100-resnet18", "figure5", "figure7"):
        one = study(catalogue.load(name), shelf)
        for finding in one.findings:
            quantity, _, published, ours, *_ = markdown.cells(one, finding)
            if not one.origin(finding) and plain(quantity) in said:
                word = finding.verdict.word + " †" * finding.claim.found
                assert said.pop(plain(quantity)) == (published, re.sub(r" \[[^]]*\]", "", ours), word), quantity
    assert not said


SMALL = {
    "data.classes": 40, "data.train": 3000, "data.test": 800, "data.ood": ("runes:1",), "net.depth": 6, "net.width": 128,
    "train.epochs": 12, "train.snapshots": 1, "measures": ("accuracy", "solution_rank", "effective_depth", "ood_drop"),
}  # fmt: skip


def test_table_1_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained here, from nothing to a page: heat costs rank, depth and OOD accuracy. A second call has nothing left to do."""
    hot = _claims.temperature(100)
    claims = [
        Claim(_claims.TRAIN_ACCURACY, "at least", (hot,), bound=0.4),  # of 40 classes: learning, if not done in 12 epochs
        *_claims.effect(_runes.COLD, hot, ood="runes:1"),
    ]
    runs = tuple(_runes.runs(SMALL, temperatures=(1, 100)))
    small = Experiment("small", "Small.", "", runs, tuple(claims), Cost("seconds"))
    monkeypatch.setattr(catalogue, "homes", lambda: {catalogue.family(what): "small" for what in runs})
    lacking = continuing.missing(small, tmp_path, seeds=0)
    assert lacking == {tmp_path / "small" / what.name: what for what in runs}
    assert not continuing.obstacle(small, list(runs), device="cpu", data_dir=None)
    for _ in run.follow_all(lacking, device="cpu"):
        pass
    assert continuing.missing(small, tmp_path, seeds=0) == {}
    assert len(continuing.missing(small, tmp_path, seeds=4)) == 2
    one = study(small, Shelf(tmp_path))
    assert [finding.verdict.word for finding in one.findings] == [HOLDS] * 4
    assert json.loads((tmp_path / "small" / runs[0].name / "provenance.json").read_text())["wall_seconds"] > 0
    assert "seed 2" in markdown.page(one, figure=False)


def test_two_dimensions_are_enough_in_small(tmp_path: Path) -> None:
    what = Run(Data("runes", classes=10, train=600, test=200), Net("mlp", depth=3, width=64, head="circle"),
               Train(epochs=20, lr=0.1, clip=1.0, snapshots=1), measures=("accuracy", "solution_rank"))  # fmt: skip
    loaded = record.load_run(run.run(what, tmp_path / "run", device="cpu"))
    found = {
        (row["measure"], row["split"], row["step"]): row["value"]
        for row in loaded.rows.to_pylist()
        if "features" not in row["params"]
    }
    last = max(step for *_, step in found)
    assert found["accuracy", "train", last] > 0.95
    assert found["solution_rank", "train", last] == 2


def test_a_gpu_experiment_is_not_begun_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no GPU here" in continuing.obstacle(TABLE, list(TABLE.runs), device="auto", data_dir=None)
    assert "--data-dir" in continuing.obstacle(TABLE, list(TABLE.runs), device="cpu", data_dir=None)


def test_figures_of_curves_and_of_nothing(tmp_path: Path) -> None:
    fill(tmp_path, TABLE.runs)
    assert figure.svg(study(catalogue.load("table1/cifar10-mlp"), Shelf(tmp_path))) is None
    drawn = figure.svg(study(catalogue.load("figure6"), Shelf(ROOT / "results")))
    assert drawn is not None
    assert "k = 5" in drawn
    rank = Quantity("rank", "solution_rank", where=("of=covariance",))
    curves = (Curve("by step", rank, "step", (Arm("hot", {"train.temperature": 100.0}),), log=True),)
    one = study(dataclasses.replace(TABLE, curves=curves), Shelf(tmp_path))
    assert "T = 100" in (figure.svg(one) or ""), "a curve of one point is no curve: the numbers by arm instead"


def test_a_band_is_over_seeds_not_over_layers(tmp_path: Path) -> None:
    layers = [[Row("train", f"{i}", i, "flatten", "stable_rank", "", 10.0 * i)] for i in (1, 2)]
    for what in TABLE.runs:
        put(tmp_path / TABLE.name, what, {step: [row for one in layers for row in one] for step in (0, 10)})
    by_step = Curve("by step", Quantity("stable rank", "stable_rank", by="layers"), "step", _claims.COLD_HOT)
    drawn = figure.svg(study(dataclasses.replace(TABLE, curves=(by_step,)), Shelf(tmp_path)))
    assert drawn is not None
    assert "stable rank: 15" in drawn
    assert "stable rank: 10" not in drawn


def test_a_curve_leaves_out_the_nets_that_verdicts_do(tmp_path: Path) -> None:
    for what in TABLE.runs:
        lazy = what.train.temperature > 1 and what.seed == 1
        steps = accuracies(0.01, 0.02 if lazy else 1.0)
        for rows in steps.values():
            rows += [Row("train", f"{i}", i, "flatten", "stable_rank", "", 99.0 if lazy else 10.0 * i) for i in (1, 2)]
        put(tmp_path / TABLE.name, what, steps)
    by_layer = Curve("by layer", Quantity("stable rank", "stable_rank"), "depth", _claims.COLD_HOT)
    drawn = figure.svg(study(dataclasses.replace(TABLE, curves=(by_layer,)), Shelf(tmp_path)))
    assert drawn is not None
    assert "stable rank: 10" in drawn
    assert "stable rank: 39" not in drawn


def test_a_page_whose_rows_are_gone_says_so(tmp_path: Path) -> None:
    shelf, folder = Shelf(tmp_path), tmp_path / TABLE.name
    write([study(TABLE, shelf)], shelf)
    assert not folder.exists()
    folder.mkdir(parents=True)
    for name in ("README.md", "figure.svg"):
        (folder / name).write_text("of rows that were deleted")
    write([study(TABLE, shelf)], shelf)
    assert "not run here" in (folder / "README.md").read_text()
    assert not (folder / "figure.svg").exists()


def test_the_tables_in_one(tmp_path: Path) -> None:
    lines = tables.lines([study(TABLE, Shelf(fill(tmp_path, TABLE.runs)))])
    name, cells = lines[TABLE.name.split("/")[1]]
    assert name == TABLE.name
    printed = [claim.published for claim in TABLE.claims]
    assert [cell.word for cell in cells] == [HOLDS] * len(printed) + [""] * (len(tables.COLUMNS) - len(printed))
    assert re.fullmatch(r"✓ 1\.00 → 0\.8\d \(1\.00 → 0\.83\)", str(cells[0]).replace("\u00a0", " "))
    assert str(cells[-1]) == ""
    assert not tables.lines([study(TABLE, Shelf(tmp_path / "empty"))]), "nothing was run"


def test_a_page_shows_commands_of_notes_as_they_are_typed(tmp_path: Path) -> None:
    one = study(catalogue.load("controls/head-norm"), Shelf(ROOT / "results"))
    text = webpage.write([one], tmp_path / "page.html", results=ROOT / "results").read_text()
    assert "<pre>thermocline sweep demo" in text
    assert "none,before --set seed=99 \\\n  --set probes" in text
    assert "```" not in text


def test_one_page_of_all_that_is_there(tmp_path: Path) -> None:
    shelf = Shelf(ROOT / "results")
    some = [study(catalogue.load(name), shelf) for name in ("table1/runes-mlp", "figure6", "table2/cifar10-vit", "dispersion")]
    text = webpage.write(some, tmp_path / "deep" / "page.html", results=ROOT / "results").read_text()
    short = text.split("<h2>In short</h2>")[1].split("</section>")[0]
    notes = output.notes(ROOT / "results")
    assert short.count("<li>") == notes.count("\n- ")
    assert re.findall("<h3>(.*?)</h3>", short) == re.findall("^### (.*)$", notes, re.MULTILINE) != []
    assert "](" not in short, "links are for Markdown"
    assert '<a href="#study-0">table1/runes-mlp</a>' in short
    assert "table1/cifar100-resnet18," in short, "of what is not on the page, the words"
    assert "<strong>Fewer layers" in short
    assert "rises from T\u00a0=\u00a01 to T\u00a0=\u00a0100: AUROC of NECO, cifar100 (0.981 → 0.983)" in text, (
        "not a table of dashes"
    )
    told = ("table1/runes-mlp", "At a glance", "not run here", "1e-3", "What differs from the papers", "6 of 6")
    for words in (*told, "<li>Lemma 2.1"):
        assert words in text
    assert text.count("data:image/svg+xml;base64,") == 3
    assert 'http-equiv="Content-Security-Policy"' in text
    assert not re.search(r"(src|href)=\"http", text)
    assert len(text) < 1_000_000
    alone = webpage.write(some[:1], tmp_path / "one.html", results=ROOT / "results").read_text()
    assert "At a glance" not in alone
