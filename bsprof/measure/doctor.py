"""What is wrong with this machine: a list of checks, each with what was found and what to do.

The parent stays light: everything that needs torch is asked of a short-lived child process, so a
torch that crashes on import is a finding and not the end of the doctor.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from bsprof.measure import host
from bsprof.units import format_bytes

PYTHON_FLOOR = (3, 11)
TORCH_FLOOR = (2, 6)
# A first import of torch from a cold disk takes tens of seconds.
_TORCH_TIMEOUT_S = 120.0
_LITTLE_MEMORY_BYTES = 2 * 2**30

# Run by a child: prints one JSON object. Each part stands alone, because any of them may fail.
_TORCH_FACTS = """
import json, warnings
warnings.simplefilter("ignore")
facts = {}
try:
    import torch
    facts["version"] = torch.__version__
    facts["threads"] = torch.get_num_threads()
    facts["cuda_build"] = torch.version.cuda
    facts["hip_build"] = torch.version.hip
    devices = []
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind)
        if module.is_available():
            devices += [[kind, i, module.get_device_name(i)] for i in range(module.device_count())]
    if torch.backends.mps.is_available():
        devices.append(["mps", 0, "Apple MPS"])
    facts["devices"] = devices
except BaseException as error:
    facts["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(facts))
"""


class CheckStatus(StrEnum):
    """`ok`; `warn`: measuring works but is limited or less sure; `fail`: it does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at: what was found, and what to do (empty when all is well)."""

    name: str
    status: CheckStatus
    found: str
    hint: str = ""


def examine(
    *,
    store: Path | None = None,
    environment: Mapping[str, str] | None = None,
    torch_facts: Callable[[], Mapping[str, Any]] | None = None,
) -> list[Check]:
    """Looks at Python, torch, devices, memory, threads, the store, NVML and the allocator.

    Args:
        store: Folder of profiles; None is the store in use.
        environment: Environment variables; None is this process's.
        torch_facts: What a child says of torch; replaced in tests.
    """
    from bsprof.store import store_folder

    variables = os.environ if environment is None else environment
    facts = (torch_facts or ask_torch)()
    return [
        _python(),
        *_torch(facts),
        *_devices(facts),
        *_memory(host.host_memory()),
        _threads(facts, variables),
        _store(store if store is not None else store_folder()),
        _nvml(facts),
        *_allocator(variables),
    ]


def ask_torch() -> Mapping[str, Any]:
    """Facts about torch from a child process; `error` says why there are none."""
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", _TORCH_FACTS],  # -P: a torch.py here is not torch
            capture_output=True,
            text=True,
            timeout=_TORCH_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"importing torch took longer than {_TORCH_TIMEOUT_S:.0f} s"}
    lines = child.stdout.strip().splitlines()
    try:
        facts = json.loads(lines[-1]) if lines else None
    except ValueError:
        facts = None
    if isinstance(facts, dict):
        return facts
    last = (child.stderr.strip().splitlines() or ["nothing"])[-1]
    return {"error": f"importing torch ended with exit status {child.returncode}: {last}"}


def _python() -> Check:
    found = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info[:2] < PYTHON_FLOOR:
        return Check(
            name="python",
            status=CheckStatus.FAIL,
            found=found,
            hint=f"bsprof needs Python {'.'.join(map(str, PYTHON_FLOOR))} or later",
        )
    return Check(name="python", status=CheckStatus.OK, found=found)


def _torch(facts: Mapping[str, Any]) -> Iterator[Check]:
    if "error" in facts or "version" not in facts:
        yield Check(
            name="torch",
            status=CheckStatus.FAIL,
            found=str(facts.get("error", "no answer")),
            hint="install torch 2.6 or later for this Python, and see that `import torch` works",
        )
        return
    version = str(facts["version"])
    number = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    old = number < TORCH_FLOOR
    yield Check(
        name="torch",
        status=CheckStatus.FAIL if old else CheckStatus.OK,
        found=version,
        hint="bsprof needs torch 2.6 or later" if old else "",
    )


def _devices(facts: Mapping[str, Any]) -> Iterator[Check]:
    devices = facts.get("devices")
    if devices is None:
        return
    if devices:
        named = [f"{kind}:{index} {name}" for kind, index, name in devices]
        yield Check(name="devices", status=CheckStatus.OK, found="cpu, " + ", ".join(named))
        return
    built_for = "CUDA" if facts.get("cuda_build") else "ROCm" if facts.get("hip_build") else ""
    if built_for:
        yield Check(
            name="devices",
            status=CheckStatus.WARN,
            found=f"cpu only, although torch is built for {built_for}",
            hint="see that the driver is loaded and that CUDA_VISIBLE_DEVICES names a device",
        )
    else:
        yield Check(name="devices", status=CheckStatus.OK, found="cpu (torch is built without GPU)")


def _memory(memory: host.HostMemory) -> Iterator[Check]:
    source = {
        "device": "free memory less 5 %",
        "cgroup": "a cgroup's limit",
        "rlimit": "a limit of this shell (ulimit)",
    }[memory.limit_source]
    little = memory.usable_bytes < _LITTLE_MEMORY_BYTES
    yield Check(
        name="memory",
        status=CheckStatus.WARN if little else CheckStatus.OK,
        found=(
            f"{format_bytes(memory.usable_bytes)} usable of {format_bytes(memory.capacity_bytes)},"
            f" set by {source}"
        ),
        hint="little room for a sweep on the CPU: torch alone takes some 0.3 GiB" if little else "",
    )


def _threads(facts: Mapping[str, Any], variables: Mapping[str, str]) -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = facts.get("threads")
    found = f"torch computes with {threads or 'an unknown number of'} threads on {cores} cores"
    if isinstance(threads, int) and cores is not None and threads > cores:
        return Check(
            name="threads",
            status=CheckStatus.WARN,
            found=found,
            hint="more threads than cores make times erratic: set OMP_NUM_THREADS to the cores",
        )
    if variables.get("OMP_NUM_THREADS") == "1" and (cores or 1) > 1:
        return Check(
            name="threads",
            status=CheckStatus.WARN,
            found=f"{found}, because OMP_NUM_THREADS is 1",
            hint="unset OMP_NUM_THREADS to measure with all cores",
        )
    return Check(name="threads", status=CheckStatus.OK, found=found)


def _store(folder: Path) -> Check:
    """Whether the store, or the nearest folder that exists above it, can be written."""
    existing = folder.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Check(
            name="store",
            status=CheckStatus.FAIL,
            found=f"{folder} cannot be written: {error.strerror}",
            hint="set BSPROF_STORE to a folder that can be written",
        )
    made = "" if folder.is_dir() else " (made at the first sweep)"
    return Check(name="store", status=CheckStatus.OK, found=f"{folder}{made}")


def _nvml(facts: Mapping[str, Any]) -> Check:
    """Whether the NVIDIA management library answers; it matters only where there is CUDA."""
    kinds = {device[0] for device in facts.get("devices") or ()}
    if "cuda" not in kinds or facts.get("hip_build"):
        return Check(name="nvml", status=CheckStatus.OK, found="not needed: no CUDA device")
    from bsprof.measure.devices.nvml import open_nvml

    if open_nvml() is None:
        return Check(
            name="nvml",
            status=CheckStatus.WARN,
            found="the NVIDIA management library does not answer",
            hint=(
                "clocks, power and the memory of other processes stay unknown; the context counts"
                " as not ours. Install the driver's libnvidia-ml, or allow it in the container"
            ),
        )
    return Check(name="nvml", status=CheckStatus.OK, found="answers")


def _allocator(variables: Mapping[str, str]) -> Iterator[Check]:
    """Settings of the CUDA allocator that contradict each other or replace it."""
    old = variables.get("PYTORCH_CUDA_ALLOC_CONF")
    new = variables.get("PYTORCH_ALLOC_CONF")
    found, hints = [], []
    if old is not None and new is not None:
        found.append("PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF are both set")
        hints.append("torch reads the first and ignores the second for CUDA: keep one")
    if "cudaMallocAsync" in f"{old} {new}":
        found.append("backend cudaMallocAsync")
        hints.append("another allocator: reserved bytes and retries mean something else there")
    if variables.get("PYTORCH_NO_CUDA_MEMORY_CACHING") not in (None, "", "0"):
        found.append("PYTORCH_NO_CUDA_MEMORY_CACHING is set")
        hints.append("unset it: without the cache neither times nor peaks are those of training")
    status = CheckStatus.WARN if found else CheckStatus.OK
    settings = old if old is not None else new
    yield Check(
        name="allocator",
        status=status,
        found="; ".join(found) or settings or "default settings",
        hint="; ".join(hints),
    )
