"""Dispersion of whole models: the rows are those of the weights themselves, and the model is as it was."""

import copy
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")
import attention_cases as cases
from typer.testing import CliRunner

from thermocline import attention, record, report
from thermocline.cli import app
from thermocline.cli import attention as attending
from thermocline.integrations import dispersion, reading
from thermocline.integrations import transformers as hot
from thermocline.spec import InputError

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers' own
CAUSAL = {"llama": True, "mistral": True, "gpt2": True, "bert": False, "vit": False}


def by_place(found: dispersion.Diagnosis) -> dict[tuple, float]:
    """Values by measure, depth, head and length."""
    known = {}
    for row in found.rows.to_pylist():
        given = record.parameters(row["params"])
        known[row["measure"], row["depth"], int(given["head"]), int(given["n"])] = row["value"]
    return known


def test_what_was_found_shows_itself_as_a_sentence_and_as_tables(gen: torch.Generator) -> None:
    net = cases.model("llama")
    found = dispersion.scan(net, [torch.randint(8, (2, length), generator=gen) for length in (4, 16)])
    assert repr(found).startswith("Diagnosis(Mean entropy goes from ")
    assert len(repr(found)) < 300
    assert "attention, means over all heads" in found.table()
    assert {head.depth for head in found.heads} == set(found.rows["depth"].to_pylist())


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rows_are_those_of_the_weights(gen: torch.Generator, name: str, dtype: torch.dtype) -> None:
    """Grouped heads, windows, padding on either side, text and images, against what "eager" attention returns.

    All but BERT and GPT-2 take that softmax in float32 whatever they are in, where rows that see nothing in float64 are NaN.
    """
    net, given = cases.model(name, dtype), cases.inputs(name, gen, dtype)
    if name in ("llama", "mistral") and dtype == torch.float64:
        given = {"input_ids": given["input_ids"]}
    rtol = 1e-9 if name in ("bert", "gpt2") and dtype == torch.float64 else 2e-4
    found = by_place(dispersion.scan(net, [given]))
    wanted: dict[tuple, list[float]] = {}
    for depth, head, n, values in cases.directly(net, given, causal=CAUSAL[name]):
        for key, value in values.items():
            wanted.setdefault((key, depth, head, n), []).append(value)
    assert found.keys() == wanted.keys()
    for key, values in wanted.items():
        assert found[key] == pytest.approx(sum(values) / len(values), rel=rtol, abs=rtol), key


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt2"])
def test_a_rule_is_fitted_to_a_model_and_prompts(gen: torch.Generator, name: str) -> None:
    """Logits of last tokens are those whose softmax the model has for weights; what is fitted to them can be switched on."""
    net = cases.model(name)
    batches = [(torch.randint(40, (6, n), generator=gen), torch.randint(n - 4, n, (6,), generator=gen)) for n in (9, 14, 20)]
    rows = dispersion.labelled(net, batches)
    with torch.no_grad(), hot.attending_by(net, "eager"):
        weights = net(input_ids=batches[1][0], output_attentions=True).attentions
    assert set(rows) == {(layer, head) for layer in range(len(weights)) for head in range(weights[0].shape[1])}
    for (layer, head), kept in rows.items():
        assert [len(e) for e, _ in kept] == [6, 6, 6]
        torch.testing.assert_close(
            kept[1][0].softmax(1).to(weights[0].dtype), weights[layer][:, head, -1], rtol=1e-4, atol=1e-6
        )
        assert torch.equal(kept[1][1], batches[1][1])
    fitted = attention.fit_beta(
        rows[1, 0] + rows[1, 2], degree=1, bounds=(1.0, 10.0), length=name != "mistral"
    )  # whose window is all it sees
    assert len(fitted.beta) == 36
    before = net(input_ids=batches[0][0]).logits
    hot.enable(net, rule=fitted.rule, layers=[1], heads=[0, 2])
    with torch.no_grad():
        assert not torch.equal(net(input_ids=batches[0][0]).logits, before)
    hot.disable(net)
    with pytest.raises(InputError, match="one position below 9 is wanted of each of 6 prompts"):
        dispersion.labelled(net, [(batches[0][0], torch.full((6,), 9))])
    (listed, _), *_ = dispersion.labelled(net, [(batches[0][0], batches[0][1].tolist())])[1, 0]
    assert torch.equal(listed, rows[1, 0][0][0])
    for wrong in ([0.5] * 6, "last", torch.ones(6), 3):
        with pytest.raises(InputError, match="positions are whole numbers, one a prompt, as a tensor or a list"):
            dispersion.labelled(net, [(batches[0][0], wrong)])  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"a batch is \(ids, positions\), .* got a Tensor"):
        dispersion.labelled(net, [batches[0][0]])  # pyright: ignore[reportArgumentType]
    ahead = cases.model("bert")
    with pytest.raises(InputError, match="looks ahead too"):
        dispersion.labelled(ahead, [(cases.inputs("bert", gen, torch.float32), torch.zeros(2, dtype=torch.long))])


def test_rows_say_what_they_are(gen: torch.Generator) -> None:
    net = cases.model("llama")
    rows = dispersion.scan(net, [cases.padded(gen, "left")], split="mine").rows.to_pylist()
    assert {row["split"] for row in rows} == {"mine"}
    assert {row["measure"] for row in rows} == set(dispersion.MEASURES)
    assert {(row["layer"], row["depth"]) for row in rows} == {(f"model.layers.{i}.self_attn", i + 1) for i in range(3)}
    assert "head=3,n=8,queries=last,prompts=1" in {row["params"] for row in rows}
    images = dispersion.scan(cases.model("vit"), [cases.inputs("vit", gen)]).rows.to_pylist()
    assert images[0]["params"] == "head=0,n=17,queries=all,prompts=3"


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_padding_and_batches_change_nothing(gen: torch.Generator, name: str) -> None:
    net, given = cases.model(name, torch.float64), cases.padded(gen, "left" if name == "llama" else "right")
    together = by_place(dispersion.scan(net, [given]))
    alone = [ids[mask.bool()] for ids, mask in zip(given["input_ids"], given["attention_mask"])]
    apart = by_place(dispersion.scan(net, alone))
    assert together.keys() == apart.keys()
    close = 1e-4 if name == "llama" else 1e-9  # its norms and rotations are in float32 whatever it is in
    assert all(apart[key] == pytest.approx(value, rel=close, abs=close) for key, value in together.items())


def test_the_last_token_is_the_whole_prompt_s(gen: torch.Generator) -> None:
    """A window hides what is far: the bounds' n is how many keys are seen, not how many there are."""
    found = by_place(dispersion.scan(cases.model("mistral"), [torch.randint(cases.WORDS, (2, 17), generator=gen)]))
    assert {value for key, value in found.items() if key[0] == "attention_keys"} == {6}
    found = by_place(dispersion.scan(cases.model("llama"), [torch.randint(cases.WORDS, (2, 17), generator=gen)]))
    assert {value for key, value in found.items() if key[0] == "attention_keys"} == {17}


@settings(max_examples=25)
@given(scale=st.sampled_from([1e-6, 0.02, 0.3, 1.0]), length=st.integers(1, 40), name=st.sampled_from(list(CAUSAL)))
def test_no_weight_leaves_its_bounds(scale: float, length: int, name: str) -> None:
    """Lemma 2.1, and what follows for the entropy, for logits that are all equal to logits that are far apart."""
    gen = torch.Generator().manual_seed(length)
    net = cases.model(name, torch.float64, scale)
    given = cases.inputs(name, gen, torch.float64) if name == "vit" else torch.randint(cases.WORDS, (2, length), generator=gen)
    found = by_place(dispersion.scan(net, [given]))
    for measure, *place in found:
        entropy, largest, spread, upper, lower, keys = (found[name, *place] for name in dispersion.MEASURES)
        slack = 1e-9
        assert lower - slack <= 1 / keys <= largest + slack, measure
        assert largest <= upper * (1 + slack) <= 1 + slack
        assert math.log(keys) - spread - slack <= entropy <= math.log(keys) + slack


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_the_model_is_left_as_it_was(gen: torch.Generator, name: str, implementation: str) -> None:
    net, given = cases.model(name), cases.inputs(name, gen)
    net.set_attn_implementation(implementation)
    net.train()
    next(net.children()).eval()
    weights, settings_ = copy.deepcopy(net.state_dict()), net.config.to_json_string()
    modes = [module.training for module in net.modules()]
    dispersion.scan(net, [given])
    assert net.config._attn_implementation == implementation
    assert net.config.to_json_string() == settings_
    assert [module.training for module in net.modules()] == modes
    assert all(torch.equal(value, weights[key]) for key, value in net.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    with pytest.raises(InputError, match="no tokens"):
        dispersion.scan(net, [given, {key: value[..., :0] for key, value in given.items()}])
    assert net.config._attn_implementation == implementation


def test_a_failure_in_the_middle_restores_too(gen: torch.Generator) -> None:
    net = cases.model("llama").train()

    def broken(*_: object) -> None:
        raise RuntimeError("in the middle")

    net.get_decoder().layers[1].register_forward_pre_hook(broken)
    with pytest.raises(RuntimeError, match="in the middle"):
        dispersion.scan(net, [torch.randint(cases.WORDS, (1, 9), generator=gen)])
    assert net.config._attn_implementation == "sdpa"
    assert net.training


def test_parts_of_a_model_get_their_own_attention_back() -> None:
    """A model of two, of which one attends "eager" and one by "sdpa"."""
    kit = hot.library()
    tower = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = kit.CLIPConfig(
        text_config={**tower, "vocab_size": cases.WORDS, "max_position_embeddings": 32, "eos_token_id": 1},
        vision_config={**tower, "image_size": 16, "patch_size": 4}, projection_dim=8,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        net = kit.CLIPModel(config).eval()
    net.set_attn_implementation({"text_config": "eager", "vision_config": "sdpa"})
    parts = (net.config, net.config.text_config, net.config.vision_config)
    before = [one._attn_implementation for one in parts]
    with hot.attending_by(net, "eager"):
        assert {one._attn_implementation for one in parts} == {"eager"}
    assert [one._attn_implementation for one in parts] == before
    hot.enable(net)
    hot.disable(net)
    assert [one._attn_implementation for one in parts] == before


def test_long_prompts_do_not_need_their_square(gen: torch.Generator) -> None:
    """At 6,000 tokens one layer's logits would be 576 MB; blocks of rows are held instead, and of the logits the last row."""
    net = cases.model("llama")
    net.config.max_position_embeddings = 8192
    held: list[int] = []
    forward = net.lm_head.register_forward_hook(lambda module, given, out: held.append(out.shape[1]))
    found = dispersion.scan(net, [torch.randint(cases.WORDS, (1, 6000), generator=gen)])
    forward.remove()
    assert held == [1]
    assert len(found.rows) == 3 * 4 * len(dispersion.MEASURES)


def test_a_model_that_does_not_tell_its_words_is_scanned(gen: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    net, ids = cases.model("llama"), torch.randint(cases.WORDS, (1, 9), generator=gen)

    def several() -> None:
        raise NotImplementedError

    monkeypatch.setattr(net, "get_input_embeddings", several)  # as CLIP's, which has several
    assert dispersion.scan(net, [ids]).rows
    with pytest.raises(InputError, match="a prompt has token -.*, and there are none below 0"):
        dispersion.scan(net, [ids - cases.WORDS])


def test_what_cannot_be_measured_says_so(gen: torch.Generator) -> None:
    net, ids = cases.model("llama"), torch.randint(cases.WORDS, (1, 9), generator=gen)
    for batches, message in (
        ([], "there are no prompts"),
        (["text"], "its input_ids is a str: tokenize it first"),
        ([{"input_ids": ids.tolist()}], "its input_ids is a list: tokenize it first, with return_tensors='pt'"),
        ({"input_ids": ids}, "batches are several: put this dict into a list"),
        ([ids, ids + cases.WORDS], "a prompt has token .*, and LlamaForCausalLM knows 61"),
        ([ids - cases.WORDS], "a prompt has token -.*, and LlamaForCausalLM knows 61"),
        ([torch.zeros(1, 0, dtype=torch.long)], "a prompt has no tokens"),
        ([{"input_ids": ids, "attention_mask": torch.ones(1, 1, 9, 9)}], "attention_mask must be \\(prompts, tokens\\)"),
        ([{"input_ids": ids, "attention_mask": torch.zeros(1, 9)}], "nothing but padding"),
        ([torch.zeros(1, 129, dtype=torch.long)], "a prompt has 129 tokens, and LlamaForCausalLM has positions for 128"),
    ):
        with pytest.raises(InputError, match=message):
            dispersion.scan(net, batches)
    with pytest.raises(InputError, match="models of transformers, and was given a Linear"):
        dispersion.scan(torch.nn.Linear(2, 2, device="meta"), [ids])
    hot.enable(net)
    with pytest.raises(InputError, match="disable it first"):
        dispersion.scan(net, [ids])
    kit = hot.library()
    tiny = {"vocab_size": 61, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
            "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        bart = kit.BartModel(kit.BartConfig(**tiny))
        capped = kit.Gemma2ForCausalLM(kit.Gemma2Config(**{**cases.TEXT, **cases.GROUPED}))
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        blip = kit.Blip2ForConditionalGeneration(kit.Blip2Config(
            vision_config={**sizes, "intermediate_size": 16, "image_size": 16, "patch_size": 8},
            qformer_config={**sizes, "intermediate_size": 16, "encoder_hidden_size": 16, "vocab_size": 61},
            text_config={"model_type": "opt", **sizes, "ffn_dim": 16, "vocab_size": 61, "max_position_embeddings": 64,
                         "word_embed_proj_dim": 16},
            num_query_tokens=4, image_token_index=60,
        )).eval()  # fmt: skip
        endless = kit.XLNetModel(kit.XLNetConfig(vocab_size=61, d_model=16, n_layer=1, n_head=2, d_inner=16))
    both = torch.tensor([[60] * 4 + [*range(2, 7)]])  # images, then words
    with pytest.raises(InputError, match=r"give one of them by itself, e\.g\. model\.get_encoder\(\)"):
        dispersion.scan(bart, [ids])
    assert {row["layer"] for row in dispersion.scan(bart.get_encoder(), [ids]).rows.to_pylist()} == {"layers.0.self_attn"}
    with pytest.raises(InputError, match="does not let its attention be chosen"):
        dispersion.scan(endless, [ids])
    assert dispersion.scan(blip, [{"pixel_values": torch.zeros(1, 3, 16, 16), "input_ids": both}]).rows.num_rows
    with pytest.raises(InputError, match="changes its logits by a softcap"):
        dispersion.scan(capped, [ids])


def test_labels_are_left_aside(gen: torch.Generator) -> None:
    net, ids = cases.model("llama"), torch.randint(cases.WORDS, (2, 9), generator=gen)
    assert dispersion.scan(net, [{"input_ids": ids, "labels": ids}]).rows == dispersion.scan(net, [ids]).rows


def test_broken_weights_are_said_with_their_layer(gen: torch.Generator) -> None:
    net = cases.model("llama")
    with torch.no_grad():
        net.model.layers[1].self_attn.q_proj.weight[0] = torch.nan
    with pytest.raises(InputError, match="attention logits of model.layers.1.self_attn are not all finite"):
        dispersion.scan(net, [torch.randint(cases.WORDS, (1, 9), generator=gen)])


def test_within_a_window_entropy_is_held_against_the_keys_that_are_seen(gen: torch.Generator) -> None:
    found = dispersion.scan(cases.model("mistral"), [torch.randint(cases.WORDS, (1, n), generator=gen) for n in (12, 24)])
    titles, lines = reading.table(reading.heads(found.found))
    assert [line[titles.index("at most")] for line in lines] == [f"{math.log(6):.2f}"] * 2


def test_kept_read_back_and_drawn(gen: torch.Generator, tmp_path: Path) -> None:
    batches = [torch.randint(cases.WORDS, (2, n), generator=gen) for n in (8, 16, 32)]
    found = dispersion.scan(cases.model("llama"), batches, name="tiny")
    assert found.rows.schema == record.SCHEMA
    there = found.save(tmp_path / "run")
    assert record.load_rows(there) == found.rows
    with pytest.raises(InputError, match=f"no runs to report on; .*left out: {there} is a scan of attention, .*drawing.save"):
        report.render(there, tmp_path / "classifier.html")
    with pytest.raises(InputError, match="holds an earlier scan"):
        found.save(tmp_path / "run")
    page = found.write(tmp_path / "attention.html").read_text()
    for words in (
        "Attention of tiny",
        "3 layers, 12 heads",
        "Heads that disperse fastest",
        "min(exp(delta) / n, 1)",
        "vegaEmbed",
    ):
        assert words in page
    assert "Find the maximum" not in page
    svg = found.write(tmp_path / "figure.svg").read_text()
    assert svg.startswith("<svg")
    assert "Largest weight" in svg
    assert "var(--" not in svg
    assert 'fill="#000"' not in svg, "every word has a colour that the page turns in the dark, the legend's title too"
    assert found.write(tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert found.write(tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(InputError, match="end its name in one of .html, .svg, .png, .pdf"):
        found.write(tmp_path / "figure.docx")


def test_the_report_verb_draws_a_scan_that_was_kept(gen: torch.Generator, tmp_path: Path) -> None:
    found = dispersion.scan(cases.model("llama"), [torch.randint(cases.WORDS, (2, 8), generator=gen)], name="tiny")
    found.save(tmp_path / "runs/mine")
    more = ["-o", str(tmp_path / "a.html"), "--figures", str(tmp_path / "figures")]
    called = CliRunner().invoke(app, ["report", str(tmp_path / "runs"), *more])
    assert called.exit_code == 0, called.output
    assert {file.suffix for file in (tmp_path / "figures").iterdir()} == {".svg", ".png", ".pdf"}
    assert (tmp_path / "a.html").read_text() == found.write(tmp_path / "b.html").read_text()
    found.save(tmp_path / "runs/other")
    with pytest.raises(InputError, match=r"mine is a scan of attention, .*; left out: .*other is a scan of attention"):
        report.load(tmp_path / "runs")
    with pytest.raises(InputError, match="drawn as a page: it cannot be written as md"):
        attending.report([str(tmp_path / "runs/mine")], tmp_path / "a.md", None, "md")


def test_reading_tells_dispersing_heads_from_sharp_ones() -> None:
    lengths = (16, 64, 256)
    flat = {n: math.log(n) for n in lengths}
    sharp = dict.fromkeys(lengths, 0.1)
    found = [
        reading.Head(1, "a", head, {f"attention_{name}": curve for name in ("entropy", "largest", "upper", "spread", "keys")})
        for head, curve in enumerate([flat, sharp])
    ]
    assert found[0].slope == pytest.approx(1)
    assert found[1].slope == pytest.approx(0, abs=1e-12)
    assert "1 of 2 heads take up at least half" in reading.sentence(found)
    assert [line[:3] for line in reading.steepest(found)[1]] == [("1 (a)", "0", "1.00")]
    one = reading.Head(1, "a", 0, {"attention_entropy": {16: 1.0}, "attention_keys": {16: 4.0}})
    assert one.slope is None
    assert "One length only, n = 16: entropy 1.00 of at most 1.39 nats" in reading.sentence([one])


def test_rules_by_layer_and_head(gen: torch.Generator) -> None:
    """A rule of its own for each: heads left at 1 are those of the model."""
    net, given = cases.model("llama"), {"input_ids": torch.randint(cases.WORDS, (1, 12), generator=gen)}

    @torch.no_grad()
    def logits() -> torch.Tensor:
        return net(**given).logits

    before, four = logits(), (attention.PLAIN,) * 4
    hot.enable(net, rule={2: hot.ByHead(four)})
    torch.testing.assert_close(logits(), before, rtol=1e-4, atol=1e-5)
    hot.enable(net, rule={2: hot.ByHead((attention.Fixed(3.0), *four[1:]))})
    one = logits()
    hot.enable(net, rule=attention.Fixed(3.0), layers=[2], heads=[0])
    torch.testing.assert_close(logits(), one, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(one, before, atol=1e-4)
    with pytest.raises(InputError, match="leave layers= out"):
        hot.enable(net, rule={2: attention.PLAIN}, layers=[2])
    with pytest.raises(InputError, match="no attention layer 9"):
        hot.enable(net, rule={9: attention.PLAIN})
