"""Max retrieval: the task says what it should, training is a function of its seed, and rules meet the same sets."""

import math

import pytest
import torch

from thermocline.attention import PLAIN, PUBLISHED, EffectiveItems, Fixed, fit_beta, retrieval


@pytest.fixture(scope="module")
def net() -> retrieval.Net:
    return retrieval.fit([7], steps=250, width=64)[0]


def test_sets_are_what_they_say(gen: torch.Generator) -> None:
    sets = retrieval.draw_sets(500, 13, gen)
    priority, kinds = sets.items[..., 0], sets.items[..., 1:]
    assert torch.equal(kinds.sum(-1), torch.ones(500, 13))
    assert torch.equal(priority.gather(1, sets.best[:, None]).squeeze(1), priority.amax(1))
    assert torch.equal(sets.labels, kinds[torch.arange(500), sets.best].argmax(1))
    assert 0 < priority.min() < 0.01
    assert 0.99 < priority.max() < 1
    assert float(priority.mean()) == pytest.approx(0.5, abs=0.02)
    assert torch.bincount(sets.labels, minlength=10).min() > 25


def test_attention_is_the_one_with_keys_and_values_projected(gen: torch.Generator) -> None:
    """Projections moved to where there is one row must change nothing."""
    net = {name: w + 0.1 * torch.randn(w.shape, generator=gen) for name, w in retrieval.draw_net(gen, width=16).items()}
    sets = retrieval.draw_sets(6, 9, gen)
    logits, features = retrieval.attend(net, sets)
    asked = sets.query
    for layer in ("query.0", "query.1"):
        asked = torch.nn.functional.gelu(asked @ net[layer] + net[f"{layer}.bias"])
    asked = asked @ net["to_query"] + net["to_query.bias"]
    keys, values = features @ net["to_key"], features @ net["to_value"] + net["to_value.bias"]
    assert torch.allclose(logits, torch.einsum("bd,bnd->bn", asked, keys) / 4, atol=1e-5)
    weights = torch.softmax(logits, 1)
    hidden = torch.einsum("bn,bnd->bd", weights, values) @ net["head.0"] + net["head.0.bias"]
    expected = torch.nn.functional.gelu(hidden) @ net["head.1"] + net["head.1.bias"]
    assert torch.allclose(retrieval.answer(net, features, weights), expected, atol=1e-5)


def test_a_seed_is_a_net() -> None:
    one, again, other = (retrieval.fit([seed], steps=3, width=8, batch=4)[0] for seed in (1, 1, 2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["item.0"], other["item.0"])
    assert not any(weight.requires_grad for weight in one.values())
    for alone, beside in zip((other, one), retrieval.fit([2, 1], steps=3, width=8, batch=4)):
        assert all(torch.allclose(alone[name], beside[name], rtol=1e-4, atol=1e-6) for name in alone)


def test_one_step_is_the_one_written_out() -> None:
    """AdamW by hand on the first lesson of a seed: sets cut to their size, and no other net in the way."""
    (items, query, n), *_ = retrieval._lessons([3, 4], 6, 1, torch.device("cpu"))
    net = {name: w.requires_grad_() for name, w in retrieval.draw_net(torch.Generator().manual_seed(3), width=8).items()}
    some = items[0, :, : int(n[0])]
    sets = retrieval.Sets(some, query[0], some[..., 0].argmax(1))
    logits, features = retrieval.attend(net, sets)
    answer = retrieval.answer(net, features, torch.softmax(logits, 1))
    torch.nn.functional.cross_entropy(answer, sets.labels).backward()
    (trained, _) = retrieval.fit([3, 4], steps=1, width=8, batch=6, lr=0.1, weight_decay=0.5)
    for name, w in net.items():
        assert w.grad is not None
        stepped = w.detach() * (1 - 0.1 * 0.5) - 0.1 * w.grad / (w.grad.abs() + 1e-8)
        assert torch.allclose(trained[name], stepped, atol=1e-4)


def test_it_learns_and_then_disperses(net: retrieval.Net) -> None:
    short, long = (retrieval.retrieve(net, [PLAIN], n=n, count=400, seed=3) for n in (8, 512))
    assert float(short.right.float().mean()) > 0.6
    assert float(long.entropy.mean()) > float(short.entropy.mean()) + 1
    assert float(long.weight.mean()) < float(short.weight.mean()) / 2
    untrained = retrieval.retrieve(retrieval.draw_net(torch.Generator().manual_seed(0)), [PLAIN], n=8, count=1000, seed=3)
    assert float(untrained.right.float().mean()) < 0.3  # of two or three classes at most, by chance


def test_rules_meet_the_same_sets_however_they_are_cut(net: retrieval.Net, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [PLAIN, PUBLISHED, Fixed(1.0), EffectiveItems(1.0)]
    found = retrieval.retrieve(net, rules, n=100, count=50, seed=5)
    assert found.right.shape == found.weight.shape == found.entropy.shape == (4, 50)
    assert torch.equal(found.right[0], found.right[2])
    assert (found.entropy[0] >= found.entropy[1] - 1e-5).all()
    assert (found.entropy[1:].mean(1) < math.log(100)).all()
    again = retrieval.retrieve(net, rules, n=100, count=50, seed=5)
    assert torch.equal(found.weight, again.weight)
    monkeypatch.setattr(retrieval, "_CHUNK", 100 * 50)
    assert torch.equal(found.weight, retrieval.retrieve(net, rules, n=100, count=50, seed=5).weight)


def test_rules_can_be_fitted_to_a_net(net: retrieval.Net) -> None:
    rows = [retrieval.logits_at(net, n=n, count=200, seed=9) for n in (16, 32, 64, 128)]
    assert [tuple(e.shape) for e, _ in rows] == [(200, n) for n in (16, 32, 64, 128)]
    fitted = fit_beta(rows, degree=2, bounds=(1.0, 30.0), length=True)
    sharper = retrieval.retrieve(net, [PLAIN, fitted.rule], n=64, count=300, seed=11)
    assert float(sharper.weight[1].mean()) > float(sharper.weight[0].mean())


def test_the_rule_chosen_is_the_one_that_is_right_most_often(net: retrieval.Net) -> None:
    rules = [Fixed(0.01), PLAIN, EffectiveItems(2.0), Fixed(1.0)]
    found = [retrieval.retrieve(net, rules, n=n, count=100, seed=4).right.double().mean(1) for n in (16, 64)]
    best = int(torch.stack(found).mean(0).argmax())
    assert best > 0
    assert retrieval.choose([net], rules, lengths=[16, 64], count=100, seed=4) == rules[best]
