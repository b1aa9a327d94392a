"""Adaptive attention inside small random models of transformers: switched on and off, cached, masked, by layer and head."""

import copy

import pytest
import torch

pytest.importorskip("transformers")
import attention_cases as cases

from thermocline import attention
from thermocline.integrations import transformers as hot
from thermocline.spec import InputError

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers' own
SHARPER = attention.Fixed(3.0)


def test_an_early_transformers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.__version__", "4.55.4")
    with pytest.raises(InputError, match=r"needs transformers 4\.56 or newer, and there is 4\.55\.4"):
        hot.library()


def small(name: str, scale: float = 0.02):
    return cases.model(name, scale=scale)


def tokens(gen: torch.Generator, length: int = 17) -> dict[str, torch.Tensor]:
    return cases.padded(gen, "left", length)


@torch.no_grad()
def logits(model, inputs) -> torch.Tensor:
    return model(**inputs).logits


@pytest.mark.parametrize("name", ["llama", "gemma", "gpt2", "mistral"])
def test_beta_one_is_the_model_and_disabling_restores_it(gen: torch.Generator, name: str) -> None:
    """Causal masks, padding, windows and grouped heads all arrive; a lost mask would show here."""
    model, inputs = small(name), tokens(gen)
    before, implementation = logits(model, inputs), model.config._attn_implementation
    seen = inputs["attention_mask"].bool()
    hot.enable(model, rule=attention.PLAIN)
    torch.testing.assert_close(logits(model, inputs)[seen], before[seen], rtol=1e-4, atol=1e-5)
    hot.enable(model, rule=SHARPER)
    assert not torch.allclose(logits(model, inputs)[seen], before[seen], rtol=1e-3, atol=1e-4)
    hot.disable(model)
    assert torch.equal(logits(model, inputs), before)
    assert model.config._attn_implementation == implementation
    hot.disable(model)


def test_future_tokens_change_nothing(gen: torch.Generator) -> None:
    model, inputs = small("llama"), tokens(gen)
    hot.enable(model)
    inputs["attention_mask"][:] = 1
    other = {**inputs, "input_ids": inputs["input_ids"].clone()}
    other["input_ids"][:, -1] = (other["input_ids"][:, -1] + 1) % cases.WORDS
    torch.testing.assert_close(logits(model, other)[:, :-1], logits(model, inputs)[:, :-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma", "gpt2"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generating_with_a_cache_is_generating_without(gen: torch.Generator, name: str, cache: str) -> None:
    if (name, cache) == ("gpt2", "static"):
        pytest.skip("GPT-2 is tried with a dynamic cache")
    model, inputs = small(name), tokens(gen, 9)
    hot.enable(model, rule=SHARPER)
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with torch.no_grad():
        slow = model.generate(**inputs, **options, use_cache=False)
        quick = model.generate(**inputs, **options, cache_implementation=cache)
    assert torch.equal(slow, quick)


def test_a_copy_is_sharpened_as_its_model_is(gen: torch.Generator) -> None:
    model, inputs = small("llama"), tokens(gen)
    before = logits(model, inputs)
    hot.enable(model, rule=SHARPER, layers=[1])
    sharp, copied = logits(model, inputs), copy.deepcopy(model)
    hot.disable(model)
    assert torch.equal(logits(copied, inputs), sharp)
    hot.disable(copied)
    assert torch.equal(logits(copied, inputs), before)
    assert copied.config._attn_implementation == "sdpa"


def test_enabling_holds_after_another_attention_was_set(gen: torch.Generator) -> None:
    model, inputs = small("llama"), tokens(gen)
    hot.enable(model, rule=SHARPER)
    sharp = logits(model, inputs)
    model.set_attn_implementation("eager")
    hot.enable(model, rule=SHARPER)
    assert torch.equal(logits(model, inputs), sharp)
    hot.disable(model)
    assert model.config._attn_implementation == "eager"


def test_autocast_changes_nothing_but_precision(gen: torch.Generator) -> None:
    """Without a cache, rotated queries come in float32 and values in bfloat16."""
    model, inputs = small("llama"), tokens(gen)
    hot.enable(model)
    with torch.no_grad():
        wanted = model(**inputs, use_cache=False).logits
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = model(**inputs, use_cache=False).logits
    torch.testing.assert_close(found.float(), wanted, rtol=5e-2, atol=5e-3)


@pytest.mark.parametrize("head", [4, -1])
def test_a_head_that_is_not_there_is_said(gen: torch.Generator, head: int) -> None:
    model, inputs = small("llama"), tokens(gen)
    before = model.config._attn_implementation
    with pytest.raises(InputError, match=f"no head {head}: attention layer 0 has 0 to 3"):
        hot.enable(model, heads=[0, head])
    assert model.config._attn_implementation == before
    model.config.num_attention_heads = 8  # where a configuration does not tell, it is seen when the layer runs
    hot.enable(model, heads=[0, 7])
    with pytest.raises(InputError, match="no head 7: LlamaAttention has 0 to 3"):
        logits(model, inputs)


def test_layers_and_heads_can_be_chosen(gen: torch.Generator) -> None:
    model, inputs = small("llama"), tokens(gen)
    before = logits(model, inputs)
    hot.enable(model, rule=SHARPER, heads=[])
    torch.testing.assert_close(logits(model, inputs), before, rtol=1e-4, atol=1e-5)
    hot.enable(model, rule=SHARPER, heads=range(4))
    everywhere = logits(model, inputs)
    hot.enable(model, rule=SHARPER)
    torch.testing.assert_close(logits(model, inputs), everywhere, rtol=1e-5, atol=1e-6)
    hot.enable(model, rule=SHARPER, layers=[2])
    assert not torch.allclose(logits(model, inputs), everywhere, atol=1e-5)
    for wrong, message in (
        ({"layers": ["a", 9]}, "no attention layer 9: this model has 0 to 2"),
        ({"heads": ["a", 1]}, "numbers"),
    ):
        with pytest.raises(InputError, match=message):
            hot.enable(model, **wrong)
    with pytest.raises(InputError, match="no attention layer 7: this model has 0 to 2"):
        hot.enable(model, layers=[7])


def test_images_attend_in_all_directions(gen: torch.Generator) -> None:
    model, pixels = small("vit"), {"pixel_values": torch.randn(3, 3, 16, 16, generator=gen)}
    before = logits(model, pixels)
    hot.enable(model, rule=attention.PLAIN)
    torch.testing.assert_close(logits(model, pixels), before, rtol=1e-4, atol=1e-5)
    hot.enable(model, rule=SHARPER)
    sharper = logits(model, pixels)
    assert not torch.allclose(sharper, before, atol=1e-5)
    hot.enable(model, rule=SHARPER, backend="reference")
    torch.testing.assert_close(sharper, logits(model, pixels), rtol=1e-4, atol=1e-5)
    hot.disable(model)
    assert torch.equal(logits(model, pixels), before)


def stepwise(model, ids: torch.Tensor, cache: str | None) -> torch.Tensor:
    """Logits of the last tokens: all but three at once, then one at a time, from a cache."""
    lengths = [ids.shape[1] - 3, 1, 1, 1]
    kit = hot.library()
    kept = kit.StaticCache(config=model.config, max_cache_len=64) if cache == "static" else kit.DynamicCache()
    found = []
    with torch.no_grad():
        for part in ids.split(lengths, 1):
            found.append(model(part, past_key_values=kept, use_cache=True).logits[:, -1])
    return torch.stack(found, 1)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "gemma", "mistral", "gpt2"])
def test_every_backend_gives_the_reference_token_by_token(gen: torch.Generator, name: str, cache: str) -> None:
    """On a GPU in float16: kernels of our own where there is no mask, stock ones elsewhere; both round beta q."""
    device, dtype, gap = ("cuda", torch.float16, 0.15) if torch.cuda.is_available() else ("cpu", torch.float32, 1e-4)
    model, ids = small(name, scale=0.3).to(device, dtype), torch.randint(cases.WORDS, (2, 30), generator=gen).to(device)
    found = {}
    for backend in ("auto", "reference"):
        hot.enable(model, rule=attention.EffectiveItems(1.5), backend=backend)
        found[backend] = stepwise(model, ids, cache)
    torch.testing.assert_close(found["auto"], found["reference"], rtol=gap, atol=gap)
    hot.disable(model)
    assert not torch.allclose(stepwise(model, ids, cache), found["auto"], rtol=gap, atol=gap)


def test_linear_attention_is_left_as_it_is_and_said(gen: torch.Generator) -> None:
    kinds = ["linear_attention", "full_attention", "linear_attention"]
    kit = hot.library()
    text = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = kit.MiniMaxConfig(**text, num_key_value_heads=2, head_dim=8, num_local_experts=2, layer_types=kinds)
    with torch.random.fork_rng(devices=[]):
        model = kit.MiniMaxForCausalLM(config).eval()
    with pytest.warns(UserWarning, match="MiniMaxLightningAttention lets no other way to attend be chosen"):
        hot.enable(model, rule=SHARPER)
    assert list(hot.attention_layers(model)) == [1]
    with pytest.raises(InputError, match="there is no attention layer 0: this model has 1 to 1"):
        hot.enable(model, layers=[0])


def test_what_cannot_be_done_says_so(gen: torch.Generator) -> None:
    with pytest.raises(InputError, match="no attention layer was found in Linear"):
        hot.attention_layers(torch.nn.Linear(2, 2, device="meta"))
    with pytest.raises(InputError, match="models of transformers, and was given a MultiheadAttention; .*adaptive_attention"):
        hot.enable(torch.nn.MultiheadAttention(8, 2, device="meta"))
    model = small("llama")
    with pytest.raises(InputError, match="unknown rule 'publishd'; did you mean 'published'"):
        hot.enable(model, rule={1: "publishd"})
    with pytest.raises(InputError, match="backend must be one of auto"):
        hot.enable(model, backend="tritn")
