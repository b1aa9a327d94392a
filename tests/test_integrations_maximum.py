"""Find the maximum: the lists, the answers that count, the rules, the small model that stands in; and all of it by command."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("transformers")
import attention_cases as cases
from commands import thermocline
from report_cases import chromium, show

from thermocline import record
from thermocline.attention import PLAIN, PUBLISHED, EffectiveItems, Fixed
from thermocline.cli import app
from thermocline.integrations import dispersion, maximum, standin
from thermocline.integrations import transformers as hot
from thermocline.spec import InputError

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers' own
browser = pytest.fixture(chromium, scope="module")


@pytest.fixture(scope="module")
def taught() -> tuple:
    """A stand-in after a tenth of its training: it names most maxima of the lengths it has seen."""
    return standin.fit(0, steps=300, batch=64)


@pytest.fixture(scope="module")
def folder(taught: tuple, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models") / "tiny"
    for part in taught:
        part.save_pretrained(place)
    return place


def test_the_answer_is_the_largest_and_stands_once() -> None:
    for items in (1, 2, 7, 300):
        for one in maximum.questions(20, items, seed=3):
            numbers = [int(word.rstrip(".")) for word in one.text.split() if word.rstrip(".").isdigit()]
            assert len(numbers) == one.items == items
            assert max(numbers) == int(one.answer)
            assert numbers.count(max(numbers)) == 1
            assert min(numbers) >= maximum.LEAST
    assert maximum.questions(3, 9, seed=1) == maximum.questions(3, 9, seed=1) != maximum.questions(3, 9, seed=2)
    with pytest.raises(InputError, match="at least one number"):
        maximum.questions(1, 0, seed=0)


def test_length_does_not_give_the_answer_away() -> None:
    short, long = ([int(one.answer) for one in maximum.questions(2000, n, seed=0)] for n in (4, 256))
    assert abs(sum(short) / 2000 - sum(long) / 2000) < 2


def test_the_stand_in_learns_and_an_untrained_one_does_not(taught: tuple) -> None:
    model, words = taught
    asked = maximum.questions(100, 8, seed=5)
    (row,) = maximum.accuracy(model, words, asked, {"plain": PLAIN})
    assert row.params == "rule=plain,items=8,prompts=100"
    assert row.value > 0.6
    (blind,) = maximum.accuracy(standin.draw(0), words, asked, {"plain": PLAIN})
    assert blind.value < 0.1


def test_a_word_is_a_token(taught: tuple) -> None:
    _, words = taught
    ids = words("The numbers are 12 99. The largest of them is")["input_ids"]
    assert words.convert_ids_to_tokens(ids) == ["The", "numbers", "are", "12", "99", ".", "The", "largest", "of", "them", "is"]
    assert words.unk_token_id not in ids


def test_a_seed_gives_the_same_stand_in() -> None:
    one, other = (standin.fit(4, steps=2, batch=8)[0].state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_right_is_what_greedy_decoding_says(taught: tuple) -> None:
    """One token, and of answers as whole texts; under a rule too. The model is as before."""
    model, words = taught
    asked = maximum.questions(60, 40, seed=7)
    for rule in (PLAIN, Fixed(0.5)):
        (row,) = maximum.accuracy(model, words, asked, {"r": rule})
        hot.enable(model, rule=rule)
        ids = torch.tensor(words([one.text for one in asked])["input_ids"])
        said = model.generate(input_ids=ids, max_new_tokens=1, do_sample=False, pad_token_id=0)[:, -1]
        hot.disable(model)
        right = [words.decode(int(token)) == one.answer.strip() for token, one in zip(said, asked)]
        assert row.value == sum(right) / len(right)
        assert 0 < row.value < 1
    assert model.config._attn_implementation == "sdpa"


class Spelling:
    """A tokenizer of characters: an answer is several tokens."""

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) % cases.WORDS for letter in text]}


def test_every_token_of_an_answer_must_be_right(gen: torch.Generator) -> None:
    net = cases.model("llama", scale=1.0)
    net.config.max_position_embeddings = 4096
    words = Spelling()
    prompts = [one.text for one in maximum.questions(6, 3, seed=0)]
    ids = torch.tensor([words(text)["input_ids"] for text in prompts])
    said = net.generate(input_ids=ids, max_new_tokens=2, do_sample=False, pad_token_id=0, eos_token_id=None)[:, -2:]
    spelled = {ord(letter) % cases.WORDS: letter for letter in map(chr, range(33, 33 + cases.WORDS))}
    answers = ["".join(spelled[int(token)] for token in tokens) for tokens in said]
    asked = [maximum.Question(text, answer, 3) for text, answer in zip(prompts, answers)]
    (row,) = maximum.accuracy(net, words, asked, {"plain": PLAIN})
    assert row.value == 1.0
    flipped = [one._replace(answer=one.answer[:-1] + ("a" if one.answer[-1] != "a" else "b")) for one in asked]
    (row,) = maximum.accuracy(net, words, flipped, {"plain": PLAIN})
    assert row.value == 0.0


def test_answers_that_cannot_be_told_are_said_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending(Spelling):
        def __call__(self, text: str) -> dict[str, list[int]]:
            return {"input_ids": [*super().__call__(text)["input_ids"], 0]}

    monkeypatch.setattr(dispersion, "measured", lambda *_, **__: pytest.fail("measured before"))
    with pytest.raises(InputError, match="accuracy cannot be told: scan prompts of your own"):
        maximum.scan(cases.model("llama"), Ending(), lengths=[1], count=1)
    net = cases.model("llama")
    net.config.max_position_embeddings = 127  # a prompt of 126 and two letters of its answer are 128
    with pytest.raises(InputError, match="a prompt has 128 tokens"):
        maximum.scan(net, Spelling(), lengths=[29], count=1)


def test_effective_items_hold_each_head_to_what_it_had(taught: tuple) -> None:
    model, words = taught
    prompts = [ids for n in (8, 128) for ids, _ in maximum.tokenized(words, [q.text for q in maximum.questions(9, n, seed=0)])]
    rows = dispersion.measured(model, maximum.stacked(prompts), split="maximum")
    rules = maximum.effective_items(model, rows, most=20)
    assert sorted(rules) == [0, 1]
    assert all(isinstance(one, EffectiveItems) for one in rules[0].rules)
    assert [len(rule.rules) for rule in rules.values()] == [4, 4]
    entropy = torch.tensor([[one.target for one in rules[0].rules]]).log()[..., None]
    torch.testing.assert_close(rules[0](entropy + 1, entropy), torch.full((1, 4, 1), 2.71828))
    torch.testing.assert_close(rules[0](entropy, entropy), torch.ones(1, 4, 1))


def test_a_scan_has_both_and_is_kept(taught: tuple, tmp_path: Path) -> None:
    model, words = taught
    found = maximum.scan(model, words, lengths=[8, 32], count=5)
    rows = found.rows.to_pylist()
    assert {row["measure"] for row in rows} == {*dispersion.MEASURES, *maximum.MEASURES}
    assert {row["params"] for row in rows if row["measure"] == "maximum_accuracy"} == {
        f"rule={rule},items={n},prompts=5" for rule in ("plain", "published", "effective-items") for n in (8, 32)
    }
    assert "Maximum named" in found.write(tmp_path / "figure.svg").read_text()
    assert "Find the maximum" in found.write(tmp_path / "page.html").read_text()
    hot.enable(model, rule=PUBLISHED)
    with pytest.raises(InputError, match="adaptive already"):
        maximum.accuracy(model, words, maximum.questions(1, 2, seed=0), {"plain": PLAIN})
    hot.disable(model)


def test_the_page_opens_in_a_browser(taught: tuple, browser, tmp_path: Path) -> None:
    found = maximum.scan(*taught, lengths=[8, 32], count=3)
    shown = show(browser, found.write(tmp_path / "page.html"))
    assert shown.locator(".chart.drawn svg").count() == 5
    assert "6 inputs, last token of each" in shown.inner_text("header")


def test_by_command(folder: Path, tmp_path: Path) -> None:
    printed = thermocline(
        "scan", "--attention", str(folder), "--lengths", "16,8", "--count", "3", "--device", "cpu", cwd=tmp_path
    )
    for words in ("find the maximum", "effective items", "log n", "report: scan/attention.html", "figure: scan/attention.svg"):
        assert words in printed
    for words in ("plain: the model as it is", "published: every head sharpened", "effective-items: every head held to"):
        assert words in printed
    assert ("heads that disperse fastest" in printed) == ("0 of 8 heads" not in printed)
    rows = record.load_rows(tmp_path / "scan").to_pylist()
    assert {row["net"] for row in rows} == {"tiny"}
    assert (tmp_path / "scan" / "attention.html").stat().st_size > 100_000
    assert "holds an earlier scan" in thermocline("scan", "--attention", str(folder), cwd=tmp_path, code=2)
    said = thermocline("scan", "--attention", "nowhere", "--out", "/proc/x", cwd=tmp_path, code=2)
    assert "nothing can be written in /proc" in said, "before the model is read"


@pytest.mark.parametrize("ending", ["txt", "jsonl"])
def test_prompts_from_a_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    monkeypatch.chdir(tmp_path)
    texts = ["The numbers are 12", "The largest of them is 45 67"]
    lines = texts if ending == "txt" else [json.dumps({"text": text}) for text in texts]
    Path(f"mine.{ending}").write_text("\n\n".join(lines))
    words = ["scan", str(folder), "--attention", "--prompts", f"mine.{ending}", "--out", "out", "--device", "cpu"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    rows = record.load_rows("out").to_pylist()
    assert {row["split"] for row in rows} == {"mine"}
    assert {row["params"].split(",")[1] for row in rows} == {"n=4", "n=7"}
    assert {row["measure"] for row in rows} == set(dispersion.MEASURES)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine:net"], "name the data the classifier was trained on with --data, or give --attention"),
        (["mine:net", "--data", "runes", "--prompts", "p.txt"], "--prompts is for language models: give --attention too"),
        (["mine:net", "--data", "runes", "--lengths", "8"], "--lengths is for language models"),
        (["TINY", "--attention", "--data", "runes"], "--data is for classifiers and does not go with --attention"),
        (["TINY", "--attention", "--temperature", "2"], "--temperature is for classifiers"),
        (["TINY", "--attention", "--data-dir", "x"], "--data-dir is for classifiers"),
        (["TINY", "--attention", "--prompts", "p.txt", "--count", "2"], "--count is for the built-in lists"),
        (["TINY", "--attention", "--lengths", "8,x"], "--lengths takes whole numbers above 0, e.g. 8,16,32; got '8,x'"),
        (["TINY", "--attention", "--lengths", "0"], "--lengths takes whole numbers above 0"),
        (["TINY", "--attention", "--prompts", "nowhere.txt"], "cannot read prompts from nowhere.txt: No such file"),
        (["TINY", "--attention", "--prompts", "empty.txt"], "empty.txt holds no prompts"),
        (["TINY", "--attention", "--prompts", "binary.txt"], "binary.txt is not UTF-8 text"),
        (["TINY", "--attention", "--prompts", "bad.jsonl"], 'bad.jsonl, line 2: expected a JSON object with a "text"'),
        (
            ["TINY", "--attention", "--lengths", "140000", "--count", "1"],
            "has positions for 131072: give shorter prompts, or of lists smaller --lengths",
        ),
        (["nowhere", "--attention"], "nowhere is no folder, nor the name of a model in the local cache; nothing is fetched"),
        (["TINY", "--attention", "--out", "p.txt/here"], "p.txt is a file, and --out a folder"),
        (["blank", "--attention"], "blank holds no transformers model"),
        (["images", "--attention"], "images has no tokenizer"),
        (["speechless", "--attention"], "speechless has no tokenizer (no tokenizer files): save one there, or measure"),
        (["weightless", "--attention"], "the weights of weightless cannot be read"),
        (["TINY", "--attention", "--device", "cudda"], "did you mean 'cuda'"),
    ],
)
def test_bad_input_is_one_clear_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text(" \n\n")
    Path("p.txt").write_text("The numbers are 12")
    Path("binary.txt").write_bytes(b"\xff\xfe\x00\x01")
    Path("bad.jsonl").write_text('{"text": "The"}\n["no text"]\n')
    Path("blank").mkdir()
    if "images" in words:
        cases.model("vit").save_pretrained("images")
    if "speechless" in words:
        cases.model("gpt2").save_pretrained("speechless")
    Path("weightless").mkdir()
    for file in folder.iterdir():
        if file.suffix == ".json":
            (Path("weightless") / file.name).write_bytes(file.read_bytes())
    words = [str(folder) if word == "TINY" else word for word in words]
    done = CliRunner().invoke(app, ["scan", *words, *([] if "--device" in words else ["--device", "cpu"])])
    assert isinstance(done.exception, InputError), done.output
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not Path("scan").exists()
