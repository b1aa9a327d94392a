"""Shapes and types of the maths are checked at every call, in tests only."""

import os

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

settings.register_profile("thermocline", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("thermocline")

CHECKED = ["attention", "data", "detect", "geometry", "measure", "moments", "nets", "probes", "softmax", "train"]
install_import_hook([f"thermocline.{name}" for name in CHECKED], "beartype.beartype")

import torch  # noqa: E402  after the hook, with everything else


@pytest.fixture(autouse=True)
def _random_state_untouched():
    """Library code must not touch the global random state; a test that draws makes its own generator."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(before, torch.get_rng_state()), "the global random state of torch was changed"


@pytest.fixture
def gen() -> torch.Generator:
    return torch.Generator().manual_seed(20261115)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without figures, which take most of their time."""
    monkeypatch.setattr("thermocline.report.figures.MAKERS", ())


def pytest_configure() -> None:
    torch.set_num_threads(max((os.cpu_count() or 2) // 2, 1))
