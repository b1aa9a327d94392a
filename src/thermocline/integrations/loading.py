"""A transformers model and its tokenizer by path, and prompts from a file: what is wrong with either is said in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from thermocline.integrations import transformers as hot
from thermocline.spec import InputError

_TOKENIZERS = ("tokenizer*", "vocab*", "*.model")  # one of these files is in every folder that has a tokenizer


def load(name: str, device: Any = "cpu") -> tuple[Any, Any]:
    """The model and tokenizer in a folder that `save_pretrained` wrote, or of this name in the local cache; nothing is fetched.

    A causal language model comes with its head, any other without.
    """
    from safetensors import SafetensorError

    transformers = hot.library()
    try:
        config = transformers.AutoConfig.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and not Path(name).is_dir():
            raise InputError(f"{name} is no folder, nor the name of a model in the local cache; nothing is fetched") from None
        raise InputError(f"{name} holds no transformers model: {_first(error)}") from None
    tokenizer = _tokenizer(name, transformers)
    known = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    causal = any(one in known for one in config.architectures or ())
    kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    try:
        model = kind.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise InputError(f"the weights of {name} cannot be read: {_first(error)}") from None
    return model.to(device).eval(), tokenizer


def _tokenizer(name: str, transformers: Any) -> Any:
    # Of some models transformers makes a tokenizer that knows no word where there is none.
    lacking = Path(name).is_dir() and not any(file for glob in _TOKENIZERS for file in Path(name).glob(glob))
    try:
        if lacking:
            raise ValueError("no tokenizer files")
        return transformers.AutoTokenizer.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{name} has no tokenizer ({_first(error)}): save one there, or measure other inputs from Python,"
            " integrations.dispersion.scan(model, [{'pixel_values': images}])"
        ) from None


def read_prompts(path: str | Path) -> list[str]:
    """The prompts of a file: one a line or, of a .jsonl file, the "text" of each line. Empty lines are left out."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"cannot read prompts from {path}: {error.strerror}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append(_text(path, number, line) if Path(path).suffix == ".jsonl" else line)
    if not found:
        raise InputError(f"{path} holds no prompts: write one a line")
    return found


def _text(path: str | Path, number: int, line: str) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError):
        text = None
    if not (isinstance(text, str) and text):
        raise InputError(f'{path}, line {number}: expected a JSON object with a "text", e.g. {{"text": "Once"}}')
    return text


def _first(error: Exception) -> str:
    """The first line of a message, without the advice that follows."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(" .:")
