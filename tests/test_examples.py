"""Every script in examples/ runs as it is and writes what it says it does."""

import runpy
from pathlib import Path

import pytest
import torch

from thermocline.integrations import transformers as hot

EXAMPLES = Path(__file__).parent.parent / "examples"
SAID = {
    "attention": ("heads that disperse fastest", "attention.html"),
    "classifier": ("Effective depth", "classifier.html"),
    "features": ("on data that did not choose it", "detector.safetensors"),
}


def test_every_example_is_run_here() -> None:
    assert sorted(SAID) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "attention":
        hot.library()  # where torchvision has no kernels, transformers imports only after this
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng([]):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    words, file = SAID[name]
    assert words in capsys.readouterr().out
    assert (tmp_path / file).stat().st_size > 0
