"""Where in a net does heat cost transfer? Probes of SVHN over the first half of the layers and over the second, on CIFAR.

Beyond the paper, and found on the rows that it is judged by: seen on a ResNet-34, then asked of every net of tables 1 and 3.
controls/where-svhn asks the same of other nets, by three probes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from thermocline.experiments import _claims
from thermocline.experiments.table1 import cifar10_mlp, cifar10_resnet18, cifar10_resnet20, cifar100_resnet18, cifar100_resnet34
from thermocline.experiments.table3 import cifar10_vgg19, cifar100_vgg19
from thermocline.spec import Run

TABLES = (
    cifar100_resnet34, cifar100_resnet18, cifar10_resnet18, cifar10_resnet20, cifar100_vgg19, cifar10_vgg19, cifar10_mlp,
)  # fmt: skip


def claims(arms: tuple[_claims.Arm, _claims.Arm], sets: Iterable[str]) -> list[_claims.Claim]:
    """A hot net's first half knows more of other data, its second half less, and its best layer less."""
    parts: tuple[tuple[_claims.Reduction, _claims.Relation], ...]
    parts = (("first half", "rises"), ("second half", "falls"), ("best layer", "falls"))
    return [_claims.Claim(_probes(name, part), says, arms) for name in sets for part, says in parts]


def _probes(name: str, part: _claims.Reduction) -> _claims.Quantity:
    what = f"probes of {name}, {part}" + (" of the layers" if "half" in part else "")
    return _claims.Quantity(what, "probe_accuracy", f"{name}/test", by=part, shown=".3f")


def curve(arms: tuple[_claims.Arm, _claims.Arm], title: str, split: str) -> _claims.Curve:
    """Probe accuracy by layer."""
    quantity = _claims.Quantity(f"probe accuracy on {split}", "probe_accuracy", split, by="last layer", shown=".1%")
    return _claims.Curve(title, quantity, "depth", arms)


def curves(by_probe: Mapping[str, tuple[_claims.Arm, _claims.Arm]], sets: Iterable[str]) -> list[_claims.Curve]:
    """A panel for each set and probe; the title names the probe, so that the lines need not."""

    def plain(arm: _claims.Arm, probe: str) -> _claims.Arm:
        return replace(arm, label=arm.label.removesuffix(f", {probe}"))

    return [
        curve((plain(cold, probe), plain(hot, probe)), f"{name}, {probe}", f"{name}/test")
        for name in sets
        for probe, (cold, hot) in by_probe.items()
    ]


def _pair(run: Run, label: str = "") -> tuple[_claims.Arm, _claims.Arm]:
    return _claims.with_settings(label, {"data.name": run.data.name, "net.name": run.net.name})


FIRST = [table.RUNS[0] for table in TABLES]
NAMES = [f"{run.data.name} {run.net.name}" for run in FIRST]
RUNS = [run for table in TABLES for run in table.RUNS]
CLAIMS = [replace(claim, found=True) for run, name in zip(FIRST, NAMES) for claim in claims(_pair(run, name), ("svhn",))]
CURVES = [curve(_pair(run), f"svhn, by layers of {name}", "svhn/test") for run, name in zip(FIRST, NAMES)]
COST = _claims.Cost("the runs of tables 1 and 3", gpu=True)
