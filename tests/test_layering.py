"""Imports go strictly downwards, the core runs on what a bare GPU image has, and every citation resolves."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import thermocline

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "thermocline"
LEVELS = {
    0: ["softmax", "moments", "spec", "team"],
    1: ["geometry", "probes", "detect", "attention", "experiments"],
    2: ["nets", "data", "record", "provenance"],
    3: ["train", "measure", "report", "shelf"],
    4: ["run", "scanner", "advise"],
    5: ["bench", "screening", "integrations", "reproduce"],
    6: ["cli"],
}
LEVEL = {module: level for level, modules in LEVELS.items() for module in modules}
LEVEL |= {"__main__": 7, "__init__": 7}
MATHS = {"torch", "numpy", "jaxtyping"}
CORE = MATHS | {"PIL", "pyarrow", "safetensors", "sklearn", "scipy", "rich"}
PAGES = {"pyarrow", "rich", "scipy", "jinja2", "markupsafe", "altair", "vl_convert"}  # markupsafe is what jinja2 escapes with
FILES = sorted(PACKAGE.rglob("*.py"))


def module_of(file: Path) -> str:
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(file: Path) -> set[str]:
    """Every dotted name a file imports, wherever in it; imports for type checkers alone do not count."""
    found: set[str] = set()
    tree = ast.parse(file.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_go_strictly_downwards(file: Path) -> None:
    module = module_of(file)
    assert module in LEVEL, f"{module} is not on the module map; give it a level"
    for name in imports(file):
        if not name.startswith("thermocline."):
            continue
        target = name.split(".")[1]
        assert target == module or LEVEL[target] < LEVEL[module], f"{module} (level {LEVEL[module]}) imports {target}"
        assert module != "experiments" or target in ("spec", "experiments")


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_outside_imports_stay_within_what_a_level_may_use(file: Path) -> None:
    level = LEVEL[module_of(file)]
    outside = {name.split(".")[0] for name in imports(file)} - set(sys.stdlib_module_names) - {"thermocline"}
    if module_of(file) in ("spec", "experiments"):
        assert not outside
    elif level <= 1:
        assert outside <= MATHS | ({"triton"} if file.name == "kernels.py" else set())
    elif module_of(file) == "report":
        assert outside <= PAGES
    elif level <= 3:
        assert outside <= CORE


def test_the_rule_can_fail(tmp_path: Path) -> None:
    upward = tmp_path / "bad.py"
    upward.write_text("def f():\n    from thermocline.train import fit\n")
    assert imports(upward) == {"thermocline.train.fit"}


def test_every_citation_is_in_the_bibliography() -> None:
    known = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "docs" / "references.bib").read_text(), re.M))
    cited = {key for file in FILES for key in re.findall(r"\[([a-z]+\d{4}[a-z]+)[],]", file.read_text())}
    assert cited
    assert cited <= known
    assert known <= cited, "uncited entries: delete them"


@pytest.mark.parametrize("name", ["thermocline", "thermocline.cli", "thermocline.report", "thermocline.advise"])
def test_light_imports_leave_torch_alone(name: str) -> None:
    code = f"import sys, {name}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_maths_is_reached_from_the_package() -> None:
    assert {*LEVELS[0], *LEVELS[1]} - {"experiments"} <= set(dir(thermocline))


def test_files_and_functions_stay_small() -> None:
    for file in FILES:
        text = file.read_text()
        assert len(text.splitlines()) <= 400, f"{file.name} is two files"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or 0) - node.body[0].lineno + 1
                assert lines <= 45, f"{file.name}: {node.name} has {lines} lines"
