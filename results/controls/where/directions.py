"""How many directions of a layer a ridge probe can read, and whether hot and cold nets differ in it as they do in accuracy.

sum_i l_i / (l_i + p mean(l)),   l_i: variances of the layer's outputs on training images, p = 1e-3: the probes' penalty

python results/controls/where/directions.py > results/controls/where/directions.txt       (from the repository)
"""

import statistics
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

NETS = (
    "table1/cifar100-resnet34", "table1/cifar100-resnet18", "table1/cifar10-resnet18", "table1/cifar10-resnet20",
    "table3/cifar100-vgg19", "table3/cifar10-vgg19", "table1/cifar10-mlp",
)  # fmt: skip
RESULTS = Path("results")


def directions(singular_values: list[float]) -> float:
    """The effective number of those that the penalty leaves."""
    variances = np.square(singular_values)
    return float((variances / (variances + 1e-3 * variances.mean())).sum())


def read(file: Path) -> tuple[float, int, dict[int, float], dict[int, float]]:
    """Temperature, seed, directions by layer, and what a probe of SVHN gets right by layer."""
    rows = pq.read_table(file).to_pylist()
    last = [row for row in rows if row["step"] == rows[-1]["step"]]
    spectra = defaultdict(list)
    for row in last:
        if row["measure"] == "singular_value":
            spectra[row["depth"]].append(row["value"])
    right = {row["depth"]: row["value"] for row in last if row["measure"] == "probe_accuracy" and row["split"] == "svhn/test"}
    return rows[0]["temperature"], rows[0]["seed"], {depth: directions(values) for depth, values in spectra.items()}, right


for net in NETS:
    runs = {one[:2]: one[2:] for one in map(read, sorted((RESULTS / net).glob("*/rows.parquet")))}
    layers, seeds = max(runs[1.0, 0][0]), (0, 1, 2)
    print(f"{net}: layer, directions cold and hot by seed, change of accuracy on SVHN by seed")
    changes, ratios = [], []
    for layer in range(1, layers + 1):
        cold, hot = ([runs[heat, seed][0][layer] for seed in seeds] for heat in (1.0, 100.0))
        moved = [runs[100.0, seed][1][layer] - runs[1.0, seed][1][layer] for seed in seeds]
        print(f"{layer:3}  {cold[0]:6.0f} {cold[1]:6.0f} {cold[2]:6.0f}  {hot[0]:6.0f} {hot[1]:6.0f} {hot[2]:6.0f} ", end="")
        print("  {:+.3f} {:+.3f} {:+.3f}".format(*moved))
        ratios.append(statistics.fmean(np.log(np.array(hot) / cold)))
        changes.append(statistics.fmean(moved))
    print(f"correlation over layers of the mean change and the mean log ratio: {np.corrcoef(ratios, changes)[0, 1]:.2f}\n")
