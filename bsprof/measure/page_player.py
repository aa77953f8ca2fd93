"""Plays allocations on this process's own C heap and prints how much the system had to hand out.

A program of its own, run by `bsprof.predict.pages` in a small process: standard library only, no
import of bsprof. Reads one job from standard input: `sizes` of blocks, `events` (n + 1 allocates
block n, -(n + 1) frees it) and `borders`, increasing numbers of events between which bytes are
counted. Prints for each part between two borders the bytes by which the heap and the mappings grew
in it, each growth counted; null where the C library does not tell (it needs `mallinfo2` of glibc
2.33) or memory ended. No byte of the blocks is touched.
"""

import ctypes
import itertools
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


def play(libc: Any, job: dict[str, Any]) -> list[int]:
    """Bytes taken from the system, as in the module's text.

    Raises:
        MemoryError: the C library refused.
    """
    sizes, events, borders = job["sizes"], job["events"], job["borders"]
    addresses: dict[int, int] = {}

    def happen(event: int) -> None:
        block = abs(event) - 1
        if event > 0:
            address = ctypes.c_void_p()
            if libc.posix_memalign(ctypes.byref(address), ALIGNMENT, max(1, sizes[block])):
                raise MemoryError(sizes[block])
            addresses[block] = address.value or 0
        elif block in addresses:
            libc.free(addresses.pop(block))

    for event in events[: borders[0]]:
        happen(event)
    found = []
    info = libc.mallinfo2()
    heap, mapped = info.arena, info.hblkhd
    for begin, end in itertools.pairwise(borders):
        fresh = 0
        for event in events[begin:end]:
            happen(event)
            info = libc.mallinfo2()
            fresh += max(0, info.arena - heap) + max(0, info.hblkhd - mapped)
            heap, mapped = info.arena, info.hblkhd
        found.append(fresh)
    return found


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
