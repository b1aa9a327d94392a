"""Runs with made-up numbers, and a browser to look at their pages with; shared by the tests of the report."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from thermocline import record, report
from thermocline import spec as specs
from thermocline.record import Row
from thermocline.report.judge import Verdict
from thermocline.spec import Data, Net, Run, Train

LAYERS, CLASSES = 8, 20
HOSTILE = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(2)>🔥"
DETECTORS = (
    "nci,alpha=0.001", "vim,dim=32", "neco,dim=0.9", "neco-maxlogit,dim=0.9", "msp", "maxlogit", "energy", "entropy",
    "gen,gamma=0.1", "kl-matching", "residual,dim=32", "mahalanobis", "relative-mahalanobis", "knn,k=50", "nnguide,k=50",
    "react,percentile=90", "ash,variant=s,percentile=90",
)  # fmt: skip
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


def trust_rows(
    sharpness: float, softening: float, *, temperature: float = 1, ood: Sequence[str] = ("runes:1", "digits")
) -> Iterator[Row]:
    """Seventeen detectors with their intervals, and a test set whose confidence is its accuracy to the power 1 / sharpness."""
    for place, name in enumerate(ood):
        for rank, detector in enumerate(DETECTORS):
            value = 0.93 - 0.02 * rank - 0.05 * place + (0.03 if rank % 3 else -0.05) * math.log10(temperature) / 3

            def row(measure: str, more: str, value: float, name=name, detector=detector) -> Row:
                return Row(f"{name}/test", "layers.7", 7, "flatten", measure, f"detector={detector}{more}", value)

            yield row("auroc", "", value)
            yield row("auroc_interval", ",part=low,level=0.95", value - 0.012)
            yield row("auroc_interval", ",part=high,level=0.95", value + 0.01)
            yield row("aupr", ",positive=id", value - 0.1)
            yield row("fpr", ",tpr=0.95,positive=id", 1 - value)
    for at, power in (("training", sharpness), ("fitted", 1.0)):
        error = total = 0.0
        for index in range(4, 15):
            count, confidence = 10.0 * 2 ** (index - 4), (index + 0.6) / 15
            accuracy = confidence**power
            error, total = error + count * abs(accuracy - confidence), total + count
            for part, value in (("count", count), ("confidence", confidence), ("accuracy", accuracy)):
                yield Row("test", "", 0, "", "reliability", record.params(at=at, bin=index, part=part), value)
        for scheme, more in (("equal-width", 0.0), ("adaptive", 0.5)):
            yield Row("test", "", 0, "", "ece", record.params(scheme=scheme, bins=15, at=at), error / total + more)
        yield Row("test", "", 0, "", "brier", record.params(at=at), 0.2 if at == "fitted" else 0.3)
    yield Row("test", "", 0, "", "fitted_temperature", "", softening * temperature)


def step_rows(done: float, temperature: float, reached: float) -> Iterator[Row]:
    """What is measured at every snapshot, without the layers; `done`: the share of training that is over."""
    norm = 0.5 + 30 * done * math.sqrt(temperature)
    for split, share in (("train", 1.0), ("test", 0.9)):
        yield Row(split, "", 0, "", "accuracy", "", (0.05 + (reached - 0.05) * done**0.3) * share)
        yield Row(split, "", 0, "", "loss", "", 3 * (1 - done) + 0.01)
    yield Row("train", "", 0, "", "logit_norm", "", norm)
    yield Row("train", "", 0, "", "tempered_logit_norm", "", norm / temperature)


def record_run(path: Path, what: Run, steps: dict[int, list[Row]], *, finish: bool = True, **facts: Any) -> Path:
    """A run directory with these rows, and these facts about how they came about."""
    with record.open_run(path, what) as opened:
        for step, rows in steps.items():
            opened.append(step, rows)
        opened.describe(facts)
        if finish:
            opened.finish(list(steps))
    return path


def write(
    path: Path, *, temperature: float, decay: float, depth_needed: int, drop: float, neco: float, seed: int = 0,
    finish: bool = True, without: tuple[str, ...] = (), data: str = "runes", classes: int | None = CLASSES,
    ood: tuple[str, ...] = ("runes:1", "digits"), train: dict[str, float] | None = None, reached: float = 0.999,
    command: str = "thermocline train", layer: str = "layers.", more: Sequence[Row] = (),
    without_final: tuple[str, ...] = (),
) -> Path:  # fmt: skip
    """A run directory with made-up numbers."""
    run = Run(Data(data, classes=classes, ood=ood), Net("mlp"), Train(temperature=temperature, **(train or {})), seed=seed)
    steps = [0, 10, 40, 160, 640, 2000]
    known: dict[int, list[Row]] = {}
    for step in steps if finish else steps[:-1]:
        done, final = step / steps[-1], step == steps[-1]
        rows = [*step_rows(done, temperature, reached), *layer_rows(decay * (0.5 + 0.5 * done), final=final, layer=layer)]
        last = [row for row in final_rows(depth_needed, drop, neco, ood, layer) if row.measure not in without_final]
        rows += [*last, *more] if final else []
        known[step] = [row for row in rows if row.measure not in without]
    facts = {"measures": GLOSSARY, "versions": {"torch": "0.0-synthetic"}, "commit": "0" * 40, "command": command,
             "hardware": {"device": "cpu", "threads": 2}, "wall_seconds": 12.5}  # fmt: skip
    return record_run(path, run, known, finish=finish, **facts)


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


def chromium() -> Iterator[Any]:
    """What a fixture of a browser is made of; without one, its tests are skipped."""
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
    page.wait_for_selector("html.ready", state="attached", timeout=60_000)
    assert page.heard == []
    return page


def until(page: Any, holds: Callable[[], bool]) -> None:
    """Let the page work until this holds; a busy machine may need seconds for what takes milliseconds."""
    for _ in range(600):
        if holds():
            return
        page.wait_for_timeout(50)
    assert holds()


def write_many(folder: Path, *, layers: int, runs: int, checkpoints: int, same: bool = False) -> Path:
    """Many long runs of a deep net, at as many temperatures, or at one with as many seeds; the same rows in each."""
    steps = []
    for step in range(checkpoints):
        final = step == checkpoints - 1
        rows = list(step_rows(step / (checkpoints - 1), 1.0, 0.999))
        for depth in range(1, layers + 1):
            place = ("train", f"stage.{depth}.conv", depth, "pool2")
            values = [math.exp(-0.01 * depth * i / layers - 0.004 * i) for i in range(256 if final else 1)]  # 48 are drawn
            rows += [Row(*place, "singular_value", record.params(index=i), value) for i, value in enumerate(values)]
            rows.append(Row(*place, "rank", record.params(**record.RANK), 500.0 - depth + step))
            rows += [Row(*place, name, "", 20.0 + depth / 7 + step / 3) for name in ("entropy_rank", "stable_rank")]
            rows += [Row("test", *place[1:], "probe_accuracy", "probe=ridge", depth / layers)] if final else []
        rows.append(Row(*place, "solution_rank", record.params(**record.RANK), 19.0 + step / 9))
        steps.append((step * 100, rows))
    written = record.table(Run(), steps)
    for number in range(runs):
        run = Run(train=Train(temperature=1.0 if same else 1.0 + number), seed=number if same else 0)
        path = folder / run.name
        path.mkdir(parents=True)
        (path / "spec.json").write_text(json.dumps(specs.to_json(run)))
        pq.write_table(written, path / "rows.parquet")
    return folder
