"""What the README and the guide show runs, imports what there is, and gives no name to two things."""

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import printed

from thermocline import advise, spec

ROOT = Path(__file__).parent.parent
PAGES = {name: (ROOT / name).read_text() for name in ("README.md", "docs/guide.md")}


def blocks(page: str, heading: str = "") -> list[str]:
    """The Python of a page, or of the section under a heading."""
    text = PAGES[page]
    section = re.split(r"^##+ ", text.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.M)[0] if heading else text
    return fenced(section, "python")


def fenced(text: str, language: str) -> list[str]:
    return [block for of, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M) if of == language]


def imported(page: str) -> list[tuple[str, str, str]]:
    """Every (name, module, attribute) that a page imports."""
    found = []
    for node in (node for block in blocks(page) for node in ast.walk(ast.parse(block))):
        if isinstance(node, ast.ImportFrom):
            found += [(one.asname or one.name, str(node.module), one.name) for one in node.names]
        elif isinstance(node, ast.Import):
            found += [(one.asname or one.name, one.name, "") for one in node.names]
    return found


def test_a_loop_of_ones_own_runs_and_its_temperature_is_as_planned_or_held() -> None:
    block, _ = blocks("docs/guide.md", "In your own training loop")
    there: dict[str, Any] = {}
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        exec(compile(block, "docs/guide.md", "exec"), there)
    assert there["step"] == 23
    assert there["temperature"] == pytest.approx(1.0)
    seen = (there["logits"] / there["held"]).detach()
    assert float(seen.norm() / len(seen) ** 0.5) == pytest.approx(0.1)
    assert torch.isfinite(there["loss"])


def test_an_experiment_of_ones_own_compares_arms_that_it_has() -> None:
    (block,) = blocks("docs/guide.md", "An experiment of your own")
    there: dict[str, Any] = {}
    exec(compile(block, "docs/guide.md", "exec"), there)
    for claim in there["CLAIMS"]:
        for arm in claim.arms:
            mine = [run for run in there["RUNS"] if arm.settings.items() <= dict(spec.leaves(run)).items()]
            assert sorted(run.seed for run in mine) == [0, 1, 2]
    assert there["COST"].words


@pytest.mark.parametrize("page", PAGES)
def test_every_name_that_is_imported_is_there_and_means_one_thing(page: str) -> None:
    meant: dict[str, set[tuple[str, str]]] = {}
    for name, module, attribute in imported(page):
        there = importlib.import_module(module)
        if attribute and not hasattr(there, attribute):
            importlib.import_module(f"{module}.{attribute}")
        meant.setdefault(name, set()).add((module, attribute))
    assert {name: places for name, places in meant.items() if len(places) > 1} == {}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGES[page]):
        path, _, heading = target.partition("#")
        if path.startswith("https://"):
            continue
        place = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert place.exists(), target
        heads = [re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in _heads(place)] if heading else []
        assert not heading or heading in heads, target


def _heads(place: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", place.read_text(), re.M)


@pytest.mark.parametrize("page", PAGES)
def test_every_verb_and_option_that_is_shown_is_one(page: str) -> None:
    """Each `thermocline VERB --option` of the page's commands, as the command line itself has it."""
    from typer.main import get_command

    from thermocline.cli import app

    shown = [line.split("  #")[0].split() for block in fenced(PAGES[page], "") for line in block.splitlines()]
    commands = [words[words.index("thermocline") + 1 :] for words in shown if "thermocline" in words]
    assert commands
    for words in commands:
        verb = get_command(app)
        while words and words[0] in getattr(verb, "commands", {}):
            verb = verb.commands[words.pop(0)]
        known = {option for parameter in verb.params for option in parameter.opts} | {"--help"}
        assert not hasattr(verb, "commands"), words
        assert {word for word in words if word.startswith("-")} <= known, words


def test_the_advice_that_is_shown_is_what_the_rows_give() -> None:
    told = printed(advise.told(advise.advise(ROOT / "results" / "table1" / "cifar100-resnet18")), width=124)
    assert fenced(PAGES["docs/guide.md"], "text") == ["".join(f"{line.rstrip()}\n" for line in told.splitlines())]
