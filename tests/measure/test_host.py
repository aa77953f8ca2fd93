"""Host memory from fake proc and cgroup trees, and once from this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bsprof.measure.host import (
    SAFETY_MARGIN,
    cgroup_free_bytes,
    host_memory,
    oom_kill_count,
    process_memory,
)

GIB, KIB = 2**30, 2**10


class Tree:
    """A fake `/proc` and `/sys/fs/cgroup`."""

    def __init__(self, root: Path) -> None:
        self.proc, self.cgroup = root / "proc", root / "cgroup"
        self.write(
            self.proc / "meminfo",
            f"MemTotal:       {64 * GIB // KIB} kB\n"
            f"MemFree:        {10 * GIB // KIB} kB\n"
            f"MemAvailable:   {40 * GIB // KIB} kB\n",
        )
        self.write(
            self.proc / "self/status",
            "VmPeak:\t 3000000 kB\nVmSize:\t 2097152 kB\nVmHWM:\t 500 kB\nVmRSS:\t 400 kB\n"
            "VmData:\t 1048576 kB\n",
        )
        self.limits()

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def limits(self, data: str = "unlimited", space: str = "unlimited") -> None:
        self.write(
            self.proc / "self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            f"Max data size             {data:<20} unlimited            bytes     \n"
            f"Max address space         {space:<20} unlimited            bytes     \n",
        )

    def v1(self, path: str, *, mount: str = "memory") -> None:
        self.write(self.proc / "self/cgroup", f"5:cpu:/elsewhere\n4:memory:{path}\n0::/\n")
        (self.cgroup / mount).mkdir(parents=True, exist_ok=True)

    def v1_group(self, path: str, limit: int, used: int, cache: int = 0, kills: int = 0) -> None:
        folder = self.cgroup / "memory" / path
        self.write(folder / "memory.limit_in_bytes", f"{limit}\n")
        self.write(folder / "memory.usage_in_bytes", f"{used}\n")
        self.write(folder / "memory.stat", f"cache {cache}\ntotal_inactive_file {cache}\n")
        self.write(
            folder / "memory.oom_control", f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
        )

    def v2(self, path: str) -> None:
        self.write(self.proc / "self/cgroup", f"0::{path}\n")

    def v2_group(
        self, path: str, limit: int | str, used: int, *, high: int | str = "max", kills: int = 0
    ) -> None:
        folder = self.cgroup / path
        self.write(folder / "memory.max", f"{limit}\n")
        self.write(folder / "memory.high", f"{high}\n")
        self.write(folder / "memory.current", f"{used}\n")
        self.write(folder / "memory.stat", f"anon 1\ninactive_file {GIB}\n")
        self.write(folder / "memory.events", f"low 0\noom 3\noom_kill {kills}\n")

    def memory(self, option: int | None = None):
        return host_memory(option, proc=self.proc, cgroup_root=self.cgroup)

    def free(self) -> int | None:
        return cgroup_free_bytes(proc=self.proc, cgroup_root=self.cgroup)

    def kills(self) -> int:
        return oom_kill_count(proc=self.proc, cgroup_root=self.cgroup)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_without_limits_free_memory_less_a_margin(tree):
    memory = tree.memory()
    assert memory.capacity_bytes == 64 * GIB
    assert memory.available_bytes == 40 * GIB
    assert memory.usable_bytes == int(40 * GIB * (1 - SAFETY_MARGIN))
    assert memory.other_bytes == 24 * GIB - 400 * KIB
    assert memory.limit_source == "device"


def test_the_option_counts_in_full_when_it_is_the_smallest(tree):
    memory = tree.memory(3 * GIB)
    assert (memory.usable_bytes, memory.limit_source) == (3 * GIB, "option")


def test_an_option_beyond_what_is_free_does_not_create_memory(tree):
    memory = tree.memory(100 * GIB)
    assert memory.limit_source == "device"
    assert memory.usable_bytes < 40 * GIB


def test_the_data_limit_of_the_shell(tree):
    tree.limits(data=str(2 * GIB))
    memory = tree.memory(3 * GIB)
    assert (memory.usable_bytes, memory.limit_source) == (2 * GIB, "rlimit")


def test_the_address_space_limit_less_what_is_mapped_but_not_data(tree):
    tree.limits(space=str(5 * GIB))
    memory = tree.memory()
    assert (memory.usable_bytes, memory.limit_source) == (4 * GIB, "rlimit")


def test_cgroup_v1_the_tightest_level_up_the_tree(tree):
    tree.v1("/jobs/one")
    tree.v1_group("jobs/one", 10 * GIB, 1 * GIB)
    tree.v1_group("jobs", 8 * GIB, 5 * GIB, cache=1 * GIB)
    tree.v1_group("", 9223372036854771712, 20 * GIB)
    assert tree.free() == 4 * GIB
    memory = tree.memory()
    assert memory.limit_source == "cgroup"
    assert memory.usable_bytes == int(4 * GIB * (1 - SAFETY_MARGIN))
    assert memory.available_bytes == 4 * GIB


def test_cgroup_v1_without_a_limit(tree):
    tree.v1("/")
    tree.v1_group("", 9223372036854771712, 20 * GIB)
    assert tree.free() is None
    assert tree.memory().limit_source == "device"


def test_cgroup_v1_in_a_container_whose_path_is_the_host_s(tree):
    tree.v1("/docker/0123abc/inner")
    tree.v1_group("", 4 * GIB, 1 * GIB)
    tree.v1_group("inner", 2 * GIB, 1 * GIB)
    assert tree.free() == 1 * GIB


def test_cgroup_v2_up_the_tree_and_max_means_none(tree):
    tree.v2("/user/app")
    tree.v2_group("user/app", "max", 2 * GIB)
    tree.v2_group("user", 6 * GIB, 3 * GIB)
    assert tree.free() == 4 * GIB  # a gibibyte of the use is file cache


def test_cgroup_v2_throttling_counts_as_a_limit(tree):
    tree.v2("/app")
    tree.v2_group("app", 8 * GIB, 2 * GIB, high=3 * GIB)
    assert tree.free() == 2 * GIB


def test_cgroup_hybrid_v1_memory_beside_an_empty_v2(tree):
    tree.v1("/app")
    tree.v1_group("app", 4 * GIB, 1 * GIB)
    (tree.cgroup / "unified").mkdir(parents=True)
    assert tree.free() == 3 * GIB


def test_a_full_cgroup_leaves_nothing(tree):
    tree.v2("/app")
    tree.v2_group("app", 2 * GIB, 5 * GIB)
    assert tree.free() == 0
    assert tree.memory().usable_bytes == 0


def test_no_cgroup_files_at_all(tree):
    assert tree.free() is None
    assert tree.kills() == 0


def test_kills_are_counted_in_v1_v2_and_else_for_the_machine(tree):
    tree.write(tree.proc / "vmstat", "pgfault 3\noom_kill 7\n")
    assert tree.kills() == 7
    tree.v1("/app")
    tree.v1_group("app", 4 * GIB, 1 * GIB, kills=2)
    assert tree.kills() == 2
    tree.v2("/other")
    tree.v2_group("other", 4 * GIB, 1 * GIB, kills=5)
    assert tree.kills() == 5


def test_a_system_without_proc_answers_from_posix(tmp_path):
    memory = host_memory(None, proc=tmp_path, cgroup_root=tmp_path)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory.capacity_bytes == total
    assert memory.usable_bytes == int(total * (1 - SAFETY_MARGIN))
    assert process_memory(proc=tmp_path).data_bytes == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_this_machine():
    memory = host_memory()
    assert 0 < memory.usable_bytes <= memory.capacity_bytes
    own = process_memory()
    assert 0 < own.rss_bytes <= own.peak_rss_bytes
    assert own.data_bytes <= own.size_bytes <= own.peak_size_bytes
    assert process_memory(pid=os.getpid()).data_bytes > 0


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is exact on Linux")
def test_data_bytes_are_what_the_kernel_compares_with_the_limit():
    """An anonymous mapping succeeds exactly up to the limit less `data_bytes`."""
    script = """
import mmap, resource
from bsprof.measure.host import process_memory
limit = process_memory().data_bytes + 64 * 2**20
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
room = limit - process_memory().data_bytes
room -= room % mmap.PAGESIZE
private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
try:
    mmap.mmap(-1, room + mmap.PAGESIZE, private)
    print("too much was allowed")
except OSError:
    mmap.mmap(-1, room - 2**20, private)
    print("exact")
"""
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert child.stdout == "exact\n"
