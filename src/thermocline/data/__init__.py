"""Named data sets as uint8 images, on a device or in main memory, and adapters for what users have."""

from thermocline.data.augmentation import augment, draw
from thermocline.data.fetching import DOWNLOADS, download
from thermocline.data.source import AllCut
from thermocline.data.sources import NAMES, Reading, check, check_other, load, load_other, reading, reading_other, require_other
from thermocline.data.split import INPUTS, Batch, Split

__all__ = [
    "DOWNLOADS", "INPUTS", "NAMES", "AllCut", "Batch", "Reading", "Split", "augment", "check", "check_other", "download",
    "draw", "load", "load_other", "reading", "reading_other", "require_other",
]  # fmt: skip
