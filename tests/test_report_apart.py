"""Which runs of a report are seeds of one setting, and which are different nets."""

import dataclasses
import hashlib
import json
import shutil

import pytest
from report_cases import COLD, HOT, judged, write

from thermocline import advise, record, report
from thermocline.report import page, view
from thermocline.report.facts import cases


def test_two_scans_of_one_architecture_are_two_nets(tmp_path, undrawn):
    """A spec does not know which weights were scanned; equal rows are still one scan."""
    write(tmp_path / "first", **COLD)
    write(tmp_path / "second", **{**HOT, "temperature": 1})
    shutil.copytree(tmp_path / "second", tmp_path / "third")
    runs, notes = report.load(tmp_path)
    assert [run.spec.net.name for run in runs] == ["mlp (first)", "mlp (second)"]
    assert "third is the same run as" in notes[0]
    assert "mlp (second) on runes" in report.render(tmp_path, tmp_path / "page.html").read_text()


def test_scans_in_folders_of_one_name_are_as_many_nets(tmp_path, undrawn):
    places = [write(tmp_path / name / "scan", **{**COLD, "neco": 0.6 + i / 10}) for i, name in enumerate("abc")]
    made = page.gather(places)
    assert [run.spec.net.name for run in made.runs.values()] == ["mlp (a/scan)", "mlp (b/scan)", "mlp (c/scan)"]
    assert [run.path for run in made.runs.values()] == places
    assert list(made.runs) == [one.key for one in made.summaries]
    assert [case.groups[0].members[0].auroc["digits", "neco"] for case, _ in made.drawn] == pytest.approx([0.5, 0.6, 0.7])
    assert all(f"mlp{more} on runes" in page.html(made) for more in (" (a/scan)", " (b/scan)", " (c/scan)"))


def observed(folder, at, *, seed=0, follow=(), without=(), **numbers):
    """A run directory as scan and Watch write it."""
    path = write(folder / at, **{**COLD, **numbers}, seed=seed, without=without)
    plain = json.loads((path / "spec.json").read_text())
    (path / "spec.json").write_text(
        json.dumps({**plain, "scanned": hashlib.sha256(at.encode()).hexdigest()[:12], "follow": follow})
    )
    return path


def test_scans_of_one_setting_are_its_seeds(tmp_path):
    for seed in range(3):
        observed(tmp_path, f"cold{seed}", seed=seed, depth_needed=6 + (seed == 0))
        observed(tmp_path, f"hot{seed}", seed=seed, **{**HOT, "neco": 0.9 + seed / 100})
    runs, notes = report.load(tmp_path)
    (case,) = cases(report.summary(runs))
    assert [(group.label, group.seeds) for group in case.groups] == [("T = 1", 3), ("T = 1000", 3)]
    assert case.groups[1].estimate(lambda one: one.auroc["digits", "neco"]).mean == pytest.approx(0.81)
    assert judged(tmp_path)["Effective depth"].word == "As predicted"
    assert notes == []
    (relation,) = [one for one in advise.tradeoff(runs).relations if (one.ood, one.detector) == ("digits", "neco")]
    assert [(setting.temperature, setting.auroc.count) for setting in relation.settings] == [(1, 3), (1000, 3)]


def test_different_scans_of_one_seed_are_different_nets_and_the_note_says_how_to_join_them(tmp_path):
    for at, neco in (("a", 0.7), ("b", 0.8), ("c", 0.9)):
        observed(tmp_path, at, neco=neco, ood=("digits",) if at == "c" else ("runes:1", "digits"))
    runs, (note,) = report.load(tmp_path)
    assert [run.spec.net.name for run in runs] == ["mlp (a)", "mlp (b)", "mlp (c)"]
    assert note.startswith(f"{tmp_path / 'a'}, {tmp_path / 'b'} and {tmp_path / 'c'} have one net's name")
    assert "seed=" in note
    assert len(cases(report.summary(record.load_runs(tmp_path)))) == 3, "by the library too"


def test_checkpoints_stand_in_the_order_of_their_numbers(tmp_path):
    for epoch in (2, 10, 9):
        observed(tmp_path, f"epoch{epoch}", neco=0.7 + epoch / 100)
    runs, (note,) = report.load(tmp_path)
    assert [run.spec.net.name for run in runs] == ["mlp (epoch2)", "mlp (epoch9)", "mlp (epoch10)"]
    assert "as checkpoints of one training should be" in note


def test_the_first_of_two_nets_is_a_seed_where_there_are_others(tmp_path):
    for at, seed, neco in (("a", 0, 0.7), ("b", 0, 0.8), ("c", 1, 0.9)):
        observed(tmp_path, at, seed=seed, neco=neco)
    found = {case.title: case.groups[0].seeds for case in cases(report.summary(report.load(tmp_path)[0]))}
    assert found == {"mlp on runes": 2, "mlp (b) on runes": 1}


def test_checkpoints_of_several_seeds_are_paired_by_the_names_of_their_folders(tmp_path):
    for at, seed in (("s0/epoch2", 0), ("s0/epoch10", 0), ("s1/epoch10", 1), ("s2/epoch2", 2), ("s2/epoch10", 2)):
        observed(tmp_path, at, seed=seed, neco=0.7 + len(at) / 100 + seed / 1000)
    runs, notes = report.load([tmp_path / f"s{seed}" for seed in range(3)])
    found = {case.title: case.groups[0].seeds for case in cases(report.summary(runs))}
    assert found == {"mlp (epoch2) on runes": 2, "mlp (epoch10) on runes": 3}
    assert len(notes) == 2


def test_a_watch_and_a_scan_of_one_net_are_two_columns(tmp_path):
    for seed in range(2):
        observed(tmp_path, f"scan{seed}", seed=seed, without=("accuracy",))
        observed(tmp_path, f"watch{seed}", seed=seed, follow=["accuracy", "rank"], reached=0.5)
    runs, notes = report.load(tmp_path)
    found = {case.title: case.groups for case in cases(report.summary(runs))}
    assert {title: [group.seeds for group in groups] for title, groups in found.items()} == {
        "mlp on runes": [2], "mlp (watched) on runes": [2],
    }  # fmt: skip
    assert [one.train_accuracy for one in found["mlp on runes"][0].members] == [None, None]
    assert notes == []
    (alone,) = cases(report.summary(record.load_runs([tmp_path / "watch0", tmp_path / "watch1"])))
    assert alone.title == "mlp on runes"


def test_one_net_scanned_under_two_seeds_is_said(tmp_path):
    for seed in (0, 1):
        path = observed(tmp_path, f"at{seed}", seed=seed)
        plain = json.loads((path / "spec.json").read_text())
        (path / "spec.json").write_text(json.dumps({**plain, "scanned": "0123456789ab"}))
    (said,) = report.load(tmp_path)[1]
    (scan, _), (one, _) = (found := report.load(tmp_path)[0]), report.summary(found)
    assert view.provenance(scan, dataclasses.replace(one, step=0))["state"] == "as it was scanned"
    assert view.provenance(scan, one)["state"] == "finished at step 2000"
    assert said.startswith(f"{tmp_path}/at1 found the same as {tmp_path}/at0 under another seed: of the same weights")
