"""The caching allocator of torch on CUDA, replayed without a device: no torch, no arrays."""

from bsprof.predict.allocator.caching import CachingAllocator
from bsprof.predict.allocator.fit import needed_bytes
from bsprof.predict.allocator.outcome import (
    PartPeaks,
    PeakOwner,
    Refusal,
    Replay,
    Timeline,
    Verdict,
)
from bsprof.predict.allocator.recorded import RecordedReplay, replay_snapshot
from bsprof.predict.allocator.recording import RecordingAllocator, record
from bsprof.predict.allocator.refused import DeviceOutOfMemory
from bsprof.predict.allocator.replay import replay, run
from bsprof.predict.allocator.rules import AllocatorRules
from bsprof.predict.allocator.schedule import Schedule
from bsprof.predict.allocator.snapshot import Snapshot, read_snapshot, write_snapshot

__all__ = [
    "AllocatorRules",
    "CachingAllocator",
    "DeviceOutOfMemory",
    "PartPeaks",
    "PeakOwner",
    "RecordedReplay",
    "RecordingAllocator",
    "Refusal",
    "Replay",
    "Schedule",
    "Snapshot",
    "Timeline",
    "Verdict",
    "needed_bytes",
    "read_snapshot",
    "record",
    "replay",
    "replay_snapshot",
    "run",
    "write_snapshot",
]
