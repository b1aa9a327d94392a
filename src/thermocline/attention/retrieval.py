"""Max retrieval: say the class of the item of highest priority, among more items than were ever seen in training.

The task and the net of [velickovic2024softmax], as functions of tensors and of a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from thermocline import softmax
from thermocline.attention.rules import Rule

CLASSES = 10
TRAINED = (5, 16)  # the least and the most items of a training set
_CHUNK = 2**18  # items whose features are held at a time when nothing is learned
_AHEAD = 256  # steps whose sets are drawn at a time
_EAGER = 10  # steps before the rest are recorded: the optimiser has its state by then, and libraries their workspaces


class Sets(NamedTuple):
    """Sets of items with a query each, and the item of each that has the highest priority."""

    items: Float[Tensor, "b n f"]
    query: Float[Tensor, "b 1"]
    best: Int[Tensor, "b"]

    @property
    def labels(self) -> Int[Tensor, "b"]:
        """The class of the best item: the answer."""
        kinds = self.items[..., 1:].argmax(-1)
        return kinds.gather(1, self.best[:, None]).squeeze(1)


def draw_sets(count: int, n: int, generator: torch.Generator) -> Sets:
    """Items [priority | onehot(class)] and query scalars; priorities and queries are uniform on (0, 1).

        x_i = [rho_i | onehot(kappa_i)],   answer = kappa of argmax_i rho_i   [velickovic2024softmax]

    >>> sets = draw_sets(2, 5, torch.Generator().manual_seed(0))
    >>> sets.items.shape, sets.items[..., 1:].sum(-1).unique(), sets.best.shape
    (torch.Size([2, 5, 11]), tensor([1.]), torch.Size([2]))
    """
    place = generator.device
    priority = torch.rand(count, n, generator=generator, device=place)
    kinds = torch.randint(CLASSES, (count, n), generator=generator, device=place)
    items = torch.cat([priority[..., None], functional.one_hot(kinds, CLASSES).float()], -1)
    return Sets(items, torch.rand(count, 1, generator=generator, device=place), priority.argmax(1))


Net = Mapping[str, Tensor]  # weights (in, out) and biases by name


def draw_net(generator: torch.Generator, *, width: int = 128) -> Net:
    """Weights before training: normal with variance 1 / inputs, biases 0 [lecun1998efficient, Sec. 4.6].

    >>> net = draw_net(torch.Generator().manual_seed(0), width=8)
    >>> net["item.0"].shape, net["head.1"].shape
    (torch.Size([11, 8]), torch.Size([8, 10]))
    """
    sizes = {"item.0": (1 + CLASSES, width), "query.0": (1, width), "head.1": (width, CLASSES)}
    sizes |= dict.fromkeys(["item.1", "query.1", "to_query", "to_key", "to_value", "head.0"], (width, width))
    drawn = {name: torch.randn(size, generator=generator) / math.sqrt(size[0]) for name, size in sorted(sizes.items())}
    biases = {f"{name}.bias": torch.zeros(size[1]) for name, size in sizes.items() if name != "to_key"}
    return drawn | biases


def attend(net: Net, sets: Sets) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n d"]]:
    """The logits of the one head, and the features of the items that it mixes.

        e_i = (W_q g(q)) . (W_k h(x_i)) / sqrt(d),   g, h two layers with GELU    [velickovic2024softmax]

    >>> e, h = attend(draw_net(torch.Generator().manual_seed(0)), draw_sets(2, 5, torch.Generator().manual_seed(1)))
    >>> e.shape, h.shape
    (torch.Size([2, 5]), torch.Size([2, 5, 128]))
    """
    features, asked = _layers(net, "item", sets.items), _layers(net, "query", sets.query)
    asked = asked @ net["to_query"] + net["to_query.bias"]
    # W_k goes over to the query's side, where there is one row and not n; a bias of keys shifts a row, which changes nothing.
    key = asked @ net["to_key"].T / math.sqrt(asked.shape[1])
    return (features @ key[..., None]).squeeze(-1), features


def answer(net: Net, features: Float[Tensor, "b n d"], weights: Float[Tensor, "b n"]) -> Float[Tensor, "b c"]:
    """Class logits of the mixture of items that attention weights make: W_v stands outside the sum, as it is linear.

    >>> net = draw_net(torch.Generator().manual_seed(0))
    >>> answer(net, torch.zeros(2, 5, 128), torch.full((2, 5), 0.2)).shape
    torch.Size([2, 10])
    """
    mixed = (weights[:, None] @ features).squeeze(1) @ net["to_value"] + net["to_value.bias"]
    hidden = functional.gelu(mixed @ net["head.0"] + net["head.0.bias"])
    return hidden @ net["head.1"] + net["head.1.bias"]


def fit(
    seeds: Sequence[int],
    *,
    steps: int,
    batch: int = 128,
    lr: float = 1e-3,
    weight_decay: float = 1e-3,
    width: int = 128,
    device: str | torch.device = "cpu",
) -> list[Net]:
    """Nets trained side by side, one from each seed, on sets of 5 to 16 items with AdamW [loshchilov2019decoupled].

    One size a batch; cross-entropy of plain attention: no rule takes part in training [velickovic2024softmax]. A net does not
    depend on which others are trained beside it, but for rounding. On a GPU a step is one CUDA graph.

    >>> [net["item.0"].shape for net in fit([0, 1], steps=1, batch=2, width=4)]
    [torch.Size([11, 4]), torch.Size([11, 4])]
    """
    if steps < 1 or not seeds:
        raise ValueError(f"training takes a step and a seed at least, got {steps} steps and {len(seeds)} seeds")
    drawn = [draw_net(torch.Generator().manual_seed(seed), width=width) for seed in seeds]
    nets = {name: torch.stack([net[name] for net in drawn]).to(device).requires_grad_() for name in drawn[0]}
    optimizer = torch.optim.AdamW(
        nets.values(), lr=lr, weight_decay=weight_decay, capturable=torch.device(device).type == "cuda"
    )
    lessons = _lessons(seeds, batch, steps, torch.device(device))
    now = tuple(part.clone() for part in next(lessons))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.func.vmap(_loss)(nets, *now).sum().backward()
        optimizer.step()

    advance = step
    for done, lesson in enumerate(lessons):
        for part, new in zip(now, lesson):
            part.copy_(new)
        advance = _graphed(step) if now[0].is_cuda and done == _EAGER else advance
        advance()
    return [{name: weight.detach()[i] for name, weight in nets.items()} for i in range(len(seeds))]


def _lessons(seeds: Sequence[int], batch: int, steps: int, device: torch.device) -> Iterator[tuple[Tensor, ...]]:
    """The items, queries and sizes of every step for every seed, after one of the first step to see what they are like."""
    generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
    least, most = TRAINED
    for start in range(0, steps, _AHEAD):
        count = min(_AHEAD, steps - start)
        drawn = [draw_sets(count * batch, most, generator) for generator in generators]
        items = torch.stack([sets.items.unflatten(0, (count, batch)) for sets in drawn], 1)
        query = torch.stack([sets.query.unflatten(0, (count, batch)) for sets in drawn], 1)
        sizes = [torch.randint(least, most + 1, (count,), generator=one, device=device) for one in generators]
        parts = items, query, torch.stack(sizes, 1)
        if start == 0:
            yield tuple(part[0] for part in parts)
        yield from zip(*parts)


def _loss(net: Net, items: Tensor, query: Tensor, n: Tensor) -> Tensor:
    """Cross-entropy on sets of the first n items."""
    hidden = torch.arange(items.shape[1], device=items.device) >= n
    sets = Sets(items, query, items[..., 0].masked_fill(hidden, -1).argmax(1))
    logits, features = attend(net, sets)
    weights = torch.softmax(logits.masked_fill(hidden, -math.inf), 1)
    return functional.cross_entropy(answer(net, features, weights), sets.labels)


def _graphed(step: Callable[[], None]) -> Callable[[], None]:
    """The same step as one CUDA graph; recording it takes no step."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


class Retrieved(NamedTuple):
    """By rule and by set: was the answer right, and what weight and entropy did attention have. Equal columns are paired."""

    right: Bool[Tensor, "r b"]
    weight: Float[Tensor, "r b"]
    entropy: Float[Tensor, "r b"]


@torch.no_grad()
def retrieve(net: Net, rules: Sequence[Rule], *, n: int, count: int, seed: int) -> Retrieved:
    """The same `count` sets of n items, drawn from a seed, under each rule: accuracies over them are paired.

        right = [argmax_c answer_c = kappa_best],   weight = softmax(beta e)_best,   entropy of softmax(beta e)

    >>> from thermocline.attention.rules import PLAIN, PUBLISHED
    >>> retrieve(fit([0], steps=1)[0], [PLAIN, PUBLISHED], n=6, count=9, seed=1).right.shape
    torch.Size([2, 9])
    """
    parts: list[list[Tensor]] = [[], [], []]
    for sets in _chunks(net, n, count, seed):
        logits, features = attend(net, sets)
        lengths = torch.full_like(logits[:, 0], n)
        weights = [softmax.sharpened(logits, rule(softmax.entropy(logits), lengths)) for rule in rules]
        parts[0].append(torch.stack([answer(net, features, p).argmax(1) == sets.labels for p in weights]))
        parts[1].append(torch.stack([p.gather(1, sets.best[:, None]).squeeze(1) for p in weights]))
        parts[2].append(torch.stack([-torch.xlogy(p, p).sum(1) for p in weights]))
    return Retrieved(*(torch.cat(part, 1) for part in parts))


def choose(nets: Sequence[Net], rules: Sequence[Rule], *, lengths: Sequence[int], count: int, seed: int) -> Rule:
    """The rule that is right most often over some nets and lengths, which are no data to report it on; the first of equals.

    >>> from thermocline.attention.rules import PLAIN, Fixed
    >>> choose(fit([0], steps=1), [PLAIN, Fixed(1.0)], lengths=[6], count=9, seed=1).name
    'plain'
    """
    right = [retrieve(net, rules, n=n, count=count, seed=seed).right.double().mean(1) for net in nets for n in lengths]
    return rules[int(torch.stack(right).mean(0).argmax())]


@torch.no_grad()
def logits_at(net: Net, *, n: int, count: int, seed: int) -> tuple[Float[Tensor, "b n"], Int[Tensor, "b"]]:
    """Rows of attention logits and the best item of each: what `fit_beta` learns from.

    >>> e, best = logits_at(fit([0], steps=1)[0], n=6, count=9, seed=1)
    >>> e.shape, best.shape
    (torch.Size([9, 6]), torch.Size([9]))
    """
    pairs = [(attend(net, sets)[0], sets.best) for sets in _chunks(net, n, count, seed)]
    return torch.cat([e for e, _ in pairs]), torch.cat([best for _, best in pairs])


def _chunks(net: Net, n: int, count: int, seed: int) -> Iterator[Sets]:
    generator, size = torch.Generator(net["item.0"].device).manual_seed(seed), max(_CHUNK // n, 1)
    for start in range(0, count, size):
        yield draw_sets(min(size, count - start), n, generator)


def _layers(net: Net, name: str, x: Tensor) -> Tensor:
    for layer in (f"{name}.0", f"{name}.1"):
        x = functional.gelu(x @ net[layer] + net[f"{layer}.bias"])
    return x
