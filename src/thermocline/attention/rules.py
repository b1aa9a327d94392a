"""How cold a row of attention should be: from its entropy, and from how many keys it can see.

A rule is a small frozen object with a name, called as `rule(entropy, n) -> beta`; beta multiplies the row's logits and,
but for `Fixed`, is never below 1. `PUBLISHED` and `LogLength` are other people's; `EffectiveItems` is ours. One that can also
be written as a `Form` can be applied inside a GPU kernel; for others a kernel stops, and torch applies them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from thermocline import softmax
from thermocline.softmax.adaptive import GATE
from thermocline.softmax.adaptive import PUBLISHED as COEFFICIENTS
from thermocline.spec import InputError, unknown

Rows = Float[Tensor, "*#rows"]  # numbers of rows, or of groups of rows: they broadcast


@runtime_checkable
class Rule(Protocol):
    """What every rule is."""

    @property
    def name(self) -> str: ...

    def __call__(self, entropy: Rows, n: Rows) -> Rows: ...


class Form(NamedTuple):
    """A rule as numbers that a kernel can be compiled for.

        beta = clamp(g(sum_ij c_ij H^i (log n)^j), least, most)   if H > gate, else 1,   g the identity or exp

    `table` has a row for each power of H, the highest first, and in each row one number for each power of log n, likewise.
    """

    table: tuple[tuple[float, ...], ...]
    exp: bool = False
    gate: float = -1.0  # an entropy is never below 0
    least: float = 1.0
    most: float = 3e38


@dataclass(frozen=True)
class Fixed:
    """The same beta for every row: 1 is plain attention.

    >>> Fixed(2.0)(torch.zeros(2), torch.ones(2))
    tensor([2., 2.])
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.beta < math.inf:
            raise InputError(f"fixed takes a beta of 0 or more, got {self.beta:g}")

    @property
    def name(self) -> str:
        return "plain" if self.beta == 1 else f"fixed({self.beta:g})"

    def __call__(self, entropy: Rows, n: Rows) -> Rows:
        return torch.full_like(entropy, self.beta)

    @property
    def form(self) -> Form:
        return Form(((self.beta,),), least=-3e38)


@dataclass(frozen=True)
class Polynomial:
    """A polynomial of the entropy, highest power first, where it exceeds 1 and the entropy exceeds 0.5 nats.

        beta = max(polyval(coefficients, H), 1)   if H > 0.5, else 1          [velickovic2024softmax]

    >>> PUBLISHED(torch.tensor([0.4, 4.41, 7.0]), torch.full((3,), 4096.0))
    tensor([1.0000, 2.4214, 1.0000])
    """

    coefficients: tuple[float, ...]
    name: str = "polynomial"

    def __call__(self, entropy: Rows, n: Rows) -> Rows:
        return softmax.adaptive_beta(entropy, self.coefficients)

    @property
    def form(self) -> Form:
        return Form(tuple((c,) for c in self.coefficients), gate=GATE)


@dataclass(frozen=True)
class Surface:
    """A polynomial of the entropy and of the logarithm of the length, held within the betas it was fitted to.

        beta = clamp(sum_{i + j <= degree} c_ij H^i (log n)^j, 1, largest)    (ours)

    Coefficients are in the order of `powers(degree)`.

    >>> Surface((1.0, 0.5, 0.25), 1, 3.0)(torch.tensor([1.0, 1.0]), torch.tensor([1.0, math.e**2]))
    tensor([1.2500, 2.2500])
    """

    coefficients: tuple[float, ...]
    degree: int
    largest: float
    name: str = "surface"

    def __call__(self, entropy: Rows, n: Rows) -> Rows:
        length = n.clamp(min=1).log()
        terms = (c * entropy**i * length**j for c, (i, j) in zip(self.coefficients, powers(self.degree)))
        return sum(terms, torch.zeros_like(entropy)).clamp(1, self.largest)

    @property
    def form(self) -> Form:
        given = dict(zip(powers(self.degree), self.coefficients))
        falling = range(self.degree, -1, -1)
        return Form(tuple(tuple(given.get((i, j), 0.0) for j in falling) for i in falling), most=self.largest)


def powers(degree: int) -> list[tuple[int, int]]:
    """The exponents of the entropy and of log n in a `Surface`.

    >>> powers(1)
    [(0, 0), (0, 1), (1, 0)]
    """
    return [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i)]


@dataclass(frozen=True)
class LogLength:
    """Colder with the logarithm of the length alone: enough for a head whose best logit is a fixed step above the rest.

        beta = max(log n / log n_trained, 1)                                  [chiang2022overcoming]

    >>> LogLength(trained=16)(torch.zeros(2), torch.tensor([16.0, 4096.0]))
    tensor([1., 3.])
    """

    trained: int | float

    def __post_init__(self) -> None:
        if not 2 <= self.trained < math.inf:
            raise InputError(f"log-length takes the length of training, 2 or more, got {self.trained:g}")

    @property
    def name(self) -> str:
        return f"log-length({self.trained:g})"

    def __call__(self, entropy: Rows, n: Rows) -> Rows:
        return (n.clamp(min=1).log() / math.log(self.trained)).clamp(min=1) + torch.zeros_like(entropy)

    @property
    def form(self) -> Form:
        return Form(((1 / math.log(self.trained), 0.0),))


@dataclass(frozen=True)
class EffectiveItems:
    """Bring the effective number of items, exp(H), back to what the head had in training. Ours.

        beta = max((exp(H) / target)^(1 / edge), 1)

    Which beta separates the largest logit is decided by how many others lie how close below it [hayase2026unified]. Bounded
    logits, which disperse [velickovic2024softmax, Thm. 2.2], come to lie ever denser below their bound as n grows:
    C n t^edge of them within t of it, edge = 1 where their density there is finite. The weights of beta e are spread over
    those within about 1 / beta, so that exp(H) is proportional to n / beta^edge whatever the logits are like elsewhere; and
    beta as above keeps it at `target`, at any n and any entropy. H has seen the length: n is not used.

    >>> EffectiveItems(target=4.0)(torch.tensor([1.0, 4.0, 40.0, 400.0]).log(), torch.full((4,), 4096.0))
    tensor([  1.0000,   1.0000,  10.0000, 100.0000])
    """

    target: float
    edge: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.target < math.inf and 0 < self.edge < math.inf):
            raise InputError(f"effective-items takes a target and an edge above 0, got {self.target:g} and {self.edge:g}")

    @property
    def name(self) -> str:
        return f"effective-items({self.target:g}, {self.edge:g})"

    def __call__(self, entropy: Rows, n: Rows) -> Rows:
        return ((entropy - math.log(self.target)) / self.edge).clamp(min=0).exp()

    @property
    def form(self) -> Form:
        return Form(((1 / self.edge,), (-math.log(self.target) / self.edge,)), exp=True)


PUBLISHED = Polynomial(COEFFICIENTS, name="published")
PLAIN = Fixed()
NAMES = ("plain", "published", "fixed(BETA)", "log-length(TRAINED)", "effective-items(TARGET, EDGE)")
_WHOLE = {"plain": PLAIN, "published": PUBLISHED}
_MADE = {"fixed": Fixed, "log-length": LogLength, "effective-items": EffectiveItems}


def named(rule: Any) -> Rule:
    """The rule of one of `NAMES`, numbers in place of the capitals, as a rule's own `name` has them; a rule is itself.

    >>> named("published") is PUBLISHED, named("log-length(16)")
    (True, LogLength(trained=16.0))
    >>> named("publishd")
    Traceback (most recent call last):
    thermocline.spec.InputError: unknown rule 'publishd'; did you mean 'published'?
    """
    if not isinstance(rule, str):
        if not callable(rule):
            raise InputError(f"a rule is a name, e.g. 'published', or is called as rule(entropy, n); got {rule!r}")
        return cast(Rule, rule)
    word, _, numbers = rule.strip().removesuffix(")").partition("(")
    try:
        return _WHOLE[rule] if rule in _WHOLE else _MADE[word](*map(float, numbers.split(",")))
    except InputError:
        raise
    except (KeyError, TypeError, ValueError):  # another word, or not its numbers
        raise unknown("rule", rule, NAMES) from None
