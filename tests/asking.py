"""What a user is told: types and shapes are checked at run time in tests only, so questions are asked in another process."""

import functools
import json
import subprocess
import sys
from collections.abc import Callable

import pytest

CODE = """
import json, sys
import numpy as np
import torch
from thermocline import attention, detect, geometry, nets, probes, softmax
from thermocline.moments import ClassMoments, Moments

x, e, y, w = torch.eye(4, 3).add(torch.arange(4.0)[:, None]), torch.ones(4, 2), torch.tensor([0, 1, 1, 0]), torch.ones(2, 3)
none, nan = torch.empty(4, 0), torch.nan

def answer(question):
    try:
        found = eval(question)
        return f"{found.item():g}" if isinstance(found, torch.Tensor) and not found.ndim else str(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

print(json.dumps([answer(question) for question in json.load(sys.stdin)]))
"""


def clear_answers(asked: dict[str, str]) -> Callable[[str], None]:
    """A test that each expression gives what it says, or raises that error; all are asked in one process."""

    @functools.cache
    def answers() -> dict[str, str]:
        words, asking = [sys.executable, "-c", CODE], json.dumps([*asked])
        done = subprocess.run(words, input=asking, check=True, capture_output=True, text=True)
        return dict(zip(asked, json.loads(done.stdout)))

    @pytest.mark.parametrize("question", asked)
    def test(question: str) -> None:
        assert answers()[question] == asked[question]

    return test
