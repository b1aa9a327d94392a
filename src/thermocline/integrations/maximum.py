"""Find the maximum: lists of numbers of growing length, what attention does on them, and how often the answer is right.

from thermocline.integrations import maximum
found = maximum.scan(model, tokenizer, lengths=[8, 16, 32, 64], count=64)
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from rich.progress import track
from torch import Tensor

from thermocline import measure, record
from thermocline.attention import PLAIN, PUBLISHED, EffectiveItems, Rule
from thermocline.integrations import dispersion
from thermocline.integrations import transformers as hot
from thermocline.spec import InputError

SPLIT = "maximum"
LEAST, MOST = 10, 99  # two digits: one token, or as many as digits, to most tokenizers
MEASURES = {
    "maximum_accuracy": (
        "How often the model's likeliest words after a list of numbers are the largest of them.",
        "mean over prompts of [argmax of every next token = that token of the answer]", "[velickovic2024softmax]",
    ),
}  # fmt: skip
_TOKENS = 2**13  # read at a time


class Question(NamedTuple):
    """A prompt, what should follow it, and how many numbers it lists."""

    text: str
    answer: str
    items: int


def questions(count: int, items: int, *, seed: int) -> list[Question]:
    """Lists of two-digit numbers, and the largest of each, which stands in it once.

    The answer is drawn first and the others below it: were all drawn alike, the answer to a long list would always be 99,
    and a model could know it without looking.

    >>> questions(1, 4, seed=0)[0]
    Question(text='The numbers are 67 15 21 10. The largest of them is', answer=' 67', items=4)
    """
    if items < 1 or count < 1:
        raise InputError(f"a list has at least one number, and at least one list is drawn; got {items} and {count}")
    generator = torch.Generator().manual_seed((seed << 24) + items)
    answers = torch.randint(LEAST + 11, MOST + 1, (count, 1), generator=generator)
    numbers = LEAST + (torch.rand(count, items, generator=generator) * (answers - LEAST)).long()
    numbers.scatter_(1, torch.randint(items, (count, 1), generator=generator), answers)
    told = [f"The numbers are {' '.join(map(str, line))}. The largest of them is" for line in numbers.tolist()]
    return [Question(text, f" {answer}", items) for text, answer in zip(told, answers.flatten().tolist())]


def scan(
    model: Any,
    tokenizer: Any,
    *,
    lengths: Sequence[int],
    count: int,
    seed: int = 0,
    name: str | None = None,
    progress: bool = False,
) -> dispersion.Diagnosis:
    """Measure attention on `count` lists of each length and, of a model that generates, how often its answer is right.

    Accuracies are paired: as the model is, by the published rule in every head, and by `effective_items` with what heads do on
    the shortest lists for targets, on the same lists.
    """
    began = time.monotonic()
    asked = [one for items in lengths for one in questions(count, items, seed=seed)]
    answers = bool(asked) and isinstance(model, hot.library().PreTrainedModel) and model.can_generate()
    if answers:
        _answered(model, tokenizer, asked)  # says what is wrong with answers before anything is measured
    prompts = [ids for ids, _ in tokenized(tokenizer, [one.text for one in asked])]
    rows = dispersion.measured(model, stacked(prompts), split=SPLIT, progress=progress)
    if answers:
        most = max(len(ids) for ids, one in zip(prompts, asked) if one.items == min(lengths))
        rules = {"plain": PLAIN, "published": PUBLISHED, "effective-items": effective_items(model, rows, most=most)}
        rows += accuracy(model, tokenizer, asked, rules, progress=progress)
    meaning = dispersion.MEASURES | MEASURES
    return dispersion.diagnosis(model, rows, split=SPLIT, name=name, began=began, meaning=meaning)


def effective_items(model: Any, rows: Iterable[record.Row], *, most: int) -> dict[int, Rule]:
    """A rule for every layer that holds each of its heads to the effective number of items it has on up to `most` tokens.

        beta = max(exp(H) / exp(H_short), 1)                                    (ours: `attention.EffectiveItems`)

    Prompts that short should be such as the model was trained on. A head that is meant to look at everything is sharpened
    too.
    """
    modules = dict(model.named_modules())
    numbers = {id(layer): number for number, layer in hot.attention_layers(model).items()}
    sums: dict[tuple[int, int], tuple[float, int]] = {}
    for row in rows:
        if row.measure == "attention_entropy":
            given = record.parameters(row.params)
            count = int(given["prompts"]) if int(given["n"]) <= most else 0
            place = numbers[id(modules[row.layer])], int(given["head"])
            total, before = sums.get(place, (0.0, 0))
            sums[place] = total + count * row.value, before + count
    rules: dict[int, list[EffectiveItems]] = {}
    for (number, _), (total, count) in sorted(sums.items()):
        rules.setdefault(number, []).append(EffectiveItems(math.exp(total / count)))
    return {number: hot.ByHead(tuple(heads)) for number, heads in rules.items()}


def accuracy(
    model: Any,
    tokenizer: Any,
    asked: Sequence[Question],
    rules: Mapping[str, Rule | Mapping[int, Rule]],
    *,
    progress: bool = False,
) -> list[record.Row]:
    """How often a causal language model names the maximum, by the length of the list, under each rule for its attention.

    right = every token of the answer is the likeliest after those before it: what greedy decoding would say
    """
    if model.config._attn_implementation == hot.NAME:
        raise InputError("the model's temperature is adaptive already: disable it first")
    pairs = _answered(model, tokenizer, asked)
    groups = _groups([len(prompt) + len(answer) for prompt, answer in pairs])
    rows = []
    for name, rule in rules.items():
        right: dict[int, list[bool]] = {}
        with _ruled(model, rule):
            for group in track(groups, f"accuracy, {name}", disable=not progress):
                for place, hit in zip(group, _right(model, [pairs[i] for i in group])):
                    right.setdefault(asked[place].items, []).append(hit)
        for items, hits in sorted(right.items()):
            words = record.params(rule=name, items=items, prompts=len(hits))
            rows.append(record.Row.whole(SPLIT, "maximum_accuracy", words, sum(hits) / len(hits)))
    return rows


def _answered(model: Any, tokenizer: Any, asked: Sequence[Question]) -> list[tuple[Tensor, Tensor]]:
    """The token ids of questions and of their answers, where the model has room for both."""
    pairs = tokenized(tokenizer, [one.text for one in asked], [one.answer for one in asked])
    dispersion.require_room(model, max(len(prompt) + len(answer) for prompt, answer in pairs) - 1)
    return pairs


@contextmanager
def _ruled(model: Any, rule: Rule | Mapping[int, Rule]) -> Iterator[None]:
    """The model by a rule for its attention; plain is the model itself."""
    if rule != PLAIN:
        hot.enable(model, rule=rule)
    try:
        yield
    finally:
        hot.disable(model)


@torch.no_grad()
def _right(model: Any, pairs: Sequence[tuple[Tensor, Tensor]]) -> list[bool]:
    """Of prompts and answers that are together of one length: which answers are the likeliest, token by token."""
    whole = torch.stack([torch.cat(pair) for pair in pairs]).to(next(model.parameters()).device)
    most = max(len(answer) for _, answer in pairs)
    lean = dispersion.lean(model, most)
    with measure.evaluating(model):
        guesses = model(input_ids=whole[:, :-1], **lean).logits[:, -most:].argmax(-1)
    agree = guesses == whole[:, -most:]
    return [bool(line[most - len(answer) :].all()) for line, (_, answer) in zip(agree, pairs)]


def tokenized(tokenizer: Any, texts: Sequence[str], answers: Sequence[str] | None = None) -> list[tuple[Tensor, Tensor]]:
    """The token ids of every text, and of the answer that follows it; of none without answers."""
    found = []
    for text, answer in zip(texts, answers or itertools.repeat("")):
        prompt, whole = (list(tokenizer(words)["input_ids"]) for words in (text, text + answer))
        if not prompt:
            raise InputError(f"the tokenizer makes no tokens of {text[:40]!r}")
        if answer and (whole[: len(prompt)] != prompt or len(whole) == len(prompt)):
            raise InputError(
                "the tokenizer ends or merges a prompt otherwise when an answer follows, so that accuracy cannot be told: scan"
                " prompts of your own (--prompts, integrations.dispersion.scan)"
            )
        found.append((torch.tensor(prompt), torch.tensor(whole[len(prompt) :], dtype=torch.long)))
    return found


def stacked(prompts: Sequence[Tensor]) -> list[Tensor]:
    """Prompts as batches without padding: those of equal length together, as many as keep a batch small."""
    return [torch.stack([prompts[i] for i in group]) for group in _groups([len(one) for one in prompts])]


def _groups(lengths: Sequence[int]) -> list[list[int]]:
    """Which of these go together, shortest first.

    >>> _groups([3, 2, 3])
    [[1], [0, 2]]
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    alike = (list(some) for _, some in itertools.groupby(order, key=lambda i: lengths[i]))
    return [part for some in alike for part in _cut(some, max(_TOKENS // lengths[some[0]], 1))]


def _cut(some: list[int], size: int) -> Iterator[list[int]]:
    yield from (some[start : start + size] for start in range(0, len(some), size))
