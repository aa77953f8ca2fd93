"""The one table of error messages: a pattern, and what it says about a micro-batch size.

Read by `bsprof.measure.classify`, which looks at types first. Every line has its test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bsprof.records import PointStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the message table: a pattern (searched, case ignored) and what it means."""

    pattern: re.Pattern[str]
    status: PointStatus
    reason: str
    ambiguous: bool = False


def _rule(
    pattern: str,
    status: PointStatus,
    reason: str,
    *,
    ambiguous: bool = False,
) -> Rule:
    return Rule(
        pattern=re.compile(pattern, re.IGNORECASE),
        status=status,
        reason=reason,
        ambiguous=ambiguous,
    )


_OOM = PointStatus.OOM
_LIMIT = PointStatus.NOT_MEMORY_LIMIT
_FAILED = PointStatus.FAILED

# Order matters: the first match wins, so the exact wordings stand above the general ones. Every
# line has its test with a wording seen in the wild (pytorch, torch-xpu-ops, triton, vllm,
# Lightning, lighteval, Megatron-LM issue trackers, or provoked on torch 2.13.0).
RULES: tuple[Rule, ...] = (
    # Limits that are not memory come first: "out of resource: shared memory" must not read as
    # "out of memory".
    _rule(
        r"out of resources?: (shared memory|threads|tensor memory|registers)|OutOfResources",
        _LIMIT,
        "a Triton kernel needs more of a multiprocessor's resources than this device has",
    ),
    _rule(
        r"No valid triton configs",
        _LIMIT,
        "no Triton configuration fits this device",
    ),
    _rule(
        r"invalid configuration argument|cudaErrorInvalidConfiguration"
        r"|hipErrorInvalidConfiguration|CUDA_ERROR_INVALID_CONFIGURATION",
        _LIMIT,
        "a kernel's launch grid is beyond the device's limits",
    ),
    _rule(
        r"Triton Error \[(CUDA|HIP|XPU)\]: invalid argument",
        _LIMIT,
        "a Triton kernel's launch arguments are beyond the device's limits",
        ambiguous=True,
    ),
    _rule(
        r"too many resources requested for launch",
        _LIMIT,
        "a kernel needs more registers or threads than a multiprocessor has",
        ambiguous=True,
    ),
    _rule(
        r"canUse32BitIndexMath|32-?bit index(ing)? math|fit into 32-?bit",
        _LIMIT,
        "a tensor has more elements than a kernel's 32-bit indices reach",
    ),
    _rule(
        r"integer out of range|int(32)? (overflow|out of range)|INT_MAX"
        r"|(numel|nnz|elements?|size|dimension|stride|value)\b[^.\n]{0,60}"
        r"(exceed|larger than|greater than|too large|less than|fit)[^.\n]{0,30}"
        r"(int32|INT_MAX|2147483647|2\*\*31|2\^31|32-bit)"
        r"|cannot be converted to type int(32)? without overflow",
        _LIMIT,
        "a size is beyond what a 32-bit integer holds",
    ),
    _rule(
        # "MPSGaph" is how torch spells it.
        r"MPSGr?aph does not support tensor dims|total bytes of NDArray > 2\*\*32"
        r"|Output channels > 65536 not supported at the MPS device",
        _LIMIT,
        "a tensor is larger than the Metal graph supports",
    ),
    _rule(
        r"invalid buffer size",
        _LIMIT,
        "one buffer is larger than Metal allows, whatever memory is free",
        ambiguous=True,
    ),
    # Allocators of the devices.
    _rule(
        r"MPS backend out of memory",
        _OOM,
        "the MPS allocator refused memory",
    ),
    _rule(
        r"kIOGPUCommandBufferCallbackErrorOutOfMemory|Insufficient Memory \(0*8:",
        _OOM,
        "a Metal command buffer ran out of memory",
    ),
    _rule(
        r"NCCL[^\n]*(unhandled cuda error|unhandled system error|internal error)"
        r"(?=[\s\S]*(out of memory|Cuda failure 2\b|failed to (cuda )?(allocate|malloc|calloc)"
        r"|cudaMalloc|Failed to CUDA))",
        _OOM,
        "NCCL could not allocate its buffers, which lie outside torch's allocator",
    ),
    _rule(
        r"Cuda failure (2|'out of memory')|ncclCuda(Malloc|Calloc)|Failed to CUDA (m|c)alloc",
        _OOM,
        "NCCL could not allocate its buffers, which lie outside torch's allocator",
    ),
    _rule(
        r"(CUDA|HIP|XPU|Triton|MTIA|NPU|MUSA) out of memory\.? *Tried to allocate"
        r"|(CUDA|HIP|XPU) out of memory",
        _OOM,
        "the device's allocator refused memory",
    ),
    _rule(
        r"(CUDA|HIP) error: out of memory|CUDA driver error: out of memory"
        r"|Triton Error \[(CUDA|HIP|XPU)\]: out of memory"
        r"|cudaErrorMemoryAllocation|hipErrorOutOfMemory|hipErrorMemoryAllocation"
        r"|CUDA_ERROR_OUT_OF_MEMORY",
        _OOM,
        "the device's driver refused memory",
    ),
    _rule(
        r"(UR|PI|ZE)_(RESULT_)?ERROR_OUT_OF_(DEVICE_MEMORY|HOST_MEMORY)"
        r"|PI_ERROR_OUT_OF_RESOURCES|UR_RESULT_ERROR_OUT_OF_RESOURCES"
        r"|ZE_RESULT_ERROR_OUT_OF_DEVICE|CL_OUT_OF_(HOST_MEMORY|RESOURCES)"
        r"|CL_MEM_OBJECT_ALLOCATION_FAILURE",
        _OOM,
        "the Intel GPU runtime refused memory or another resource",
        ambiguous=True,
    ),
    _rule(
        r"(expandable_segment|handles_)[^\n]*INTERNAL ASSERT FAILED"
        r"|INTERNAL ASSERT FAILED[^\n]*(CUDA|HIP|XPU)CachingAllocator",
        _OOM,
        "an internal check of the CUDA allocator failed, as it does when memory runs out under"
        " expandable segments",
        ambiguous=True,
    ),
    # Libraries that allocate for themselves.
    _rule(
        r"CUBLAS_STATUS_ALLOC_FAILED|HIPBLAS_STATUS_ALLOC_FAILED|rocblas_status_memory_error"
        r"|CUSPARSE_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED"
        r"|CURAND_STATUS_ALLOCATION_FAILED|CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
        _OOM,
        "a CUDA library could not allocate its workspace",
        ambiguous=True,
    ),
    _rule(
        r"(CUBLAS|HIPBLAS|CUSOLVER|CURAND|CUSPARSE|CUDNN)_STATUS_(NOT_INITIALIZED"
        r"|INITIALIZATION_FAILED)",
        _OOM,
        "a CUDA library could not start, as it does when memory runs out",
        ambiguous=True,
    ),
    _rule(
        r"CUDNN_STATUS_(ALLOC_FAILED|INTERNAL_ERROR_(DEVICE|HOST)_ALLOCATION_FAILED"
        r"|EXECUTION_FAILED|INTERNAL_ERROR)"
        r"|miopenStatus(AllocFailed|InternalError|UnknownError)",
        _OOM,
        "cuDNN failed in a way that is often a lack of workspace memory",
        ambiguous=True,
    ),
    _rule(
        r"CUDNN_STATUS_(NOT_SUPPORTED|BAD_PARAM)",
        _LIMIT,
        "cuDNN has no kernel for these shapes, which are often beyond its 32-bit indices",
        ambiguous=True,
    ),
    _rule(
        r"CUBLAS_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR|NOT_SUPPORTED)",
        _OOM,
        "cuBLAS failed in a way that is often a lack of workspace memory",
        ambiguous=True,
    ),
    _rule(
        r"unable to find an engine|FIND was unable to find|no valid convolution algorithms"
        r"|Failed to find (a )?(workable|suitable|valid) (engine|algorithm|plan)"
        r"|No execution plans? (support|built)",
        _OOM,
        "no convolution algorithm fits the memory that is left (or the library has none at all)",
        ambiguous=True,
    ),
    # The host.
    _rule(
        r"DefaultCPUAllocator: (can't allocate memory|not enough memory)|alloc_cpu\.cpp",
        _OOM,
        "the CPU allocator refused memory",
    ),
    _rule(
        r"std::bad_alloc|\bbad allocation\b",
        _OOM,
        "the C++ runtime refused memory",
    ),
    _rule(
        r"could not (create|execute|initialize) a (primitive|memory|sub-?memory|engine)"
        r"|dnnl_out_of_memory",
        _OOM,
        "oneDNN could not set up a kernel, as it does when memory runs out",
        ambiguous=True,
    ),
    _rule(
        r"Cannot allocate memory|\bENOMEM\b|not enough memory"
        r"|Unable to allocate [\d.]+ [KMGTPE]?i?B",
        _OOM,
        "the operating system refused memory",
    ),
    _rule(
        r"can't start new thread|Thread creation failed: Resource temporarily unavailable"
        r"|OMP: Error #(34|35|179)|pthread_create failed",
        _OOM,
        "no memory was left for another thread's stack",
        ambiguous=True,
    ),
    _rule(
        r"DataLoader worker \(pid.*(killed by signal: (Killed|Bus error)|exited unexpectedly)",
        _OOM,
        "a process of the data loader was killed, as the kernel does where memory is short",
        ambiguous=True,
    ),
    _rule(
        r"unable to (allocate|open) shared memory|unable to mmap \d+ bytes from file"
        r"|insufficient shared memory \(shm\)",
        _OOM,
        "shared memory ran out",
        ambiguous=True,
    ),
    _rule(
        r"Storage size calculation overflowed|tensor (size|has too many).*overflow"
        r"|numel: integer multiplication overflow",
        _LIMIT,
        "a tensor's size in bytes overflows a 64-bit integer",
    ),
    # Device errors that poison the context. Large sizes reach them through index overflow.
    _rule(
        r"illegal memory access|misaligned address|an illegal instruction"
        r"|device-side assert|unspecified launch failure|hipErrorIllegalAddress"
        r"|UR_RESULT_ERROR_DEVICE_LOST|Memory access fault by GPU",
        _LIMIT,
        "the device stopped at an invalid access, which large sizes cause by overflowing an index",
        ambiguous=True,
    ),
    _rule(
        r"uncorrectable ECC|GPU is lost|fallen off the bus|no kernel image is available"
        r"|driver version is insufficient|device (is|are) busy or unavailable",
        _FAILED,
        "the device itself is unusable",
    ),
    _rule(
        r"\bout of (device |host |GPU |video )?memory\b|\bmemory exhausted\b|failed to allocate",
        _OOM,
        "something reported that memory ran out",
        ambiguous=True,
    ),
)
