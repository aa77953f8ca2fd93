"""The allocator against the one that torch ships, run on a CUDA runtime without a device.

Needs a CUDA build of torch, g++ and CUDA's headers: those beside torch, in `CUDA_HOME`, or in the
folders that `BSPROF_CUDA_INCLUDE` lists (`crt/host_defines.h` is in the package nvidia-cuda-crt).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from test_against_literal import MIB, SETTINGS, layout, some_size

from bsprof.predict.allocator import AllocatorRules, CachingAllocator, DeviceOutOfMemory
from bsprof.predict.allocator.recorded import replay_snapshot
from bsprof.predict.allocator.recording import Entry
from bsprof.predict.allocator.snapshot import RecordedBlock, Snapshot
from bsprof.predict.target import Software

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "compiled"
DEVICE = 400 * MIB
OTHER_STREAM = 8  # torch marks its own streams in the lowest bit of a stream's number
STATES = {
    "taken": "active_allocated",
    "waiting": "active_awaiting_free",
    "free": "inactive",
}


def headers(torch):
    listed = os.environ.get("BSPROF_CUDA_INCLUDE", "").split(os.pathsep)
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    beside = sorted(torch.parent.glob("nvidia/*/include"))
    return [torch / "include", *beside, Path(home) / "include", *map(Path, filter(None, listed))]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """The preloaded runtime and the program that passes requests on."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None or shutil.which("g++") is None:
        pytest.skip("no torch or no g++")
    torch = Path(spec.origin).parent
    folders = headers(torch)
    needed = ("cuda_runtime_api.h", "crt/host_defines.h")
    if not (torch / "lib" / "libc10_cuda.so").exists() or not all(
        any((folder / name).exists() for folder in folders) for name in needed
    ):
        pytest.skip("no CUDA build of torch or no headers of CUDA")
    out = tmp_path_factory.mktemp("compiled")
    runtime, program = out / "libnvidia-ml.so.1", out / "requests"
    common = ["g++", "-std=c++20", "-O1", *(f"-I{folder}" for folder in folders)]
    libraries = [torch / "lib", *sorted(torch.parent.glob("nvidia/*/lib"))]
    runtime_parts = ["-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", HERE / "fake_runtime.cpp"]
    program_parts = [HERE / "requests.cpp", f"-L{torch / 'lib'}", "-lc10_cuda", "-lc10"]
    program_parts += ["-Wl,--allow-shlib-undefined", *(f"-Wl,-rpath,{lib}" for lib in libraries)]
    for parts, target in ((runtime_parts, runtime), (program_parts, program)):
        command = [*common, *parts, "-o", target]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"another torch or CUDA than these were written for: {done.stderr[-500:]}")
    return runtime, program


def requests(seed, steps):
    rng = random.Random(seed)
    held, made = [], 0
    for _ in range(steps):
        choice = rng.random()
        if choice < 0.51 or not held:
            made += 1
            held.append(made)
            yield ("a", made, some_size(rng), rng.choice([0, 0, 0, OTHER_STREAM]))
        elif choice < 0.55:
            yield ("u", rng.choice(held), 2 * OTHER_STREAM)
        elif choice < 0.997:
            yield ("f", held.pop(rng.randrange(len(held))))
        else:
            yield ("e",)


def replayed(asked, rules):
    """What our allocator does, one line for each request as the program prints them."""
    allocator = CachingAllocator(rules, DEVICE)
    held, used, lines = {}, set(), []
    for kind, *values in asked:
        address = 0
        if kind == "a":
            number, size, stream = values
            try:
                block = held[number] = allocator.allocate(size, stream)
                address = block.address
            except DeviceOutOfMemory:
                pass
        elif kind == "u" and values[0] in held:
            used.add(values[0])
        elif kind == "f" and values[0] in held:
            give_back = allocator.free_later if values[0] in used else allocator.free
            give_back(held.pop(values[0]))
        elif kind == "e":
            allocator.empty_cache()
        numbers = (
            allocator.allocated_bytes,
            allocator.active_bytes,
            allocator.requested_bytes,
            allocator.reserved_bytes,
            allocator.inactive_split_bytes,
            allocator.alloc_retries,
            allocator.ooms,
        )
        lines.append(f"{kind} {address} {' '.join(map(str, numbers))}")
    blocks = [(address, size, STATES[state]) for address, size, state in layout(allocator)]
    return lines, blocks


def really(compiled, asked, conf):
    runtime, program = compiled
    done = subprocess.run(
        [program],
        input="".join(f"{' '.join(map(str, request))}\n" for request in asked),
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "LD_PRELOAD": str(runtime),
            "FAKE_CAPACITY": str(DEVICE),
            "PYTORCH_CUDA_ALLOC_CONF": conf,
        },
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines, history, blocks = [], [], []
    for line in done.stdout.splitlines():
        kind, *values = line.split()
        if kind == "history":
            action, address, size, stream = values[0], *map(int, values[1:])
            history.append(Entry(action=action, address=address, size=size, stream=stream))
        elif kind == "block":
            blocks.append((int(values[0]), int(values[1]), values[2]))
        else:
            lines.append(line)
    return lines, history, sorted(blocks)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("seed", range(3))
def test_both_do_the_same(compiled, name, seed):
    torch = tuple(map(int, importlib.metadata.version("torch").split(".")[:2]))
    conf, _ = SETTINGS[name]
    rules = AllocatorRules.of(Software(torch=torch), conf)
    asked = list(requests(seed, 600))
    ours, our_blocks = replayed(asked, rules)
    theirs, history, their_blocks = really(compiled, asked, conf)
    for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        assert our == their, f"request {number}: {asked[number]}"
    assert our_blocks == their_blocks
    assert not theirs[-1].endswith(" 0 0"), "no way down to out of memory in it"
    snapshot = Snapshot(
        histories=(tuple(history),),
        blocks=(
            tuple(RecordedBlock(address=a, size=s, state=state) for a, s, state in their_blocks),
        ),
    )
    found = replay_snapshot(snapshot, rules, device_bytes=DEVICE)
    assert found.difference is None
    assert found.allocations + found.ooms == sum(request[0] == "a" for request in asked)
