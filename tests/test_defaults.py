"""What a user sets for all of torch, another default number format or device, changes no answer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from thermocline import detect, geometry

N, D = 8200, 64  # long and wide enough for products in float32 and for outlines

CASES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "NECO": lambda x, w: detect.NECO(dim=8).fit(x).score(x[:99]),
    "ViM": lambda x, w: detect.ViM(w, dim=8).fit(x, x @ w.T).score(x[:99], x[:99] @ w.T),
    "KNN": lambda x, w: detect.KNN(k=3).fit(x).score(x[:99] + 1),
    "auroc_interval": lambda x, w: torch.stack(detect.auroc_interval(x[:99, 0], x[:99, 1], level=0.9)),
    "bootstrap": lambda x, w: torch.stack(
        detect.bootstrap(detect.auroc, x[:99, 0], x[:99, 1], resamples=50, level=0.9, seed=0)
    ),
    "alignment": lambda x, w: geometry.alignment(w.repeat(1, 16), x[:999].repeat(1, 16), top=3).max,
    "head_subspace": lambda x, w: geometry.head_subspace(x[:99], (x[:99] @ w.T).argmax(1), w, None, keep=0.9).dim,
    "circle_scale": lambda x, w: torch.tensor(geometry.circle_scale(10, 0.9), dtype=torch.float64, device="cpu"),
}


@pytest.fixture(params=[torch.float16, torch.float64, torch.device("meta")], ids=str)
def other_default(request: pytest.FixtureRequest):
    kind = "dtype" if isinstance(request.param, torch.dtype) else "device"
    before = getattr(torch, f"get_default_{kind}")()
    yield lambda: getattr(torch, f"set_default_{kind}")(request.param)
    getattr(torch, f"set_default_{kind}")(None if kind == "device" else before)


@pytest.mark.parametrize("name", CASES)
def test_defaults_change_no_answer(gen: torch.Generator, other_default: Callable[[], None], name: str) -> None:
    x = torch.randn(N, 8, generator=gen) @ torch.randn(8, D, generator=gen) + 0.1 * torch.randn(N, D, generator=gen)
    weight = torch.randn(5, D, generator=gen)
    expected = CASES[name](x, weight)
    other_default()
    found = CASES[name](x, weight)
    assert found.device.type == "cpu"
    assert torch.equal(found.double(), expected.double())
