"""The smallest capacity that a run fits."""

from __future__ import annotations

from dataclasses import replace

from bsprof.predict.allocator.caching import CachingAllocator
from bsprof.predict.allocator.outcome import Verdict
from bsprof.predict.allocator.replay import run
from bsprof.predict.allocator.rules import DRIVER_PAGE_BYTES, AllocatorRules
from bsprof.predict.allocator.schedule import Schedule

_PAGE = DRIVER_PAGE_BYTES


def needed_bytes(
    schedule: Schedule,
    rules: AllocatorRules,
    *,
    tolerance_bytes: int = DRIVER_PAGE_BYTES,
    flushes: bool = True,
) -> int:
    """The smallest capacity found to work, in whole pages of the driver.

    Halves the range between what is allocated at the peak and what is reserved without a limit.
    Fragmentation makes single capacities in between fail or work against the trend; what is
    returned works, and the one tried `tolerance_bytes` or less below it does not.

    Args:
        schedule: Of the run.
        rules: Of the allocator; a memory fraction is not looked at.
        tolerance_bytes: Width of the range to stop at.
        flushes: Whether a run that needs a cache flush counts as working.
    """
    rules = replace(rules, memory_fraction=None)
    unlimited = run(schedule, CachingAllocator(rules))
    works = -(-unlimited.peak_reserved_bytes // _PAGE)
    fails = (unlimited.peak_allocated_bytes - 1) // _PAGE
    while (works - fails) * _PAGE > max(tolerance_bytes, _PAGE):
        middle = (works + fails) // 2
        verdict = run(schedule, CachingAllocator(rules, middle * _PAGE)).verdict
        if verdict is Verdict.FITS or (flushes and verdict is Verdict.FITS_AFTER_FLUSH):
            works = middle
        else:
            fails = middle
    return works * _PAGE
