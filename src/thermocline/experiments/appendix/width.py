"""Width is an implicit temperature where it shrinks the first logits [masarczyk2025softmax].

On built-in data, T = 1, a hidden width of 64 and of 256. By torch's default initialisation biases shrink with width, and a
deep net's logits are mostly biases; by He's nothing shrinks, and then width should not act as heat does.
"""

from thermocline.experiments import _claims, _runes

NARROW, WIDE = (
    {init: _claims.Arm(f"width {width}, {init}", {"net.width": width, "net.init": init}) for init in ("own", "torch")}
    for width in (64, 256)
)
RUNS = [
    run
    for init in ("own", "torch")
    for width in (64, 256)
    for run in _runes.runs({"net.init": init, "net.width": width}, temperatures=(1,))
]
CLAIMS = [
    _claims.Claim(_claims.START_NORM, "falls", (NARROW["torch"], WIDE["torch"])),
    _claims.Claim(_claims.SOLUTION_RANK, "falls", (NARROW["torch"], WIDE["torch"])),
    _claims.Claim(_claims.START_NORM, "stays", (NARROW["own"], WIDE["own"]), margin=3.0),
]
COST = _runes.COST
