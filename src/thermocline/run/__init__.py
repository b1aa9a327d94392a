"""One run, many runs: what composes the stages.

`follow`, `follow_all` and `follow_in` are generators of `Progress`, so that whoever drives them decides what to show;
`run` and `sweep` drive them silently.
"""

from thermocline.run.one import Progress, check, check_device, follow, run
from thermocline.run.several import follow_all, follow_in, sweep

__all__ = ["Progress", "check", "check_device", "follow", "follow_all", "follow_in", "run", "sweep"]
