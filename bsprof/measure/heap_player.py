"""Plays a recorded stream of allocations on this process's own C heap and prints its peaks.

A program of its own, run by `bsprof.measure.heap` in a small process: standard library only, no
import of bsprof. Reads one job from standard input, prints `{size: bytes}`, null where memory
ended. Each size is played in a forked child, so that every heap starts equally fresh. No byte of
the blocks is touched: what counts against RLIMIT_DATA is what was asked for.
"""

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

ALIGNMENT = 64  # torch's, c10/core/alignment.h

LIBC = ctypes.CDLL(None)
LIBC.free.argtypes = [ctypes.c_void_p]
LIBC.posix_memalign.argtypes = [
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_size_t,
    ctypes.c_size_t,
]


def status_bytes(names: tuple[str, ...]) -> dict[str, int]:
    """Fields of /proc/self/status that are given in kB, in bytes, by name."""
    fields = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in names:
            fields[name] = int(rest.split()[0]) * 1024
    return fields


def allocate(size: int) -> int:
    """The address of a new block.

    Raises:
        MemoryError: the C library refused.
    """
    address = ctypes.c_void_p()
    if LIBC.posix_memalign(ctypes.byref(address), ALIGNMENT, max(1, size)):
        raise MemoryError(size)
    assert address.value is not None
    return address.value


def play(job: dict[str, Any], size: int) -> int:
    """Bytes by which the data segment grows at its peak while the stream is played."""
    steps = size - job["origin"]
    before = status_bytes(("VmData", "VmPeak", "VmSize"))
    for base, slope in job["resident"]:
        allocate(round(base + slope * steps))
    changes = [round(base + slope * steps) for base, slope in job["changes"]]
    for _ in range(job["updates"]):
        live: dict[int, int] = {}
        stream = zip(job["blocks"], job["allocates"], changes, strict=True)
        for block, allocates, change in stream:
            if allocates:
                live[block] = allocate(change)
            else:
                LIBC.free(live.pop(block))
        for address in live.values():
            LIBC.free(address)
    after = status_bytes(("VmPeak",))
    return after["VmPeak"] - before["VmSize"]


def main() -> None:
    """Every size of the job in a child of its own."""
    job = json.load(sys.stdin)
    peaks = {}
    for size in job["sizes"]:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(write, json.dumps(play(job, size)).encode())
            except MemoryError:
                os.write(write, b"null")
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            text = answer.read()
        os.waitpid(child, 0)
        if text:
            peaks[size] = json.loads(text)
    json.dump(peaks, sys.stdout)


if __name__ == "__main__":
    main()
