"""Adaptive-temperature attention in models of Hugging Face transformers, switched on and off without touching a weight.

from thermocline.integrations import transformers as hot
hot.enable(model)                                  # the published rule, every layer and head
hot.enable(model, layers=[10, 11], rule="effective-items(4, 1)")
hot.disable(model)
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from thermocline.attention import BACKENDS, PUBLISHED, Rule, adaptive_attention
from thermocline.attention.rules import named
from thermocline.nets.borrowed import declare_torchvision_operators
from thermocline.spec import InputError

NAME = "thermocline"
_NEEDED = "this needs transformers 4.56 or newer"  # static caches have longer masks than keys in earlier ones
_SETTING, _BEFORE = "_thermocline_setting", "_thermocline_before"  # attributes of modules, so that copies of a model have them


@dataclass(frozen=True)
class Setting:
    """How one attention layer is sharpened; `heads` None is all of them."""

    rule: Rule
    heads: tuple[int, ...] | None
    backend: str


@dataclass(frozen=True)
class ByHead:
    """A rule for each head of a layer.

    >>> from thermocline.attention import Fixed
    >>> ByHead((Fixed(1.0), Fixed(2.0)))(torch.zeros(1, 2, 3), torch.ones(1, 2, 3))[0, :, 0]
    tensor([1., 2.])
    """

    rules: tuple[Rule, ...]

    @property
    def name(self) -> str:
        return f"by-head({', '.join(rule.name for rule in self.rules)})"

    def __call__(self, entropy: Tensor, n: Tensor) -> Tensor:
        return torch.stack([rule(entropy[:, i], n[:, i]) for i, rule in enumerate(self.rules)], 1)


def enable(
    model: Any,
    *,
    rule: Rule | str | Mapping[int, Rule | str] = PUBLISHED,
    layers: Collection[int] | None = None,
    heads: Collection[int] | None = None,
    backend: str = "auto",
) -> None:
    """Sharpen the attention of a model at inference, in all layers and heads or in those named; again to change how.

    Layers count from 0, as the model numbers them; `rule` may be one for all of them, or a mapping from layers to theirs, each
    a rule or the name of one.
    Caches, `generate` and every mask of the model work as before; layers and heads that are not named attend as with
    "sdpa", and so do kinds of layers that let no other way be chosen, such as linear attention, which a warning names.
    Models with soft-capped or biased logits raise when they are run.
    """
    if not callable(getattr(model, "set_attn_implementation", None)):
        raise InputError(
            f"this sharpens models of transformers, and was given a {type(model).__name__}; where you write the attention "
            "yourself, call thermocline.attention.adaptive_attention"
        )
    register(NAME, _attend)
    found = attention_layers(model)
    if apart := {type(one).__name__ for one in _attending(model)} - {type(one).__name__ for one in found.values()}:
        warnings.warn(f"{', '.join(sorted(apart))} lets no other way to attend be chosen, and is left as it is", stacklevel=2)
    if isinstance(rule, Mapping) and layers is not None:
        raise InputError("rule= already says which layers it is for: leave layers= out")
    rules = dict(rule) if isinstance(rule, Mapping) else dict.fromkeys(found if layers is None else layers, rule)
    if backend != "auto" and backend not in BACKENDS:
        raise InputError(f"backend must be one of auto, {', '.join(BACKENDS)}, got {backend!r}")
    if wrong := sorted(rules.keys() - found.keys(), key=str):
        raise InputError(f"there is no attention layer {wrong[0]!r}: this model has {min(found)} to {max(found)}")
    settled = {index: named(one) for index, one in rules.items()}
    if any(not isinstance(head, int) for head in heads or ()):
        raise InputError(f"heads are named by their numbers, got {list(heads or ())}")
    for index in settled:  # what configurations do not tell is seen when the layer runs
        count = getattr(getattr(found[index], "config", model.config), "num_attention_heads", None)
        if isinstance(count, int) and (wrong := [head for head in heads or () if not 0 <= head < count]):
            raise InputError(f"there is no head {wrong[0]}: attention layer {index} has 0 to {count - 1}")
    chosen = None if heads is None else tuple(sorted(heads))
    before = _switch(model, NAME)
    if getattr(model, _BEFORE, None) is None or all(name != NAME for _, name in before):
        setattr(model, _BEFORE, before)
    for index, layer in found.items():
        setattr(layer, _SETTING, Setting(settled[index], chosen, backend) if index in settled else None)


def disable(model: Any) -> None:
    """Leave the model as it was before `enable`; one that was not enabled is left alone."""
    for layer in model.modules():
        layer.__dict__.pop(_SETTING, None)
    if (before := getattr(model, _BEFORE, None)) is not None:
        _restore(before)
        delattr(model, _BEFORE)


@contextlib.contextmanager
def attending_by(model: Any, name: str) -> Iterator[None]:
    """The model with another registered way to attend; afterwards each of its configurations has the one it had."""
    before = _switch(model, name)
    try:
        yield
    finally:
        _restore(before)


def attention_layers(model: nn.Module) -> dict[int, nn.Module]:
    """The modules whose way to attend can be chosen, by the number the model gives them, or else in their order."""
    every = _attending(model)
    inner = [one for one in every if _chooses(type(one))] or every  # all are unknown in a model that is not of transformers
    numbers = [getattr(one, "layer_idx", None) for one in inner]
    if not inner:
        raise InputError(f"no attention layer was found in {type(model).__name__}")
    plain = any(not isinstance(number, int) for number in numbers) or len(set(numbers)) < len(numbers)
    return dict(enumerate(inner)) if plain else {int(number): one for number, one in zip(numbers, inner) if number is not None}


def _attending(model: nn.Module) -> list[nn.Module]:
    """Those named so that hold no other of that name: a block's `Attention` may wrap its `SelfAttention`."""
    named = [module for module in model.modules() if type(module).__name__.endswith("Attention")]
    return [one for one in named if not any(other is not one and other in set(one.modules()) for other in named)]


def _chooses(kind: type) -> bool:
    """Whether its code looks up how to attend, as all but linear and older attention does."""
    functions = [inspect.unwrap(one) for base in kind.__mro__ for one in vars(base).values() if inspect.isfunction(one)]
    return any("ALL_ATTENTION_FUNCTIONS" in one.__code__.co_names for one in functions)


def library() -> Any:
    """The transformers package, of a version in which attention can be chosen."""
    declare_torchvision_operators()
    try:
        import transformers
        from transformers import AttentionInterface  # noqa: F401
        from transformers.masking_utils import AttentionMaskInterface  # noqa: F401
    except ImportError as error:
        raise InputError(f"{_NEEDED}: pip install '.[hf]' in the clone ({error})") from None
    if tuple(int(number) for number in transformers.__version__.split(".")[:2]) < (4, 56):
        raise InputError(f"{_NEEDED}, and there is {transformers.__version__}: pip install '.[hf]' in the clone")
    return transformers


def register(name: str, attend: Callable[..., tuple[Tensor, None]]) -> None:
    """Teach transformers a way to attend. Without a function for masks under its name it would leave the causal one out."""
    masks = library().masking_utils
    library().AttentionInterface.register(name, attend)
    masks.AttentionMaskInterface.register(name, masks.sdpa_mask)


def require_plain_logits(module: nn.Module, options: Mapping[str, Any]) -> None:
    """Raise where a layer's logits are more than scaled products of queries and keys."""
    if odd := [name for name in ("softcap", "position_bias", "s_aux") if options.get(name) is not None]:
        raise InputError(f"{type(module).__name__} changes its logits by a {odd[0]}, which is not known here")


def _switch(model: Any, name: str) -> list[tuple[Any, str]]:
    """Set the way to attend everywhere in the model, and return what there was: every configuration, outer ones first."""
    found = [part.config for part in model.modules() if isinstance(part, library().PreTrainedModel)]
    for config in found:  # grows as it is read
        found += [inner for key in config.sub_configs if (inner := getattr(config, key, None)) is not None]
    before = [(config, config._attn_implementation) for config in found]
    model.set_attn_implementation(name)
    if model.config._attn_implementation != name:
        _restore(before)
        raise InputError(f"{type(model).__name__} does not let its attention be chosen: transformers has no interface for it")
    return before


def _restore(before: list[tuple[Any, str]]) -> None:
    for config, implementation in before:
        config._attn_implementation = implementation  # which sets inner ones too: they come later


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """What a layer calls: heads second on the way in, third on the way out."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    setting: Setting | None = getattr(module, _SETTING, None)
    options: dict[str, Any] = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **more}
    if setting is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    if dropout:
        raise InputError("an adaptive temperature is for inference: call model.eval(), or disable it to train")
    require_plain_logits(module, more)
    if wrong := [head for head in setting.heads or () if not 0 <= head < query.shape[1]]:
        raise InputError(f"there is no head {wrong[0]}: {type(module).__name__} has 0 to {query.shape[1] - 1}")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and attention_mask is None and query.shape[2] > 1
    if torch.is_autocast_enabled(query.device.type):  # stock attention does so too: rotated queries come wider than values
        query, key, value = (x.to(torch.get_autocast_dtype(x.device.type)) for x in (query, key, value))
    if causal:  # keys beyond the queries are the empty rest of a static cache
        key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
    out = adaptive_attention(
        query, key, value, causal=causal, scale=scaling, mask=attention_mask, rule=setting.rule, backend=setting.backend
    )
    if setting.heads is not None:
        plain, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        chosen = torch.zeros(query.shape[1], dtype=torch.bool, device=query.device)
        chosen[list(setting.heads)] = True
        out = out.where(chosen[:, None, None], plain.transpose(1, 2))
    return out.transpose(1, 2).contiguous(), None
