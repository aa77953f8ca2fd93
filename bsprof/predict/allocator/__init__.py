"""The caching allocator of torch on CUDA, replayed without a device: no torch, no arrays."""

from bsprof.predict.allocator.caching import CachingAllocator, DeviceOutOfMemory
from bsprof.predict.allocator.outcome import (
    PartPeaks,
    PeakOwner,
    Refusal,
    Replay,
    Timeline,
    Verdict,
)
from bsprof.predict.allocator.replay import replay, run
from bsprof.predict.allocator.rules import AllocatorRules
from bsprof.predict.allocator.schedule import Schedule

__all__ = [
    "AllocatorRules",
    "CachingAllocator",
    "DeviceOutOfMemory",
    "PartPeaks",
    "PeakOwner",
    "Refusal",
    "Replay",
    "Schedule",
    "Timeline",
    "Verdict",
    "replay",
    "run",
]
