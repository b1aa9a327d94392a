"""Max retrieval [velickovic2024softmax]: nets trained on short sets, asked about long ones, as they are and sharpened."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from thermocline import attention, softmax
from thermocline.attention import PLAIN, PUBLISHED, EffectiveItems, Rule, retrieval
from thermocline.experiments import beta_fit
from thermocline.experiments import retrieval as asked
from thermocline.record import Row, params

CANDIDATES = [
    EffectiveItems(target, edge) for target in (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0) for edge in (0.5, 0.75, 1.0, 1.5, 2.0)
]


def retrieved(device: torch.device) -> Iterator[tuple[int, Row]]:
    """Accuracy by rule and length, how far attention disperses, and the beta that would have served best.

    Our rule's two numbers are chosen on nets of other seeds, at lengths up to 256; all else is measured on fresh sets.
    """
    nets = retrieval.fit([*asked.CHOSEN_ON, *asked.SEEDS], steps=asked.STEPS, device=device)
    others, nets = nets[: len(asked.CHOSEN_ON)], nets[len(asked.CHOSEN_ON) :]
    ours = retrieval.choose(others, CANDIDATES, lengths=asked.CHOSEN_AT, count=asked.SETS, seed=10_000)
    assert isinstance(ours, EffectiveItems)
    rules = {"plain": PLAIN, "published": PUBLISHED, "ours": ours}
    for seed, net in zip(asked.SEEDS, nets):
        yield seed, Row.whole("", "rule_number", params(name="target"), ours.target)
        yield seed, Row.whole("", "rule_number", params(name="edge"), ours.edge)
        for n in asked.LENGTHS:
            yield from ((seed, row) for row in _at(net, rules, n, seed=20_000 + seed))
        yield from ((seed, row) for row in _fitted(net, seed=30_000 + seed))


def _at(net: retrieval.Net, rules: dict[str, Rule], n: int, *, seed: int) -> Iterator[Row]:
    found = retrieval.retrieve(net, list(rules.values()), n=n, count=asked.SETS, seed=seed)
    for i, name in enumerate(rules):
        yield Row.whole("", "retrieval_accuracy", params(rule=name, n=n), found.right[i].double().mean())
    logits, _ = retrieval.logits_at(net, n=n, count=asked.SETS // 4, seed=seed)
    largest = softmax.softmax(logits.double(), dim=1, temperature=1.0).amax(1)
    bound = (logits.amax(1) - logits.amin(1)).double().exp() / n
    yield Row.whole("", "retrieval_entropy", params(n=n), found.entropy[0].double().mean())
    yield Row.whole("", "retrieval_largest", params(n=n), largest.mean())
    yield Row.whole("", "retrieval_room", params(n=n), (bound - largest).amin())


def _fitted(net: retrieval.Net, *, seed: int) -> Iterator[Row]:
    """The best beta by entropy, as a polynomial of degree 4."""
    rows = [retrieval.logits_at(net, n=n, count=asked.SETS // 4, seed=seed + n) for n in beta_fit.LENGTHS]
    rule = attention.fit_beta(rows, degree=4, bounds=beta_fit.BOUNDS, length=False).rule
    for entropy in beta_fit.ENTROPIES:
        given = torch.tensor([float(entropy)], dtype=torch.float64)
        yield Row.whole("", "best_beta", params(H=float(entropy)), rule(given, given)[0])
