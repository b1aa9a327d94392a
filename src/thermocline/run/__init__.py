"""One run, many runs: what composes the stages.

`follow` and `follow_all` are generators of `Progress`, so that whoever drives them decides what to show; `run` and `sweep`
drive them silently.
"""

from thermocline.run.one import Progress, check, check_device, follow, run
from thermocline.run.several import follow_all, sweep

__all__ = ["Progress", "check", "check_device", "follow", "follow_all", "run", "sweep"]
