"""The compiled step, in a process without shape checks: see compiled_steps.py."""

import os
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).with_name("compiled_steps.py")


def test_compiled_steps() -> None:
    words = [sys.executable, "-m", "pytest", "--noconftest", "-c", os.devnull, "--rootdir", CASES.parent, "-q"]
    plain = ["-p", "no:cacheprovider", "-p", "no:xdist", "--show-capture=no", CASES]
    done = subprocess.run([*words, *plain], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout[-4000:]
