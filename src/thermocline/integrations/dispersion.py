"""How far the attention of a transformers model has dispersed: every layer and head, by the length of what the model reads.

from thermocline.integrations import dispersion
found = dispersion.scan(model, [tokenizer(text, return_tensors="pt") for text in prompts])
print(found.table())
found.rows, found.heads, found.save("runs/mine"), found.write("attention.html")

And a rule for its temperature from the model's own rows: `labelled`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from rich.progress import track
from torch import Tensor, nn

from thermocline import measure, provenance, record, report
from thermocline.attention import Dispersion, dispersion
from thermocline.attention.call import checked
from thermocline.attention.reference import logits
from thermocline.integrations import reading
from thermocline.integrations import transformers as hot
from thermocline.report import page
from thermocline.scanner import Scan
from thermocline.spec import Data, InputError, Net, Run

NAME = "thermocline-dispersion"
_LEMMA = "[velickovic2024softmax, Lem. 2.1]"
MEASURES = {
    "attention_entropy": (
        "Entropy of a row of attention weights, in nats; exp(H) is how many keys it spreads over, log n its most.",
        "H = -sum_j alpha_j log alpha_j", "[velickovic2024softmax]",
    ),
    "attention_largest": ("The largest weight of a row.", "max_j alpha_j", "[velickovic2024softmax]"),
    "attention_spread": ("How far apart the logits of a row lie.", "delta = max_j e_j - min_j e_j", _LEMMA),
    "attention_upper": (
        "What no weight of a row can exceed, given its spread; 1 where that says no more.", "min(exp(delta) / n, 1)", _LEMMA,
    ),
    "attention_lower": ("What no weight of a row can fall below, given its spread.", "exp(-delta) / n", _LEMMA),
    "attention_keys": ("How many keys a row sees: the n of the bounds.", "n", _LEMMA),
}  # fmt: skip


@dataclass(frozen=True)
class Diagnosis:
    """What was measured of a model's attention."""

    found: record.Loaded

    def __repr__(self) -> str:
        return f"Diagnosis({reading.sentence(self.heads)} See .table(), .heads, .rows)"

    @property
    def rows(self) -> pa.Table:
        """Everything measured, as one tidy table with the columns of `record.SCHEMA`."""
        return self.found.rows

    @property
    def heads(self) -> list[reading.Head]:
        """Every head, layer by layer: its measures by length, and how fast its entropy grows with log n (`slope`)."""
        return reading.heads(self.found)

    def table(self) -> str:
        """Means by length, the heads that disperse fastest, and what that means, as text."""
        return report.as_text(reading.terminal(self.found))

    def save(self, directory: str | Path) -> Path:
        """Write a new run directory, which `thermocline report` and `record.load_rows` read beside any other."""
        return Scan(self.found).save(directory)

    def write(self, path: str | Path) -> Path:
        """Write it as its name ends: .html a page, .svg, .png or .pdf the figure."""
        page.drawing()  # says what is not installed, where that is so
        from thermocline.integrations import drawing

        return drawing.save(self.found, path)


def scan(
    model: Any, batches: Iterable[Any], *, split: str = "prompts", name: str | None = None, progress: bool = False
) -> Diagnosis:
    """Measure the attention of every layer and head of a model of transformers on prompts, images or whatever it reads.

    A batch is a tensor of token ids, or the model's keyword arguments as tensors, as a tokenizer or image processor gives
    them, labels left aside; padding is left out where its `attention_mask` marks it. In layers that look back only, the last
    token of each prompt counts (`queries=last`): it sees the whole prompt; in others, all tokens (`queries=all`). Values are
    means over these and over the prompts of a length n. Layers are numbered from 1 in the order in which they attend;
    `enable` takes the model's own numbers, which are in their paths. Memory does not grow with the square of the length, but
    for masks that transformers itself makes: of padding and of windows. The model and the random state are as before.
    """
    began = time.monotonic()
    rows = measured(model, batches, split=split, progress=progress)
    return diagnosis(model, rows, split=split, name=name, began=began, meaning=MEASURES)


def diagnosis(
    model: Any,
    rows: Iterable[record.Row],
    *,
    split: str,
    name: str | None,
    began: float,
    meaning: Mapping[str, tuple[str, str, str]],
) -> Diagnosis:
    """Rows about a model as a run that can be kept, with how they came about."""
    what = Run(Data(split), Net(name or type(model).__name__))
    words = {key: dict(zip(("meaning", "formula", "reference"), parts)) for key, parts in meaning.items()}
    facts = {"wall_seconds": round(time.monotonic() - began, 1), "measures": words}
    facts |= provenance.session(next(model.parameters()).device, 1)
    return Diagnosis(record.Loaded(Path(what.name), what, facts, record.table(what, [(0, list(rows))]), True))


def measured(model: Any, batches: Iterable[Any], *, split: str, progress: bool = False) -> list[record.Row]:
    """The rows of `scan`."""
    if isinstance(batches, Mapping | str) or hasattr(batches, "keys"):
        raise InputError(f"batches are several: put this {type(batches).__name__} into a list, [batch]")
    ear = _Ear(model)
    _listen(model, [_inputs(batch) for batch in batches], ear, f"attention on {split}", progress=progress)
    return list(ear.rows(split))


def labelled(
    model: Any, batches: Iterable[tuple[Any, Tensor | Sequence[int]]]
) -> dict[tuple[int, int], list[tuple[Tensor, Tensor]]]:
    """What `attention.fit_beta` learns from, by layer and head: logits of each prompt's last token, and its true item.

    A batch is as in `scan`, and with it the position of one token a prompt: the one that attention should find.

        rows = labelled(model, [(ids, positions), (longer, theirs)])
        rule = attention.fit_beta(rows[3, 0] + rows[3, 1], degree=4, bounds=(1.0, 10.0), length=True).rule
        transformers.enable(model, rule=rule, layers=[3], heads=[0, 1])

    Layers have the numbers that `enable` knows; all must look back only. Logits are kept, so give few prompts at a time.
    """
    pairs = [_pair(given) for given in batches]
    keeper = _Keeper(model, [items for _, items in pairs])
    _listen(model, [batch for batch, _ in pairs], keeper, "logits", progress=False)
    return keeper.kept


def _pair(given: Any) -> tuple[dict[str, Tensor], Tensor]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(f"a batch is (ids, positions), the position of one token a prompt; got a {type(given).__name__}")
    try:
        positions = torch.as_tensor(given[1])
    except (TypeError, ValueError, RuntimeError):
        positions = torch.zeros(())
    if positions.ndim != 1 or positions.dtype not in (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8):
        raise InputError(f"positions are whole numbers, one a prompt, as a tensor or a list; got {given[1]!r}")
    return _inputs(given[0]), positions


def _listen(model: Any, inputs: list[dict[str, Tensor]], ear: _Ear | _Keeper, title: str, *, progress: bool) -> None:
    """Show the model every batch, while someone hears its layers attend."""
    _require(model, inputs)
    hot.register(NAME, _attend)
    device = next(model.parameters()).device
    spared = lean(model, 1)
    cards = [device] if device.type == "cuda" else []
    with (
        _heard_by(ear),
        hot.attending_by(model, NAME),
        measure.evaluating(model),
        torch.random.fork_rng(cards),
        torch.no_grad(),
    ):
        for batch in track(inputs, title, disable=not progress):
            ear.begin(batch.get("attention_mask"))
            model(**{key: value.to(device) for key, value in batch.items()}, **spared)
    if not ear.heard:
        raise InputError(f"{type(model).__name__} attended to nothing through transformers' attention interface")


def _inputs(batch: Any) -> dict[str, Tensor]:
    given = dict(batch) if isinstance(batch, Mapping) or hasattr(batch, "keys") else {"input_ids": batch}
    if wrong := [key for key, value in given.items() if not isinstance(value, Tensor)]:
        raise InputError(
            f"a batch holds tensors, and its {wrong[0]} is a {type(given[wrong[0]]).__name__}: tokenize it first, with"
            " return_tensors='pt'"
        )
    given.pop("labels", None)
    if "input_ids" in given and given["input_ids"].ndim == 1:
        given["input_ids"] = given["input_ids"][None]
    if not all(value.numel() for value in given.values()):
        raise InputError("a prompt has no tokens; leave it out")
    if "attention_mask" in given and given["attention_mask"].ndim != 2:
        raise InputError(f"attention_mask must be (prompts, tokens), got {tuple(given['attention_mask'].shape)}")
    if "attention_mask" in given and not given["attention_mask"].bool().any(1).all():
        raise InputError("a prompt is nothing but padding; leave it out")
    return given


def _require(model: Any, inputs: list[dict[str, Tensor]]) -> None:
    """Raise unless every batch can be read, before the first of them is."""
    transformers = hot.library()
    kind = type(model).__name__
    if not isinstance(model, transformers.PreTrainedModel):
        raise InputError(f"this reads models of transformers, and was given a {kind}")
    # The parts have the whole one's configuration, and BLIP-2 takes what a decoder needs whether or not it has one.
    whole = "decoder_input_ids" in inspect.signature(model.forward).parameters
    if whole and getattr(model.config, "is_encoder_decoder", False):
        raise InputError(f"{kind} is an encoder with a decoder: give one of them by itself, e.g. model.get_encoder()")
    if model.config._attn_implementation == hot.NAME:
        raise InputError("the model's temperature is adaptive now, and its own attention is what is measured: disable it first")
    if not inputs:
        raise InputError("there are no prompts to read: give at least one")
    ids = [batch["input_ids"] for batch in inputs if "input_ids" in batch]
    require_room(model, max((some.shape[1] for some in ids), default=0))
    for some in ids:
        _require_known(some, model)


def _require_known(ids: Tensor, model: Any) -> None:
    try:
        words = getattr(model.get_input_embeddings(), "num_embeddings", None)
    except NotImplementedError:  # what transformers raises of a model that has several, such as CLIP
        words = None
    lowest, highest = int(ids.min()), int(ids.max())
    if lowest < 0 or (words is not None and highest >= words):
        wrong, kind = lowest if lowest < 0 else highest, type(model).__name__
        knows = f"and {kind} knows {words}" if words is not None else "and there are none below 0"
        raise InputError(f"a prompt has token {wrong}, {knows}: were its prompts made by its own tokenizer?")


def require_room(model: Any, longest: int) -> None:
    """Raise where a prompt of so many tokens has more than the model has positions for."""
    room = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if room is not None and 0 < room < longest:  # some say -1 of having no limit
        kind = type(model).__name__
        shorter = "give shorter prompts, or of lists smaller --lengths (lengths=)"
        raise InputError(f"a prompt has {longest} tokens, and {kind} has positions for {room}: {shorter}")


def lean(model: nn.Module, last: int) -> dict[str, Any]:
    """What spares a pass its cache and the logits of all tokens but the last few, where the model knows the words."""
    known = inspect.signature(model.forward).parameters
    return {word: value for word, value in {"use_cache": False, "logits_to_keep": last}.items() if word in known}


class _Ear:
    """Hears every attention call of a forward pass, and keeps sums by layer, head and length."""

    def __init__(self, model: nn.Module) -> None:
        self.paths = {module: path for path, module in model.named_modules()}
        self.sums: dict[tuple[int, str, str, int], tuple[int, Tensor]] = {}
        self.begin(None)

    def begin(self, tokens: Tensor | None) -> None:
        """A new forward pass, over prompts of which these tokens count."""
        self.tokens, self.depth = tokens, 0

    @property
    def heard(self) -> bool:
        """Whether any layer attended."""
        return bool(self.sums)

    def hear(self, module: nn.Module, q: Tensor, k: Tensor, mask: Tensor | None, scale: float | None, causal: bool) -> None:
        self.depth += 1
        counted = _counted(self.tokens, q)
        lengths = counted.sum(1)
        if causal:
            q, mask = _last(q, k, mask, counted)
            counted = counted.new_ones(len(q), 1)
        means = _means(dispersion(q, k, causal=False, scale=scale, mask=mask), counted)
        if not means.isfinite().all():
            where = self.paths[module]
            raise InputError(
                f"the attention logits of {where} are not all finite: its weights are broken, or overflow {q.dtype}"
            )
        for n in lengths.unique().tolist():
            key = (self.depth, self.paths[module], "last" if causal else "all", n)
            count, total = self.sums.get(key, (0, torch.zeros(())))
            self.sums[key] = count + int((lengths == n).sum()), total + means[:, lengths == n].sum(1).cpu()

    def rows(self, split: str) -> Iterator[record.Row]:
        for (depth, path, queries, n), (count, total) in sorted(self.sums.items()):
            for name, heads in zip(MEASURES, (total / count).tolist()):
                for head, value in enumerate(heads):
                    words = record.params(head=head, n=n, queries=queries, prompts=count)
                    yield record.Row(split, path, depth, "", name, words, value)


class _Keeper:
    """Hears every attention call of a forward pass, and keeps the logits of last tokens beside the true items."""

    def __init__(self, model: nn.Module, items: list[Tensor]) -> None:
        self.numbers = {module: number for number, module in hot.attention_layers(model).items()}
        self.items = iter(items)
        self.kept: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}

    def begin(self, tokens: Tensor | None) -> None:
        """A new forward pass, over prompts of which these tokens count."""
        self.tokens, self.wanted = tokens, next(self.items)

    @property
    def heard(self) -> bool:
        """Whether any layer attended."""
        return bool(self.kept)

    def hear(self, module: nn.Module, q: Tensor, k: Tensor, mask: Tensor | None, scale: float | None, causal: bool) -> None:
        if not causal:
            raise InputError(f"{type(module).__name__} looks ahead too, so that no token's row stands for its prompt")
        if self.wanted.shape != (len(q),) or bool(((self.wanted < 0) | (self.wanted >= k.shape[2])).any()):
            raise InputError(
                f"one position below {k.shape[2]} is wanted of each of {len(q)} prompts, got {self.wanted.tolist()}"
            )
        q, mask = _last(q, k, mask, _counted(self.tokens, q))
        rows = logits(checked(q, k, k, causal=False, scale=scale, mask=mask, window=None))[:, :, 0].cpu()
        for head, row in enumerate(rows.unbind(1)):
            self.kept.setdefault((self.numbers[module], head), []).append((row, self.wanted.cpu()))


def _counted(known: Tensor | None, q: Tensor) -> Tensor:
    """Which queries are no padding, (b, q)."""
    shape = (q.shape[0], q.shape[2])
    if known is None or (bool(known.all()) and known.shape != shape):
        return torch.ones(shape, dtype=torch.bool, device=q.device)
    if known.shape != shape:
        raise InputError(f"padding cannot be told: attention_mask is {tuple(known.shape)}, a layer attends from {shape}")
    return known.to(q.device).bool()


def _last(q: Tensor, k: Tensor, mask: Tensor | None, counted: Tensor) -> tuple[Tensor, Tensor]:
    """The query of each prompt's last token, and which keys it sees (or the mask it adds)."""
    last = counted.shape[1] - 1 - counted.flip(1).int().argmax(1)
    which = torch.arange(len(q), device=q.device)
    if mask is None:
        seen = (torch.arange(k.shape[2], device=q.device) <= last[:, None])[:, None]
    else:
        seen = mask.expand(len(q), -1, q.shape[2], -1)[which, :, last]
    return q[which, :, last][:, :, None], seen[:, :, None]


def _means(found: Dispersion, counted: Tensor) -> Tensor:
    """The measures of every prompt and head, in the order of `MEASURES`: (measures, b, h) in float64."""
    rows = (found.entropy, found.largest, found.spread, found.upper.clamp(max=1), found.lower, found.n)
    weights = counted[:, None].double()
    return torch.stack([(row.double() * weights).sum(-1) / weights.sum(-1) for row in rows])


_HEARING: ContextVar[_Ear | _Keeper] = ContextVar("hearing")


@contextmanager
def _heard_by(ear: _Ear | _Keeper) -> Iterator[None]:
    token = _HEARING.set(ear)
    try:
        yield
    finally:
        _HEARING.reset(token)


def _attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **more: Any) -> Any:
    """What a layer calls: its numbers are heard, and it attends as with "sdpa"."""
    hot.require_plain_logits(module, more)
    told = more.get("is_causal")
    causal = bool(getattr(module, "is_causal", True) if told is None else told)
    _HEARING.get().hear(module, query, key, attention_mask, more.get("scaling"), causal)
    return hot.library().integrations.sdpa_attention.sdpa_attention_forward(module, query, key, value, attention_mask, **more)
