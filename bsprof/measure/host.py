"""The host's memory as this process may use it: kernel, cgroups (v1 and v2) and rlimits.

Reads text files only; both roots can be replaced by a fake tree. Imports no torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
CGROUP_ROOT = Path("/sys/fs/cgroup")

# Share of free memory that is left alone when nobody set a limit: the kernel, the parent and
# neighbours move by a few per cent while a sweep runs. Heuristic; trades reach for safety.
SAFETY_MARGIN = 0.05
# cgroup v1 writes "no limit" as the largest page-aligned 63-bit number.
_UNLIMITED_BYTES = 2**60


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Host memory in bytes, as seen by one process.

    Attributes:
        capacity_bytes: What the machine has.
        available_bytes: What could be had now without swapping, within the cgroup's limit.
        usable_bytes: What this process may use in total: the smallest of the limits.
        other_bytes: What others on the machine use.
        limit_source: Which limit is the smallest: `device`, `cgroup`, `rlimit` or `option`.
    """

    capacity_bytes: int
    available_bytes: int
    usable_bytes: int
    other_bytes: int
    limit_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """One process's memory, in bytes, from `/proc/<pid>/status`.

    Attributes:
        data_bytes: Private writable mappings, the very number that RLIMIT_DATA is compared with.
        size_bytes: All mappings, the number that RLIMIT_AS is compared with.
        peak_size_bytes: Largest `size_bytes` since the process began; nothing resets it.
        rss_bytes, peak_rss_bytes: Resident set now, and its high-water mark.
    """

    data_bytes: int
    size_bytes: int
    peak_size_bytes: int
    rss_bytes: int
    peak_rss_bytes: int


def process_memory(*, proc: Path = PROC, pid: int | None = None) -> ProcessMemory:
    """Memory of a process (default: this one); zeros on systems without `/proc`."""
    fields = _kilobyte_fields(proc / ("self" if pid is None else str(pid)) / "status")
    return ProcessMemory(
        data_bytes=fields.get("VmData", 0),
        size_bytes=fields.get("VmSize", 0),
        peak_size_bytes=fields.get("VmPeak", 0),
        rss_bytes=fields.get("VmRSS", 0),
        peak_rss_bytes=fields.get("VmHWM", 0),
    )


def host_memory(
    limit_option: int | None = None, *, proc: Path = PROC, cgroup_root: Path = CGROUP_ROOT
) -> HostMemory:
    """What this process may use, as the smallest of all limits, and which one that is.

    Memory that is merely free (of the machine, of the cgroup) is counted less a safety margin of
    5 %, because going past it means the out-of-memory killer; limits that refuse cleanly (an
    option, an rlimit) count in full.

    Args:
        limit_option: The user's own limit in bytes; None for none.
        proc: The proc file system.
        cgroup_root: Where cgroups are mounted.
    """
    fields = _kilobyte_fields(proc / "meminfo")
    capacity = fields.get("MemTotal") or _sysconf_memory()
    free = fields.get("MemAvailable", fields.get("MemFree", capacity))
    own = process_memory(proc=proc)
    candidates = [("device", int(free * (1 - SAFETY_MARGIN)))]
    headroom = cgroup_free_bytes(proc=proc, cgroup_root=cgroup_root)
    if headroom is not None:
        candidates.append(("cgroup", int(headroom * (1 - SAFETY_MARGIN))))
    data_limit, space_limit = _rlimits(proc / "self" / "limits")
    if data_limit is not None:
        candidates.append(("rlimit", data_limit))
    if space_limit is not None:
        # RLIMIT_AS also counts code and files, which are mapped already.
        candidates.append(("rlimit", space_limit - (own.size_bytes - own.data_bytes)))
    if limit_option is not None:
        candidates.append(("option", limit_option))
    source, usable = min(candidates, key=lambda candidate: candidate[1])
    return HostMemory(
        capacity_bytes=capacity,
        available_bytes=free if headroom is None else min(free, headroom),
        usable_bytes=max(usable, 0),
        other_bytes=max(capacity - free - own.rss_bytes, 0),
        limit_source=source,
    )


def cgroup_free_bytes(*, proc: Path = PROC, cgroup_root: Path = CGROUP_ROOT) -> int | None:
    """Bytes left below the tightest memory limit from our cgroup up to the root.

    Cached file pages that the kernel would drop first are not counted as used. None where no
    level has a limit or none can be read.
    """
    free = [
        limit - used
        for folder in _memory_cgroups(proc, cgroup_root)
        for limit, used in _limit_and_usage(folder)
    ]
    return max(min(free), 0) if free else None


def oom_kill_count(*, proc: Path = PROC, cgroup_root: Path = CGROUP_ROOT) -> int:
    """How often the kernel's out-of-memory killer struck in our cgroup, so far.

    Take it before and after: only the difference means anything. Falls back on the count of
    the whole machine where no memory cgroup can be read; 0 where nothing counts.
    """
    for folder in _memory_cgroups(proc, cgroup_root):
        for name in ("memory.events", "memory.oom_control"):
            count = _named_numbers(folder / name).get("oom_kill")
            if count is not None:
                return count
    return _named_numbers(proc / "vmstat").get("oom_kill", 0)


def _memory_cgroups(proc: Path, root: Path) -> Iterator[Path]:
    """Folders of the memory controller, from our own cgroup up to the mount, deepest first."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and controllers == "":
            bases = [root, root / "unified"]
        elif "memory" in controllers.split(","):
            bases = [root / "memory", root / controllers]
        else:
            continue
        for base in bases:
            yield from _upwards(base, path)


def _upwards(base: Path, path: str) -> Iterator[Path]:
    """Existing folders from `base/path` up to `base`.

    Inside a container the path is often the host's while the mount shows only our part of the
    tree, so leading parts that do not exist are dropped.
    """
    parts = [part for part in path.split("/") if part not in ("", "..")]
    while parts and not base.joinpath(*parts).is_dir():
        parts.pop(0)
    for depth in range(len(parts), -1, -1):
        folder = base.joinpath(*parts[:depth])
        if folder.is_dir():
            yield folder


def _limit_and_usage(folder: Path) -> Iterator[tuple[int, int]]:
    """(limit, used) of one cgroup, v2 or v1; nothing where it has no limit."""
    statistics = _named_numbers(folder / "memory.stat")
    used = _number(folder / "memory.current")
    if used is not None:
        used -= statistics.get("inactive_file", 0)
        # Past memory.high a process is not killed but slowed until its timings are worthless.
        limits = [_number(folder / "memory.max"), _number(folder / "memory.high")]
    else:
        used = _number(folder / "memory.usage_in_bytes") or 0
        used -= statistics.get("total_inactive_file", 0)
        limits = [_number(folder / "memory.limit_in_bytes")]
    for limit in limits:
        if limit is not None and limit < _UNLIMITED_BYTES:
            yield limit, max(used, 0)


def _rlimits(path: Path) -> tuple[int | None, int | None]:
    """Soft limits (data, address space) in bytes; None for none."""
    text = _text(path)
    found = []
    for name in ("Max data size", "Max address space"):
        match = re.search(rf"^{name}\s+(\d+)", text, re.MULTILINE)
        found.append(int(match[1]) if match else None)
    return found[0], found[1]


def _kilobyte_fields(path: Path) -> dict[str, int]:
    """Bytes by name from lines like `VmData:  123 kB`."""
    pattern = re.compile(r"^(\w+):\s+(\d+) kB", re.MULTILINE)
    return {name: int(number) * 1024 for name, number in pattern.findall(_text(path))}


def _named_numbers(path: Path) -> dict[str, int]:
    """Numbers by name from lines like `oom_kill 0`."""
    pattern = re.compile(r"^(\w+) (\d+)$", re.MULTILINE)
    return {name: int(number) for name, number in pattern.findall(_text(path))}


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    """A small kernel file, or nothing: any of them may be absent or refused."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _sysconf_memory() -> int:
    """Physical memory by POSIX, for systems without `/proc`."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
