"""The verdict: its words at hand-made numbers, and the laws it keeps whatever the numbers are."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from thermocline.experiments._claims import Arm, Claim, Quantity
from thermocline.reproduce import judge, wording
from thermocline.reproduce.verdict import ABSENT, DIRECTION, FAILS, HOLDS, UNDECIDED

ARMS = (Arm("cold"), Arm("hot"))
RANK = Quantity("rank", "solution_rank")


def by_seed(*numbers: float) -> dict[int, float]:
    return dict(enumerate(numbers))


def word(claim: Claim, *values: dict[int, float]) -> str:
    return judge(claim, values).verdict.word


FALLS = Claim(RANK, "falls", ARMS, (99, 59))


@pytest.mark.parametrize(
    ("hot", "expected"),
    [
        ((60, 61, 59), HOLDS),
        ((79, 78, 80), HOLDS),
        ((85, 84, 86), DIRECTION),
        ((97.5, 97.4, 97.6), FAILS),  # surely lower, by less than a tenth of the published 40
        ((99, 99, 99), FAILS),
        ((110, 111, 109), FAILS),
        ((60, 99, 130), UNDECIDED),
    ],
)
def test_the_words(hot: tuple[float, ...], expected: str) -> None:
    assert word(FALLS, by_seed(99, 99, 99), by_seed(*hot)) == expected


def test_a_direction_alone_needs_no_size() -> None:
    claim = Claim(RANK, "rises", ARMS)
    assert word(claim, by_seed(1, 2, 3), by_seed(1.1, 2.1, 3.1)) == HOLDS, "paired: seeds differ by more than arms do"
    cold, hot = (1.0, 2.0, 3.0, 4.0), (1.5, 2.2, 3.9, 4.4)
    told = judge(claim, [by_seed(*cold), by_seed(*hot)]).verdict
    assert told.why == f"the direction is clear, p = {stats.ttest_rel(hot, cold).pvalue:.1g}"
    assert word(claim, by_seed(1, 2, 3), by_seed(1, 2, 3)) == FAILS
    assert word(claim, by_seed(1, 2, 3), by_seed(3, 2, 1.5)) == UNDECIDED


def test_a_direction_may_have_a_least_size() -> None:
    claim = Claim(RANK, "falls", ARMS, margin=1.0)
    assert judge(claim, [by_seed(100, 100, 100), by_seed(99, 99, 99)]).verdict.why.startswith(
        "the difference is no more than 1"
    )
    assert word(claim, by_seed(100, 100, 100), by_seed(99, 99, 99)) == FAILS
    assert word(claim, by_seed(100, 100, 100), by_seed(97, 97, 98)) == HOLDS
    told = judge(claim, [by_seed(100, 100, 100), by_seed(95, 98, 99)]).verdict
    assert (told.word, told.why.startswith("the interval includes 1;")) == (UNDECIDED, True)


def test_stays_equals_and_bounds() -> None:
    stays = Claim(RANK, "stays", ARMS, (9, 9), margin=1)
    assert word(stays, by_seed(9, 9, 9), by_seed(9, 9, 9)) == HOLDS
    assert word(stays, by_seed(9, 9, 9), by_seed(5, 5, 5)) == FAILS
    assert word(stays, by_seed(9, 9, 9), by_seed(9, 9, 7)) == UNDECIDED
    least = Claim(RANK, "at least", ARMS[:1], bound=0.99)
    assert [word(least, by_seed(*v)) for v in ((1, 1, 1), (0.5, 0.6, 0.5), (1, 1, 0.97))] == [HOLDS, FAILS, UNDECIDED]
    most = Claim(RANK, "at most", ARMS[:1], bound=0.7)
    assert [word(most, by_seed(*v)) for v in ((0.5, 0.5, 0.5), (1, 1, 1))] == [HOLDS, FAILS]
    equals = Claim(RANK, "equals", ARMS[:1], (15.1,), margin=0.1, exact=True)
    assert [word(equals, by_seed(v)) for v in (15.14, 15.3)] == [HOLDS, FAILS]
    exact = Claim(RANK, "at least", ARMS[:1], bound=0.0, exact=True)
    assert word(exact, by_seed(5, 5, -1e-3)) == FAILS, "true of every draw, not of their mean"


@pytest.mark.parametrize(
    "claim",
    [
        Claim(RANK, "at least", ARMS[:1], bound=0.0, exact=True),
        Claim(RANK, "at most", ARMS[:1], bound=0.0, exact=True),
        Claim(RANK, "equals", ARMS[:1], (0.0,), margin=0.5, exact=True),
    ],
)
def test_one_seed_outside_breaks_what_is_exact(claim: Claim) -> None:
    found = judge(claim, [by_seed(1.0, 0.0, -1.0)]).verdict
    assert (found.word, found.why) == (FAILS, "not true of every seed"), "more seeds could not mend it"


def test_rounding_is_no_difference() -> None:
    told = judge(Claim(RANK, "rises", ARMS), (by_seed(0.3, 0.3, 0.3), by_seed(*[0.1 + 0.2] * 3))).verdict
    assert (told.word, told.why) == (FAILS, "there is no difference; all seeds equal")
    told = judge(Claim(RANK, "rises", ARMS), (by_seed(0.3, 0.7, 1.1), by_seed(0.4, 0.8, 1.2))).verdict
    assert (told.word, told.why) == (HOLDS, "the direction is clear; all seeds equal"), "0.1 however it was rounded"
    small = judge(Claim(RANK, "rises", ARMS), (by_seed(1.0, 1.0, 1.0), by_seed(1 + 1e-9, 1 + 2e-9, 1 + 1.5e-9))).verdict
    assert small.word == HOLDS, "small is not rounding"


def test_too_few_seeds_say_how_many_more() -> None:
    two = judge(FALLS, (by_seed(99, 99), by_seed(60, 60, 60)))
    assert (two.verdict.word, two.verdict.why, two.shared) == (UNDECIDED, "2 shared seeds; 1 more needed", [0, 1])
    apart = judge(FALLS, ({0: 99.0, 1: 99.0}, {2: 60.0, 3: 60.0}))
    assert (apart.verdict.word, apart.verdict.why) == (ABSENT, "no seed in both arms")
    assert judge(FALLS, (by_seed(), by_seed(60))).verdict.why == "no rows of cold"
    wide = judge(FALLS, (by_seed(99, 99, 99), by_seed(60, 99, 80)))
    assert wide.verdict.why.endswith("4 more seeds to tell")


def test_what_an_undecided_interval_tells_all_the_same() -> None:
    why = judge(FALLS, (by_seed(80, 80, 80), by_seed(79, 81, 84))).verdict.why
    said = "the interval includes 0, and so far the difference is the other way; it excludes half the published difference;"
    assert why.startswith(said)
    why = judge(FALLS, (by_seed(80, 80, 80), by_seed(40, 81, 60))).verdict.why
    assert why.startswith("the interval includes 0; at this spread")


def test_how_many_more_is_enough_if_nothing_changes() -> None:
    d = [-19.0, 0.0, -39.0]
    why = judge(FALLS, (by_seed(99, 99, 99), by_seed(*(99 + x for x in d)))).verdict.why
    need = 3 + int(why.split("about ")[1].split()[0])
    for count, clear in ((need, True), (need - 1, False)):
        half = stats.t.ppf(0.975, count - 1) * statistics.stdev(d) / math.sqrt(count)
        assert (half < 58 / 3) == clear


NC1 = Quantity("NC1", "neural_collapse", shown=".3g", factors=True)


def test_what_spans_decades_is_judged_by_its_logarithm() -> None:
    cold, hot = (0.224, 0.377, 0.813), (0.00222, 0.00307, 0.00343)
    finding = judge(Claim(NC1, "falls", ARMS), [by_seed(*cold), by_seed(*hot)])
    assert finding.verdict.word == HOLDS, "a hundredfold in every seed"
    assert word(Claim(RANK, "falls", ARMS), by_seed(*cold), by_seed(*hot)) == UNDECIDED, "as differences"
    chance = stats.ttest_rel(*([math.log(x) for x in arm] for arm in (hot, cold))).pvalue
    assert finding.verdict.why == f"the direction is clear, p = {chance:.1g}"
    mean = finding.arm(0)
    assert mean is not None
    assert mean.mean == pytest.approx(stats.gmean(cold))
    assert 0 < mean.low < mean.mean < mean.high
    assert wording.difference(finding).startswith(f"x {stats.gmean(hot) / stats.gmean(cold):.3g} [")
    wide = judge(Claim(NC1, "rises", ARMS), [by_seed(1.0, 1.0, 1.0), by_seed(0.5, 1.0, 4.0)]).verdict
    assert (wide.word, wide.why.split(";")[0]) == (UNDECIDED, "the interval includes 1")


@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=3, max_size=5),
    st.sampled_from([2.0, 0.25, 1024.0]),
)
def test_a_factor_in_both_arms_changes_nothing(pairs: list[tuple[float, float]], by: float) -> None:
    claim = Claim(NC1, "rises", ARMS)
    straight, scaled = ([by_seed(*(pair[arm] * by_ for pair in pairs)) for arm in (0, 1)] for by_ in (1.0, by))
    assert judge(claim, straight).verdict == judge(claim, scaled).verdict


NUMBERS = st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=6)
SIZES = st.sampled_from([(), (0.0, 10.0), (0.0, 40.0)])


@given(NUMBERS, NUMBERS, SIZES)
def test_turning_every_sign_turns_rises_into_falls(cold: list[float], hot: list[float], size: tuple[float, ...]) -> None:
    rises = Claim(RANK, "rises", ARMS, size)
    falls = Claim(RANK, "falls", ARMS, tuple(-x for x in size))
    turned = [by_seed(*(-x for x in arm)) for arm in (cold, hot)]
    assert judge(rises, (by_seed(*cold), by_seed(*hot))).verdict == judge(falls, turned).verdict


@given(NUMBERS, NUMBERS, SIZES, st.integers(-100, 100))
def test_a_constant_in_both_arms_changes_nothing(cold: list[float], hot: list[float], size: tuple[float, ...], by: int) -> None:
    claim = Claim(RANK, "rises", ARMS, size)
    moved = [by_seed(*(x + by for x in arm)) for arm in (cold, hot)]
    assert judge(claim, (by_seed(*cold), by_seed(*hot))).verdict == judge(claim, moved).verdict


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=6), SIZES, st.randoms())
def test_the_order_of_seeds_means_nothing(pairs: list[tuple[float, float]], size: tuple[float, ...], random) -> None:
    claim = Claim(RANK, "falls", ARMS, size)
    seeds = list(range(len(pairs)))
    random.shuffle(seeds)
    shuffled = [{seeds[i]: pair[arm] for i, pair in enumerate(pairs)} for arm in (0, 1)]
    straight = [{i: pair[arm] for i, pair in enumerate(pairs)} for arm in (0, 1)]
    assert judge(claim, straight).verdict == judge(claim, shuffled).verdict


@given(NUMBERS, NUMBERS)
def test_a_claim_and_its_opposite_never_both_hold(cold: list[float], hot: list[float]) -> None:
    values = (by_seed(*cold), by_seed(*hot))
    words = {word(Claim(RANK, says, ARMS), *values) for says in ("rises", "falls")}
    assert words in ({HOLDS, FAILS}, {FAILS}, {UNDECIDED}), "the interval is on one side of 0, on 0, or on both"
