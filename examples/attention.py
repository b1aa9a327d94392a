"""A transformers model: which heads disperse as prompts grow, and what changes once their layer is sharpened?

The model here is small and its weights are random, so that nothing is downloaded. Put your own in its place, say
`AutoModelForCausalLM.from_pretrained(...)`, with prompts from its tokenizer.

    pip install -c constraints.txt '.[hf,report]'        # in the clone
    python examples/attention.py             # tables, and the page attention.html
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from thermocline.integrations import dispersion
from thermocline.integrations import transformers as hot

torch.manual_seed(0)
size = {"vocab_size": 200, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(**size, initializer_range=0.15, bos_token_id=0, eos_token_id=None)).eval()
prompts = [{"input_ids": torch.randint(200, (4, length))} for length in (32, 128, 512)]

found = dispersion.scan(model, prompts)
print(found.table())
print(found.write("attention.html"))

worst = max(found.heads, key=lambda head: head.slope or 0.0)
layer = worst.depth - 1  # tables count layers from 1, models from 0
plain = model.generate(**prompts[0], max_new_tokens=5, do_sample=False)
hot.enable(model, layers=[layer])  # its temperature now follows its entropy, at inference
sharpened = model.generate(**prompts[0], max_new_tokens=5, do_sample=False)
hot.disable(model)
changed = int((plain != sharpened).sum())
print(f"with layers=[{layer}] sharpened {changed} of the 20 new tokens are others")
