"""A small language model that finds the maximum, trained here: it stands in where the weights of a large one cannot be had.

from thermocline.integrations import standin
model, tokenizer = standin.fit(0, steps=3000)      # two minutes on one CPU core
model.save_pretrained("tiny"), tokenizer.save_pretrained("tiny")
# thermocline scan --attention tiny --lengths 16,32,64,128,256,512,1024 --count 256
"""

from __future__ import annotations

from typing import Any

import torch
from rich.progress import track
from torch import Tensor
from torch.nn import functional

from thermocline.integrations import maximum
from thermocline.integrations import transformers as hot

TRAINED = (5, 16)  # the least and the most numbers of a list in training, as in max retrieval [velickovic2024softmax]
_POSITIONS = 2**17  # it has no encodings of them; this says how long a prompt may be


def tokenizer() -> Any:
    """A word is a token: the numbers, the words of the prompt, its full stop."""
    transformers = hot.library()
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = list(dict.fromkeys(maximum.questions(1, 1, seed=0)[0].text.replace(".", " .").split()))
    words = ["<unknown>", *(word for word in words if not word.isdigit()), *map(str, range(maximum.LEAST, maximum.MOST + 1))]
    known = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0]))
    known.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=known, unk_token=words[0])


def draw(seed: int) -> Any:
    """The model before training: a Llama with grouped heads and no encodings of positions.

    Lists longer than any in training have positions never seen, at which rotary encodings fail whatever attention does.
    The answer does not hang on positions, so that a model without them is one on which length alone acts, by dispersion.
    """
    transformers = hot.library()
    config = transformers.SmolLM3Config(
        vocab_size=len(tokenizer()), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, no_rope_layers=[0, 0],
        max_position_embeddings=_POSITIONS, pad_token_id=None, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # that of the CPU alone: `torch.manual_seed` would seed every GPU too
        return transformers.SmolLM3ForCausalLM(config)


def fit(seed: int, *, steps: int, batch: int = 128, lr: float = 2e-3, progress: bool = False) -> tuple[Any, Any]:
    """A model trained from a seed on lists of 5 to 16 numbers, one length a batch, and its tokenizer.

    Cross-entropy of the answer alone; AdamW [loshchilov2019decoupled] with a rate that rises for 200 steps and falls
    linearly to 0.
    """
    model, words = draw(seed).train(), tokenizer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-3)
    generator = torch.Generator().manual_seed(seed)
    for step in track(range(steps), "training the stand-in", disable=not progress):
        items = int(torch.randint(TRAINED[0], TRAINED[1] + 1, (), generator=generator))
        drawn = int(torch.randint(2**31, (), generator=generator))
        ids, answers = _lists(words, maximum.questions(batch, items, seed=drawn))
        loss = functional.cross_entropy(model(ids, use_cache=False, logits_to_keep=1).logits[:, 0], answers)
        for group in optimizer.param_groups:
            group["lr"] = lr * min((step + 1) / 200, 1) * (1 - step / steps)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval(), words


def _lists(words: Any, asked: list[maximum.Question]) -> tuple[Tensor, Tensor]:
    """Prompts of one length as token ids, and the token that answers each."""
    ids = torch.tensor(words([one.text + one.answer for one in asked])["input_ids"])
    return ids[:, :-1], ids[:, -1]
