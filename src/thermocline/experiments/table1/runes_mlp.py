"""Table 1 in small: an MLP on built-in data, on a CPU [masarczyk2025softmax]."""

from thermocline.experiments.demo import BASE
from thermocline.spec import grid

RUNS = grid(BASE, {"seed": range(3), "train.temperature": [1, 500]})
