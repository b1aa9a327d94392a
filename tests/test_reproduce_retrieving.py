"""Max retrieval from training to verdicts, in small: what is measured is what it says, and three experiments read one table."""

from pathlib import Path

import pytest
import torch

from thermocline import reproduce
from thermocline.attention import PUBLISHED, retrieval
from thermocline.experiments import beta_fit
from thermocline.experiments import retrieval as asked
from thermocline.reproduce import continuing, retrieving

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four nets of two hundred steps, at two lengths."""
    folder = tmp_path_factory.mktemp("results")
    small = {"SEEDS": range(3), "CHOSEN_ON": (100,), "STEPS": 200, "SETS": 256, "LENGTHS": (16, 1024), "CHOSEN_AT": (32,)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in small.items():
            patch.setattr(asked, name, value)
        assert not continuing.compute(reproduce.load("retrieval"), folder, device="cpu")
    return folder


def values(results: Path, measure: str, *words: str) -> list[float]:
    found = reproduce.Shelf(results).find(reproduce.load("retrieval")).sources
    rows = [row for source in found for row in source.rows.to_pylist()]
    return [row["value"] for row in rows if row["measure"] == measure and set(words) <= set(row["params"].split(","))]


def test_rows_are_what_they_say(results: Path) -> None:
    assert len(values(results, "retrieval_accuracy", "rule=ours", "n=1024")) == 3
    assert all(0 <= value <= 1 for value in values(results, "retrieval_accuracy"))
    assert min(values(results, "retrieval_accuracy", "rule=plain", "n=16")) > 0.2
    assert max(values(results, "retrieval_entropy", "n=16")) < min(values(results, "retrieval_entropy", "n=1024"))
    assert min(values(results, "retrieval_room")) >= 0
    assert len(set(values(results, "rule_number", "name=target"))) == 1
    assert all(1 <= beta <= 10 for beta in values(results, "best_beta", "H=2"))


def test_three_experiments_read_one_table(results: Path) -> None:
    shelf = reproduce.Shelf(results)
    for name in ("retrieval", "dispersion", "beta-fit"):
        study = reproduce.study(reproduce.load(name), shelf)
        assert len(study.found.sources) == 3
        assert not study.found.lacks_table
    verdicts = [finding.verdict for finding in reproduce.study(reproduce.load("dispersion"), shelf).findings]
    assert len(verdicts) == len(reproduce.load("dispersion").claims)
    assert (results / "retrieval" / "rows.parquet").exists()
    assert not (results / "dispersion").exists()


def test_on_a_cpu_it_is_left_to_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermocline.run.check_device", lambda device: CPU)
    why = continuing.compute(reproduce.load("beta-fit"), tmp_path, device="auto")
    assert "there is no GPU here (--device cpu runs it all the same)" in why
    assert not list(tmp_path.iterdir())


def test_nothing_is_chosen_on_what_is_reported() -> None:
    assert not set(asked.CHOSEN_ON) & set(asked.SEEDS)
    assert all(n < 1024 for n in asked.CHOSEN_AT)
    assert {rule.name for rule in retrieving.CANDIDATES}.__len__() == len(retrieving.CANDIDATES) == 35


def test_printed_betas_are_the_published_polynomial() -> None:
    for entropy, beta in beta_fit.PRINTED.items():
        assert float(PUBLISHED(torch.tensor(float(entropy)), torch.tensor(9.0))) == pytest.approx(beta, abs=0.005)
    assert retrieval.TRAINED == (5, 16)
