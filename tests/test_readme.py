"""What the README shows runs, imports what there is, and gives no name to two things."""

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch

TEXT = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(heading: str = "") -> list[str]:
    """The Python of the whole page, or of the section under a heading."""
    section = re.split(r"^##+ ", TEXT.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.M)[0] if heading else TEXT
    return re.findall(r"```python\n(.*?)```", section, re.S)


def imported() -> list[tuple[str, str, str]]:
    """Every (name, module, attribute) that the page imports."""
    found = []
    for node in (node for block in blocks() for node in ast.walk(ast.parse(block))):
        if isinstance(node, ast.ImportFrom):
            found += [(one.asname or one.name, str(node.module), one.name) for one in node.names]
        elif isinstance(node, ast.Import):
            found += [(one.asname or one.name, one.name, "") for one in node.names]
    return found


def test_a_loop_of_ones_own_runs_and_its_temperature_is_as_planned_or_held() -> None:
    (block,) = blocks("In your own training loop")
    there: dict[str, Any] = {}
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        exec(compile(block, "README.md", "exec"), there)
    assert there["step"] == 23
    assert there["temperature"] == pytest.approx(1.0)
    seen = (there["logits"] / there["held"]).detach()
    assert float(seen.norm() / len(seen) ** 0.5) == pytest.approx(0.1)
    assert torch.isfinite(there["loss"])


def test_every_name_that_is_imported_is_there_and_means_one_thing() -> None:
    meant: dict[str, set[tuple[str, str]]] = {}
    for name, module, attribute in imported():
        there = importlib.import_module(module)
        if attribute and not hasattr(there, attribute):
            importlib.import_module(f"{module}.{attribute}")
        meant.setdefault(name, set()).add((module, attribute))
    assert {name: places for name, places in meant.items() if len(places) > 1} == {}
