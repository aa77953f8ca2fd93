"""Each line of the message table by a wording seen in the wild; types, chains and exits."""

import errno
import subprocess
import sys
import textwrap

import pytest
import torch

from bsprof.errors import WorkloadError
from bsprof.measure.classify import (
    classify_exception,
    classify_exit,
    match_message,
    requested_bytes,
)
from bsprof.measure.messages import RULES
from bsprof.records import PointStatus

OOM, LIMIT, FAILED = PointStatus.OOM, PointStatus.NOT_MEMORY_LIMIT, PointStatus.FAILED
SURE, AMBIGUOUS = False, True

# message, status, ambiguous
MESSAGES = [
    # Triton
    (
        ("out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block"
        " sizes or `num_stages` may help."),
        LIMIT, SURE,
    ),
    ("out of resource: threads, Required: 2048, Hardware limit: 1024.", LIMIT, SURE),
    ("No valid triton configs. OutOfMemoryError: out of resource", LIMIT, SURE),
    ("Triton Error [CUDA]: invalid argument", LIMIT, AMBIGUOUS),
    ("Triton Error [CUDA]: out of memory", OOM, SURE),
    # Launch grids and indices
    (
        ("CUDA error: invalid configuration argument\nCUDA kernel errors might be asynchronously"
        " reported at some other API call"),
        LIMIT, SURE,
    ),
    ("HIP error: invalid configuration argument", LIMIT, SURE),
    ("CUDA error: too many resources requested for launch", LIMIT, AMBIGUOUS),
    (
        ("Expected canUse32BitIndexMath(input) && canUse32BitIndexMath(output) to be true, but got"
        " false.  (Could this error message be improved?)"),
        LIMIT, SURE,
    ),
    ("input tensor must fit into 32-bit index math", LIMIT, SURE),
    ("integer out of range", LIMIT, SURE),
    (
        "nonzero is not supported for tensors with more than INT_MAX elements",
        LIMIT, SURE,
    ),
    (
        "upsample_nearest2d: output tensor elements exceed 2147483647",
        LIMIT, SURE,
    ),
    ("value cannot be converted to type int without overflow", LIMIT, SURE),
    (
        "Storage size calculation overflowed with sizes=[4611686018427387904, 4]",
        LIMIT, SURE,
    ),
    # Metal
    (
        ("MPS backend out of memory (MPS allocated: 17.65 GiB, other allocations: 384.00 KiB, max"
        " allowed: 18.13 GiB). Tried to allocate 768.00 MiB on private pool. Use"
        " PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit"),
        OOM, SURE,
    ),
    ("MPSGaph does not support tensor dims larger than INT_MAX", LIMIT, SURE),
    ("Output channels > 65536 not supported at the MPS device.", LIMIT, SURE),
    ("Invalid buffer size: 36.00 GiB", LIMIT, AMBIGUOUS),
    (
        "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        OOM, SURE,
    ),
    # CUDA, ROCm, XPU allocators and drivers
    (
        ("CUDA out of memory. Tried to allocate 2.87 GiB (GPU 0; 14.76 GiB total capacity; 8.77 GiB"
        " already allocated; 19.75 MiB free; 13.71 GiB reserved in total by PyTorch)"),
        OOM, SURE,
    ),
    (
        ("HIP out of memory. Tried to allocate 1.88 GiB. GPU 0 has a total capacity of 23.98 GiB of"
        " which 1.70 GiB is free."),
        OOM, SURE,
    ),
    (
        ("XPU out of memory. Tried to allocate 4.66 GiB. GPU 0 has a total capacity of 5.65 GiB of"
        " which 5.65 GiB is free."),
        OOM, SURE,
    ),
    (
        "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable assertions.",
        OOM, SURE,
    ),
    ("HIP error: out of memory", OOM, SURE),
    ("hipErrorOutOfMemory", OOM, SURE),
    ("CUDA driver error: out of memory", OOM, SURE),
    ("level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
     OOM, AMBIGUOUS),
    ("UR backend failed. UR backend returns:40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)",
     OOM, AMBIGUOUS),
    ("Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)",
     OOM, AMBIGUOUS),
    ("OneDNN errcode -6,CL_OUT_OF_HOST_MEMORY", OOM, AMBIGUOUS),
    (
        ('NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator.cpp"'
        ":1016, please report a bug to PyTorch."),
        OOM, AMBIGUOUS,
    ),
    (
        ("!block->expandable_segment_ INTERNAL ASSERT FAILED at"
        ' "../c10/cuda/CUDACachingAllocator.cpp":2814, please report a bug to PyTorch.'),
        OOM, AMBIGUOUS,
    ),
    ('!handles_.at(i) INTERNAL ASSERT FAILED at "c10/cuda/Other.cpp":487', OOM, AMBIGUOUS),
    # Libraries
    (
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        OOM, AMBIGUOUS,
    ),
    ("CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
     OOM, AMBIGUOUS),
    ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
     OOM, AMBIGUOUS),
    ("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", OOM, AMBIGUOUS),
    ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`",
     OOM, AMBIGUOUS),
    ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", OOM, AMBIGUOUS),
    ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", OOM, AMBIGUOUS),
    ("miopenStatusUnknownError", OOM, AMBIGUOUS),
    (
        ("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a"
        " non-contiguous input."),
        LIMIT, AMBIGUOUS,
    ),
    ("GET was unable to find an engine to execute this computation", OOM, AMBIGUOUS),
    ("FIND was unable to find an engine to execute this computation", OOM, AMBIGUOUS),
    ("no valid convolution algorithms available in CuDNN", OOM, AMBIGUOUS),
    # NCCL
    (
        ("NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled cuda"
        " error, NCCL version 2.21.5\nLast error:\nCuda failure 2 'out of memory'"),
        OOM, SURE,
    ),
    ("Failed to CUDA calloc async 608 bytes", OOM, SURE),
    # The host
    (
        ("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory:"
        " you tried to allocate 642318336 bytes. Error code 12 (Cannot allocate memory)"),
        OOM, SURE,
    ),
    ("DefaultCPUAllocator: not enough memory: you tried to allocate 4096 bytes.",
     OOM, SURE),
    ("std::bad_alloc", OOM, SURE),
    ("could not create a primitive", OOM, AMBIGUOUS),
    ("could not execute a primitive", OOM, AMBIGUOUS),
    ("could not create a memory object", OOM, AMBIGUOUS),
    ("Unable to allocate 7.45 GiB for an array with shape (1000000000,)", OOM, SURE),
    ("mmap failed: Cannot allocate memory", OOM, SURE),
    ("can't start new thread", OOM, AMBIGUOUS),
    ("libgomp: Thread creation failed: Resource temporarily unavailable", OOM, AMBIGUOUS),
    ("unable to mmap 1024 bytes from file </torch_1234>: No space left on device (28)",
     OOM, AMBIGUOUS),
    ("unable to allocate shared memory(shm) for file </torch_1>", OOM, AMBIGUOUS),
    ("DataLoader worker (pid 4711) is killed by signal: Killed. ", OOM, AMBIGUOUS),
    (("DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that"
      " dataloader's workers are out of shared memory."), OOM, AMBIGUOUS),
    ("DataLoader worker (pid(s) 11, 12) exited unexpectedly", OOM, AMBIGUOUS),
    # Poisoned contexts
    ("CUDA error: an illegal memory access was encountered", LIMIT, AMBIGUOUS),
    ("CUDA error: device-side assert triggered", LIMIT, AMBIGUOUS),
    ("CUDA error: unspecified launch failure", LIMIT, AMBIGUOUS),
    ("UR error: UR_RESULT_ERROR_DEVICE_LOST", LIMIT, AMBIGUOUS),
    ("CUDA error: uncorrectable ECC error encountered", FAILED, SURE),
    ("CUDA error: no kernel image is available for execution on the device",
     FAILED, SURE),
    # The rest
    ("The plugin ran out of device memory", OOM, AMBIGUOUS),
]  # fmt: skip

# What must not be taken for a matter of memory.
OTHER_MESSAGES = [
    "mat1 and mat2 shapes cannot be multiplied (8x4 and 5x2)",
    "Expected all tensors to be on the same device, but found at least two devices",
    "element 0 of tensors does not require grad and does not have a grad_fn",
    "Trying to backward through the graph a second time",
    "Dimension out of range (expected to be in range of [-1, 0], but got 1)",
    "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
    "\"slow_conv2d_cpu\" not implemented for 'Half'",
    "index 7 is out of bounds for dimension 0 with size 5",
    "value is larger than the vocabulary",
]


@pytest.mark.parametrize(("message", "status", "ambiguous"), MESSAGES)
def test_message(message, status, ambiguous):
    verdict = classify_exception(RuntimeError(message))
    assert (verdict.status, verdict.ambiguous) == (status, ambiguous)
    assert verdict.reason


def test_every_line_of_the_table_is_reached():
    reached = set()
    for message, *_ in MESSAGES:
        text = f"RuntimeError: {message}"
        reached.add(next(i for i, rule in enumerate(RULES) if rule.pattern.search(text)))
    assert reached == set(range(len(RULES)))


@pytest.mark.parametrize("message", OTHER_MESSAGES)
def test_other_messages_are_the_workload_s_own_fault(message):
    verdict = classify_exception(RuntimeError(message))
    assert verdict.status is FAILED
    assert not verdict.ambiguous
    assert verdict.reason == "the training step raised RuntimeError"
    assert match_message(message) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; ...)", 20 * 2**20),
        ("XPU out of memory. Tried to allocate 4.5 GiB.", int(4.5 * 2**30)),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.", 4096),
        ("Unable to allocate 7.45 GiB for an array", int(7.45 * 2**30)),
        ("MPS backend out of memory (MPS allocated: 1 GB). Tried to allocate 768 MB", 768 * 2**20),
        ("Failed to CUDA calloc async 608 bytes", 608),
        ("std::bad_alloc", None),
    ],
)
def test_requested_bytes(text, size):
    assert requested_bytes(text) == size


def test_torch_out_of_memory_by_type_whatever_it_says():
    verdict = classify_exception(torch.OutOfMemoryError("no words for it"))
    assert (verdict.status, verdict.ambiguous) == (OOM, False)
    text = "CUDA out of memory. Tried to allocate 2 GiB"
    named = classify_exception(torch.OutOfMemoryError(text))
    assert named.requested_bytes == 2 * 2**30


def test_accelerator_errors_of_an_unknown_kind_are_ambiguous():
    if not hasattr(torch, "AcceleratorError"):
        pytest.skip("this torch has no AcceleratorError")
    memory = classify_exception(torch.AcceleratorError("CUDA error: out of memory"))
    assert (memory.status, memory.ambiguous) == (OOM, False)
    unknown = classify_exception(torch.AcceleratorError("CUDA error: something new"))
    assert (unknown.status, unknown.ambiguous) == (FAILED, True)


def test_triton_out_of_resources_by_type():
    class OutOfResources(Exception):
        pass

    verdict = classify_exception(OutOfResources("warps, whatever"))
    assert verdict.status is LIMIT


def test_python_and_system_memory_errors():
    assert classify_exception(MemoryError()).status is OOM
    assert classify_exception(OSError(errno.ENOMEM, "fork")).status is OOM
    assert classify_exception(OSError(errno.ENOENT, "no file")).status is FAILED


def chained(outer: BaseException, cause: BaseException) -> BaseException:
    try:
        raise outer from cause
    except BaseException as error:  # noqa: BLE001 - any kind is handed back
        return error


def test_the_first_cause_decides():
    cause = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    verdict = classify_exception(chained(ValueError("training failed"), cause))
    assert (verdict.status, verdict.requested_bytes) == (OOM, 2 * 2**30)


def test_an_error_while_handling_out_of_memory_is_out_of_memory():
    def step() -> None:
        try:
            raise MemoryError
        except MemoryError:
            {}["missing"]

    with pytest.raises(KeyError) as raised:
        step()
    assert classify_exception(raised.value).status is OOM


def test_a_suppressed_context_is_not_looked_at():
    def step() -> None:
        try:
            raise MemoryError
        except MemoryError:
            raise KeyError("deliberate") from None

    with pytest.raises(KeyError) as raised:
        step()
    assert classify_exception(raised.value).status is FAILED


def test_compiled_code_quotes_or_carries_the_cause():
    class BackendCompilerFailed(RuntimeError):
        def __init__(self, inner: Exception) -> None:
            super().__init__("backend='inductor' raised:\nsomething")
            self.inner_exception = inner

    carried = classify_exception(BackendCompilerFailed(torch.OutOfMemoryError("CUDA")))
    assert carried.status is OOM
    quoted = classify_exception(
        RuntimeError("backend='inductor' raised:\nOutOfMemoryError: CUDA out of memory. Tried")
    )
    assert quoted.status is OOM


def test_exception_groups_are_opened():
    group = ExceptionGroup("two", [ValueError("x"), MemoryError()])
    assert classify_exception(group).status is OOM


@pytest.mark.parametrize("kind", [TypeError, KeyError, AttributeError, AssertionError, NameError])
def test_programming_errors_may_quote_anything(kind):
    assert classify_exception(kind("CUDA out of memory")).status is FAILED


def test_our_wrapper_quotes_the_script_but_the_cause_decides():
    wrapped = WorkloadError("the loss raised TypeError", found="step.py:3: std::bad_alloc")
    assert classify_exception(chained(wrapped, TypeError("no"))).status is FAILED
    assert classify_exception(chained(wrapped, MemoryError())).status is OOM


@pytest.mark.parametrize(
    ("status", "kills", "tail", "expected", "ambiguous"),
    [
        (-9, 1, (), PointStatus.KILLED, False),
        (-9, 0, (), PointStatus.KILLED, True),
        (137, 2, (), PointStatus.KILLED, False),
        (-11, 0, (), PointStatus.CRASHED, True),
        (-7, 0, (), PointStatus.CRASHED, True),
        (-6, 0, (), PointStatus.CRASHED, True),
        (-15, 0, (), PointStatus.CRASHED, False),
        (-6, 0, ("terminate called after throwing an instance of 'std::bad_alloc'",), OOM, False),
        (1, 0, ("libgomp: Thread creation failed: Resource temporarily unavailable",), OOM, True),
        (1, 0, ("Traceback", "ImportError: no module"), PointStatus.CRASHED, False),
        (3, 0, (), PointStatus.CRASHED, False),
        (0, 0, ("std::bad_alloc",), PointStatus.CRASHED, False),
        (-64, 0, (), PointStatus.CRASHED, False),
    ],
)
def test_exit(status, kills, tail, expected, ambiguous):
    verdict = classify_exit(status, kills, tail)
    assert (verdict.status, verdict.ambiguous) == (expected, ambiguous)


def test_exit_reasons_name_the_signal_or_status():
    assert "SIGSEGV" in classify_exit(-11, 0).reason
    assert "exit status 3" in classify_exit(3, 0).reason
    assert "out-of-memory killer" in classify_exit(-9, 1).reason
    assert "without reporting" in classify_exit(0, 0).reason


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is exact on Linux")
def test_a_real_refusal_of_the_cpu_allocator_and_of_python():
    """The wordings of the installed torch, provoked under RLIMIT_DATA in a child."""
    script = textwrap.dedent("""
        import resource, torch
        from bsprof.measure.classify import classify_exception
        from bsprof.measure.host import process_memory
        limit = process_memory().data_bytes + 64 * 2**20
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        for work in (lambda: torch.empty(2**28), lambda: bytearray(2**28)):
            try:
                work()
            except Exception as error:
                verdict = classify_exception(error)
                print(verdict.status, verdict.ambiguous, verdict.requested_bytes)
    """)
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert child.stdout.splitlines() == [f"oom False {2**30}", "oom False None"]
