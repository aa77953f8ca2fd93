"""Plays allocations on this process's own C heap and prints how much the system had to hand out.

A program of its own, run by `bsprof.predict.pages` in a small process: standard library only, no
import of bsprof. Reads one job from standard input: `sizes` of blocks, `events` (n + 1 allocates
block n, -(n + 1) frees it) and `begin`, the event from which bytes are counted. Prints the bytes
by which the heap and the mappings grew from there on, each growth counted; null where the C library
does not tell (it needs `mallinfo2` of glibc 2.33) or memory ended. No byte of the blocks is
touched.
"""

import ctypes
import json
import sys
from typing import Any

ALIGNMENT = 64  # torch's, c10/core/alignment.h


class MallocInfo(ctypes.Structure):
    """`struct mallinfo2`, malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def play(libc: Any, job: dict[str, Any]) -> int:
    """Bytes taken from the system, as in the module's text.

    Raises:
        MemoryError: the C library refused.
    """
    sizes, events, begin = job["sizes"], job["events"], job["begin"]
    addresses: dict[int, int] = {}
    fresh = heap = mapped = 0
    for number, event in enumerate(events):
        block = abs(event) - 1
        if event > 0:
            address = ctypes.c_void_p()
            if libc.posix_memalign(ctypes.byref(address), ALIGNMENT, max(1, sizes[block])):
                raise MemoryError(sizes[block])
            addresses[block] = address.value or 0
        elif block in addresses:
            libc.free(addresses.pop(block))
        if number >= begin - 1:
            info = libc.mallinfo2()
            if number >= begin:
                fresh += max(0, info.arena - heap) + max(0, info.hblkhd - mapped)
            heap, mapped = info.arena, info.hblkhd
    return fresh


def main() -> None:
    """One job."""
    libc = ctypes.CDLL(None)
    job = json.load(sys.stdin)
    answer = None
    if hasattr(libc, "mallinfo2"):
        libc.mallinfo2.restype = MallocInfo
        libc.free.argtypes = [ctypes.c_void_p]
        libc.posix_memalign.argtypes = [
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.c_size_t,
            ctypes.c_size_t,
        ]
        try:
            answer = play(libc, job)
        except MemoryError:
            answer = None
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
