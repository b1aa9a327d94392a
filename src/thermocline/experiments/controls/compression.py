"""How many dimensions can a hot net lose? The claim of the abstract on built-in data, on training and on test images.

As compression, with the nets of table1/runes-mlp. How many dimensions the test accuracy needs was written down before any
such number had been seen; the other rows were there.
"""

from dataclasses import replace

from thermocline.experiments import _runes
from thermocline.experiments.compression import AFTER, DIMENSIONS, claims

RUNS = _runes.runs()
CLAIMS = [replace(claim, found=claim.quantity in (DIMENSIONS, AFTER)) for claim in claims(_runes.COLD, _runes.HOT)]
COST = _runes.COST
