"""Width is an implicit temperature where it shrinks the first logits [masarczyk2025softmax].

On built-in data, T = 1, hidden widths from 64 on. By torch's default initialisation biases shrink with width, and a deep
net's logits are mostly biases; by He's nothing shrinks, and then width should not act as heat does.

By muP [yang2022tensor, Table 3] a net that is r times as wide has a head that starts 1 / sqrt(r) as large as He's and, with
SGD, learns at 1 / r of the rate. But for clipping that is a temperature of sqrt(r) (controls/arms): 2 at a width of 256 and
4 at 1024, where r counts from 64. So its head should cost rank. muP also speeds up the first layer and the biases by r; they
are left alone here, so that only the head differs. The claims about muP were written down before its runs.
"""

from thermocline.experiments import _claims, _runes

HE, TORCH = {"net.init": "own"}, {"net.init": "torch"}


def muP(width: int) -> dict[str, object]:
    """A head as muP has it, at a width counted from 64."""
    ratio = width / 64
    return {**HE, "net.head_init_scale": ratio**-0.5, "train.head_lr": 1 / ratio}


WAYS = {
    "64, torch": (64, TORCH), "256, torch": (256, TORCH), "64, own": (64, HE), "256, own": (256, HE), "1024, own": (1024, HE),
    "256, muP": (256, muP(256)), "1024, muP": (1024, muP(1024)),
}  # fmt: skip
SETTINGS = {
    name: {"net.width": width, "net.head_init_scale": 1.0, "train.head_lr": 1.0, **init} for name, (width, init) in WAYS.items()
}
ARM = {name: _claims.Arm(f"width {name}", settings) for name, settings in SETTINGS.items()}
RUNS = [run for settings in SETTINGS.values() for run in _runes.runs(settings, temperatures=(1,))]
CLAIMS = [
    _claims.Claim(_claims.START_NORM, "falls", (ARM["64, torch"], ARM["256, torch"])),
    _claims.Claim(_claims.SOLUTION_RANK, "falls", (ARM["64, torch"], ARM["256, torch"])),
    _claims.Claim(_claims.START_NORM, "stays", (ARM["64, own"], ARM["256, own"]), margin=3.0),
    _claims.Claim(_claims.START_NORM, "falls", (ARM["64, own"], ARM["1024, muP"])),
    _claims.Claim(_claims.SOLUTION_RANK, "falls", (ARM["256, own"], ARM["256, muP"])),
    _claims.Claim(_claims.SOLUTION_RANK, "falls", (ARM["1024, own"], ARM["1024, muP"])),
    _claims.Claim(_claims.SOLUTION_RANK, "falls", (ARM["64, own"], ARM["1024, muP"])),
]
COST = _claims.Cost("a minute a run on one CPU core, six at width 1024")
