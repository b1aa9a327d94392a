"""The Triton backend: what it refuses; and its kernels, in processes without shape checks (triton_*.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from thermocline import attention
from thermocline.attention import adaptive_attention

HERE = Path(__file__).parent


@pytest.mark.parametrize("cases", ["triton_kernels.py", "triton_compiles.py"])
def test_kernels(cases: str) -> None:
    pytest.importorskip("triton")
    words = [sys.executable, "-m", "pytest", "--noconftest", "-c", os.devnull, "--rootdir", HERE, "-q"]
    plain = ["-p", "no:cacheprovider", "-p", "no:xdist", "--show-capture=no", HERE / cases]
    interpreted = "1" if cases == "triton_kernels.py" and not torch.cuda.is_available() else "0"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": interpreted}
    done = subprocess.run([*words, *plain], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-4000:]


def test_elsewhere_it_says_why_not() -> None:
    q = torch.zeros(1, 2, 3, 8, dtype=torch.float16)
    with pytest.raises(ValueError, match="'triton' cannot answer: its kernels are for CUDA, .* on cpu; these can: 'sdpa'"):
        adaptive_attention(q, q, q, causal=True, backend="triton")
    assert attention.backend_for(q, q, q).why.startswith("not triton: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": torch.float32}, "take float16 and bfloat16, got torch.float32"),
        ({"mask": True}, "know causality and windows, and no other mask"),
        ({"width": 264}, "heads up to 256 wide, got 264"),
        ({"batch": 40_000}, "take 65,535 heads over all samples, got 80,000"),
        ({"lacking": True}, "triton 3.4 or newer is not installed"),
    ],
)
def test_on_a_gpu_it_says_why_not(change: dict, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By tensors that claim to be on a GPU and hold nothing."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    if "lacking" in change:
        monkeypatch.setattr("thermocline.attention.triton._installed", lambda: False)
    with FakeTensorMode():
        q = torch.empty(
            change.get("batch", 1), 2, 3, change.get("width", 8), dtype=change.get("dtype", torch.float16), device="cuda"
        )
        mask = torch.empty(1, 1, 1, 3, dtype=torch.bool, device="cuda") if "mask" in change else None
        with pytest.raises(ValueError, match=message):
            attention.backend_for(q, q, q, mask=mask, backend="triton")
