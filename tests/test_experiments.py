"""Every experiment is well-formed data: its claims point at runs it has, measures that exist, numbers that were printed."""

import pytest

from thermocline import spec
from thermocline.experiments import figure6
from thermocline.measure import MEASURES
from thermocline.reproduce import catalogue, computed
from thermocline.spec import InputError

NAMES = catalogue.names()
ASKED = {
    *(f"figure{i}" for i in range(1, 9)), "prop31", "prop32", "compression", "table1/runes-mlp",
    *(f"appendix/{name}" for name in ("mse", "init", "width", "normalisation", "neural-collapse", "tradeoff")),
    *(f"controls/{name}" for name in ("arms", "weight-decay", "rank-threshold", "strong-baseline", "augmentation", "optimiser",
                                      "interpolation")),
}  # fmt: skip
TABLE_1 = {  # kappa %, rho %, SR: baseline, low logit norm (protocol, section 2)
    "cifar10-mlp": (75, 67, 9, 38, 78, 9), "cifar10-resnet18": (100, 29, 9, 67, 54, 9),
    "cifar10-resnet20": (100, 10, 9, 75, 34, 9), "cifar100-resnet18": (100, 19, 99, 83, 50, 59),
    "cifar100-resnet34": (100, 16, 99, 68, 51, 72), "imagenet100-resnet34": (100, 6, 99, 85, 52, 42),
    "imagenet100-resnet50": (100, 5, 99, 78, 50, 27), "imagenet-resnet34": (100, 5, 512, 82, 23, 122),
    "imagenet-resnet50": (100, 5, 947, 78, 22, 128),
}  # fmt: skip
TABLE_2 = {  # AUROC / FPR95 %: base, low
    "cifar100-resnet18": (63.66, 90.44, 77.04, 80.13), "cifar10-resnet18": (77.75, 73.29, 87.53, 55.87),
    "cifar100-resnet34": (62.36, 91.13, 76.37, 79.27), "cifar10-resnet34": (73.96, 73.60, 86.18, 57.23),
    "cifar100-vit": (92.38, 40.01, 93.96, 30.92), "cifar10-vit": (98.09, 9.51, 98.33, 8.87),
}  # fmt: skip
TABLE_3 = {"cifar10-vgg19": (47, 64, 9, 53, 64, 9), "cifar100-vgg19": (58, 58, 73, 58, 53, 45)}


def test_what_was_asked_for_is_there() -> None:
    assert set(NAMES) >= ASKED | {f"table1/{n}" for n in TABLE_1} | {f"table2/{n}" for n in TABLE_2}


@pytest.mark.parametrize(("table", "numbers"), [("table1", TABLE_1), ("table3", TABLE_3)])
def test_printed_numbers_of_tables_1_and_3(table: str, numbers: dict[str, tuple[float, ...]]) -> None:
    for name, (k0, r0, s0, k1, r1, s1) in numbers.items():
        depth, drop, before_the_head, rank = (claim.published for claim in catalogue.load(f"{table}/{name}").claims)
        assert [round(100 * x) for x in (*depth, *drop)] == [k0, k1, r0, r1]
        assert before_the_head == drop, "which of the two is printed is not known"
        assert rank == (s0, s1)


def test_a_printed_difference_of_a_layer_is_none() -> None:
    said = {name: [claim.says for claim in catalogue.load(f"table3/{name}").claims] for name in TABLE_3}
    assert said == {"cifar10-vgg19": ["stays"] * 4, "cifar100-vgg19": ["stays", "stays", "stays", "falls"]}
    for name in TABLE_2:
        assert [claim.says for claim in catalogue.load(f"table2/{name}").claims] == ["rises", "falls", "rises", "rises"]


def test_a_reading_that_came_after_the_rows_is_told_as_found() -> None:
    """The drop before the head was added (commit a1d87b4) before a ResNet-34 or a VGG-19 had been run."""
    after = {"table1/cifar100-resnet34", *(f"table3/{name}" for name in TABLE_3)}
    for name in (*(f"table1/{name}" for name in TABLE_1 if "imagenet" not in name), *sorted(after), "table1/runes-mlp"):
        found = {claim.quantity.by: claim.found for claim in catalogue.load(name).claims if claim.found}
        assert found == ({} if name in after else {"drop before the last": True}), name
    assert [claim.found for claim in catalogue.load("figure5").claims] == [False, True, False], "seen on early runs"


def test_a_claim_of_the_same_runs_is_the_earlier_experiments() -> None:
    decay = catalogue.load("controls/weight-decay")
    same = [catalogue.origin(decay, claim) for claim in decay.claims]
    assert same == ["table1/runes-mlp"] * 3 + [""] * 6, "a decay of 0 is the table's own recipe"
    for name in ("table1/runes-mlp", "table2/cifar10-vit", "figure6", "prop31", "prop32"):
        assert not any(catalogue.origin(catalogue.load(name), claim) for claim in catalogue.load(name).claims)


def test_printed_numbers_of_table_2() -> None:
    for name, (a0, f0, a1, f1) in TABLE_2.items():
        auroc, fpr, best, default = (claim.published for claim in catalogue.load(f"table2/{name}").claims)
        assert [round(100 * x, 2) for x in (*auroc, *fpr)] == [a0, a1, f0, f1]
        assert best == default == auroc, "the dimension is not known, so the printed number stands beside all of ours"


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_is_well_formed(name: str) -> None:
    one = catalogue.load(name)
    assert one.says.endswith(".")
    assert one.claims
    assert one.runs or one.computed or one.why
    assert not one.computed or one.computed in computed.COMPUTED
    assert one.table in NAMES, "a name imported into its module is taken for where its rows lie"
    assert len({run.key for run in one.runs}) == len(one.runs)
    for claim in one.claims:
        assert claim.quantity.measure in MEASURES or one.computed
        assert len(claim.arms) == (2 if claim.says in ("falls", "rises", "stays") else 1)
        assert (claim.bound is not None) == claim.says.startswith("at ")
        assert (claim.margin is not None) == (claim.says in ("stays", "equals")) or claim.says in ("falls", "rises")
        assert claim.margin is None or claim.says in ("stays", "equals") or not claim.published, "a tenth of it is the least"
        assert len(claim.published) in (0, len(claim.arms))
        assert claim.published or not claim.derived, "only numbers can be derived"
        if len(claim.published) == 2 and claim.says != "stays":
            assert (claim.published[1] < claim.published[0]) == (claim.says == "falls")


@pytest.mark.parametrize("name", [name for name in NAMES if catalogue.load(name).runs])
def test_every_arm_is_one_setting_at_three_seeds(name: str) -> None:
    one = catalogue.load(name)
    for arm in {id(arm): arm for claim in one.claims for arm in claim.arms}.values():
        if arm.where and one.computed:
            continue
        mine = [run for run in one.runs if arm.settings.items() <= dict(spec.leaves(run)).items()]
        assert len({catalogue.family(run) for run in mine}) == 1, f"{arm.label} is not one setting"
        assert sorted(run.seed for run in mine) == [0, 1, 2]


def test_nothing_is_trained_twice() -> None:
    table = catalogue.load("table1/cifar100-resnet18")
    for name in (
        "figure1",
        "figure2",
        "figure5",
        "figure7",
        "compression",
        "appendix/tradeoff",
        "table2/cifar100-resnet18",
    ):
        assert catalogue.load(name).runs == table.runs
        assert {catalogue.home(run) for run in catalogue.load(name).runs} == {table.name}
    shared = {run.key for run in catalogue.load("controls/weight-decay-cifar100").runs}
    assert shared > {run.key for run in table.runs}
    assert catalogue.home(catalogue.load("controls/interpolation").runs[0]) == "table1/runes-mlp"


def test_names_groups_and_typos() -> None:
    assert {one.name for one in catalogue.select("table3")} == {f"table3/{name}" for name in TABLE_3}
    assert [one.name for one in catalogue.select("all")] == NAMES
    with pytest.raises(InputError, match="did you mean 'figure6'"):
        catalogue.select("figure66")
    with pytest.raises(InputError, match="unknown experiment 'qqq'; see: thermocline list experiments"):
        catalogue.select("qqq")
    for read in (catalogue.select, catalogue.module):
        with pytest.raises(InputError, match="own/mine.py is a file: an experiment of your own is a module in src/"):
            read("own/mine.py")
    with pytest.raises(InputError, match="makes no claim"):
        catalogue.select("demo")


def test_more_seeds_on_request() -> None:
    runs = catalogue.load("table1/cifar100-resnet18").runs
    more = catalogue.seeded(runs, 5)
    assert {run.key for run in more} > {run.key for run in runs}
    assert len(more) == 10
    assert {catalogue.home(run) for run in more} == {"table1/cifar100-resnet18"}
    assert len(catalogue.seeded(runs, 1)) == 6, "never fewer than the experiment has"


FIGURE_6 = {  # protocol, section 5.4: s = 0.1, 10, 1e6
    1: (2, 8.1, 2.1), 2: (3.7, 37.7, 10.9), 3: (5.7, 66.9, 19.2), 5: (10.5, 75.1, 33.4),
}  # fmt: skip


def test_figure_6_has_the_protocols_numbers() -> None:
    assert {k: tuple(map(float, v)) for k, v in FIGURE_6.items()} == figure6.KNOWN
