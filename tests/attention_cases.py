"""Small random models of transformers, and attention measured the obvious way: from the weights that "eager" returns."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from thermocline.integrations import transformers as hot

WORDS = 61
TEXT = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128}


def model(name: str, dtype: torch.dtype = torch.float32, scale: float = 0.3) -> Any:
    """A random model; `scale` is the standard deviation of its weights, which says how far apart its logits lie."""
    kit, wide = hot.library(), {"initializer_range": scale}
    made = {
        "llama": lambda: kit.LlamaForCausalLM(kit.LlamaConfig(**TEXT, **GROUPED, **wide)),
        "gemma": lambda: kit.GemmaForCausalLM(kit.GemmaConfig(**TEXT, **GROUPED, **wide)),
        "mistral": lambda: kit.MistralForCausalLM(kit.MistralConfig(**TEXT, **GROUPED, **wide, sliding_window=6)),
        "gpt2": lambda: kit.GPT2LMHeadModel(
            kit.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=3, n_head=4, n_positions=128, **wide)
        ),
        "bert": lambda: kit.BertModel(kit.BertConfig(**TEXT, **wide, max_position_embeddings=128)),
        "vit": lambda: kit.ViTForImageClassification(
            kit.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16,
                          patch_size=4, **wide)
        ),
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return made[name]().to(dtype).eval()


def padded(gen: torch.Generator, side: str, length: int = 17) -> dict[str, Tensor]:
    """Three sequences, the second and third with padding."""
    mask = torch.ones(3, length, dtype=torch.long)
    for i, count in ((1, 4), (2, 9)):
        mask[i, :count] = 0
    mask = mask if side == "left" else mask.flip(1)
    return {"input_ids": torch.randint(WORDS, (3, length), generator=gen), "attention_mask": mask}


def inputs(name: str, gen: torch.Generator, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    if name == "vit":
        return {"pixel_values": torch.randn(3, 3, 16, 16, generator=gen, dtype=dtype)}
    return padded(gen, "right" if name in ("gpt2", "bert") else "left")


@torch.no_grad()
def directly(net: Any, given: dict[str, Tensor], *, causal: bool) -> Iterator[tuple[int, int, int, dict[str, float]]]:
    """Depth, head, length and the measures of one prompt after another, from the weights themselves.

    Differences of log weights are those of logits: that gives the spread. What is hidden has weight 0.
    """
    before = net.config._attn_implementation
    net.set_attn_implementation("eager")
    weights = net(**given, output_attentions=True).attentions
    net.set_attn_implementation(before)
    for depth, layer in enumerate(weights, 1):
        mask = given.get("attention_mask", torch.ones(layer.shape[0], layer.shape[2]))
        for prompt in range(layer.shape[0]):
            places = mask[prompt].nonzero().flatten().tolist()
            for head in range(layer.shape[1]):
                rows = [_row(layer[prompt, head, i]) for i in (places[-1:] if causal else places)]
                yield depth, head, len(places), {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}


def _row(weights: Tensor) -> dict[str, float]:
    p = weights[weights > 0].double()
    spread, n = float(p.max().log() - p.min().log()), len(p)
    return {
        "attention_entropy": float(-(p * p.log()).sum()), "attention_largest": float(p.max()), "attention_spread": spread,
        "attention_upper": min(math.exp(spread) / n, 1), "attention_lower": math.exp(-spread) / n, "attention_keys": n,
    }  # fmt: skip
