"""Workspaces that cuBLAS keeps: one block per handle and stream.

Sources: `aten/src/ATen/cuda/CublasHandlePool.cpp` and `CUDABlas.cpp` of pytorch, and the pull
requests named at each constant. Backward runs on a thread of its own with a handle of its own,
so training has two blocks (inferred from the source, not measured).
"""

from __future__ import annotations

import re

from bsprof.predict.stream import Insertion, Operator, Stream
from bsprof.predict.target import Software
from bsprof.records import DeviceSpec

KIB = 2**10
MIB = 2**20

NAME = "cuBLAS workspace"
LT_NAME = "cuBLASLt workspace"

SMALL_BYTES = 8_519_680
"""`:4096:2:16:8`, every compute capability without a larger default."""

LARGE_BYTES = 32 * MIB

FIRST_INSIDE = (2, 0)
"""Torch allocates the workspace itself from here on (#86645 after the branch of 1.13, size
#91564); before, cuBLAS took it from the driver."""

FIRST_LARGE = {9: (2, 0), 10: (2, 12), 11: (2, 14), 12: (2, 12)}
"""First torch whose default is 32 MiB, by major compute capability: Hopper #91564, Blackwell
#175344 (its revert #182669 was closed), Thor #189312."""

LT_BYTES = MIB
"""`CUBLASLT_WORKSPACE_SIZE`, 1024 KiB by default (#73439)."""

LT_FIRST = (1, 12)
LT_FIRST_UNIFIED = (2, 11)
"""cuBLASLt uses cuBLAS' own block from here on in open builds (#168175); from 2.9 to 2.10 it had
a persistent one (#156495), before one per call, which counts as kept here."""

ROCM_BYTES = 32 * MIB
ROCM_LARGE_BYTES = 128 * MIB
ROCM_LARGE = ("cdna3", "cdna4", "gfx94", "gfx95")
"""hipBLAS: 128 MiB on gfx94x and gfx95x, else 32 MiB, since #138791."""

MATMULS = frozenset(
    {
        "aten.addbmm",
        "aten.addmm",
        "aten.addmv",
        "aten.baddbmm",
        "aten.bmm",
        "aten.dot",
        "aten.linear",
        "aten.matmul",
        "aten.mm",
        "aten.mv",
        "aten.vdot",
        "aten._addmm_activation",
    }
)
LT_MATMULS = frozenset({"aten.addmm", "aten.linear", "aten._addmm_activation"})
"""With a bias along one dimension these take the cuBLASLt epilogue."""


def parse_workspace_config(text: str) -> int:
    """Bytes that a value of `CUBLAS_WORKSPACE_CONFIG` asks for: the sum of `:KiB:count` pairs.

    Text without such a pair counts as 4 MiB, as torch takes it.
    """
    pairs = re.findall(r":([0-9]+):([0-9]+)", text)
    if not pairs:
        return 4 * MIB
    return sum(int(size) * int(count) for size, count in pairs) * KIB


def workspace_bytes(device: DeviceSpec, software: Software, config: str | None = None) -> int:
    """Bytes of one block of a handle and stream.

    Args:
        device: Where it runs.
        software: Whose defaults apply.
        config: Value of `CUBLAS_WORKSPACE_CONFIG`; None is unset.
    """
    if config is not None:
        return parse_workspace_config(config)
    if device.kind == "rocm":
        large = device.architecture.lower().startswith(ROCM_LARGE)
        return ROCM_LARGE_BYTES if large else ROCM_BYTES
    major = device.compute_capability[0] if device.compute_capability else 0
    first_large = FIRST_LARGE.get(major)
    large = first_large is not None and software.torch >= first_large
    return LARGE_BYTES if large else SMALL_BYTES


def is_inside(software: Software) -> bool:
    """Whether the workspace comes from the caching allocator."""
    return software.torch >= FIRST_INSIDE


def workspace_insertions(
    stream: Stream, device: DeviceSpec, software: Software, config: str | None = None
) -> list[Insertion]:
    """The blocks, each where its thread multiplies first, kept to the end."""
    size = workspace_bytes(device, software, config)
    has_lt = LT_FIRST <= software.torch < LT_FIRST_UNIFIED and device.kind == "cuda"
    insertions = []
    seen: set[tuple[str, bool, int]] = set()

    def keep(operator: Operator, name: str, amount: int) -> None:
        on = cuda_stream(stream, operator)
        place = (name, operator.backward, on)
        if amount and place not in seen:
            seen.add(place)
            insertions.append(
                Insertion(
                    position=operator.position, bytes=amount, until=None, name=name, stream=on
                )
            )

    for operator in stream.operators:
        if operator.name not in MATMULS:
            continue
        if is_inside(software):
            keep(operator, NAME, size)
        if has_lt and has_epilogue(operator):
            keep(operator, LT_NAME, LT_BYTES)
    return insertions


def has_epilogue(operator: Operator) -> bool:
    """Whether an operator multiplies and adds a bias in one call of cuBLASLt."""
    if operator.name not in LT_MATMULS:
        return False
    return any(len(operand.shape) == 1 for operand in operator.inputs)


def cuda_stream(stream: Stream, operator: Operator) -> int:
    """The CUDA stream that an operator runs on: that of what it makes."""
    for operand in operator.outputs:
        if 0 <= operand.block < len(stream.streams):
            return stream.streams[operand.block]
    return 0
