"""How many dimensions can a hot net lose? The claim of the abstract on built-in data, on training and on test images.

As compression, with the nets of table1/runes-mlp. What is asked of test images was written down before any such number had
been seen; the other rows were there.
"""

from dataclasses import replace

from thermocline.experiments import _runes
from thermocline.experiments.compression import ON_TRAIN, claims

RUNS = _runes.runs()
CLAIMS = [replace(claim, found=claim.quantity == ON_TRAIN) for claim in claims(_runes.COLD, _runes.HOT)]
COST = _runes.COST
