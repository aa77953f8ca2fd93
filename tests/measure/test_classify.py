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
ALIVE, STICKY = False, True

# message, status, ambiguous, sticky
MESSAGES = [
    # Triton
    (
        ("out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block"
        " sizes or `num_stages` may help."),
        LIMIT, SURE, ALIVE,
    ),
    ("out of resource: threads, Required: 2048, Hardware limit: 1024.", LIMIT, SURE, ALIVE),
    ("No valid triton configs. OutOfMemoryError: out of resource", LIMIT, SURE, ALIVE),
    ("Triton Error [CUDA]: invalid argument", LIMIT, AMBIGUOUS, ALIVE),
    ("Triton Error [CUDA]: out of memory", OOM, SURE, STICKY),
    # Launch grids and indices
    (
        ("CUDA error: invalid configuration argument\nCUDA kernel errors might be asynchronously"
        " reported at some other API call"),
        LIMIT, SURE, STICKY,
    ),
    ("HIP error: invalid configuration argument", LIMIT, SURE, STICKY),
    ("CUDA error: too many resources requested for launch", LIMIT, AMBIGUOUS, STICKY),
    (
        ("Expected canUse32BitIndexMath(input) && canUse32BitIndexMath(output) to be true, but got"
        " false.  (Could this error message be improved?)"),
        LIMIT, SURE, ALIVE,
    ),
    ("input tensor must fit into 32-bit index math", LIMIT, SURE, ALIVE),
    ("integer out of range", LIMIT, SURE, ALIVE),
    (
        "nonzero is not supported for tensors with more than INT_MAX elements",
        LIMIT, SURE, ALIVE,
    ),
    (
        "upsample_nearest2d: output tensor elements exceed 2147483647",
        LIMIT, SURE, ALIVE,
    ),
    ("value cannot be converted to type int without overflow", LIMIT, SURE, ALIVE),
    (
        "Storage size calculation overflowed with sizes=[4611686018427387904, 4]",
        LIMIT, SURE, ALIVE,
    ),
    # Metal
    (
        ("MPS backend out of memory (MPS allocated: 17.65 GiB, other allocations: 384.00 KiB, max"
        " allowed: 18.13 GiB). Tried to allocate 768.00 MiB on private pool. Use"
        " PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit"),
        OOM, SURE, ALIVE,
    ),
    ("MPSGaph does not support tensor dims larger than INT_MAX", LIMIT, SURE, ALIVE),
    ("Output channels > 65536 not supported at the MPS device.", LIMIT, SURE, ALIVE),
    ("Invalid buffer size: 36.00 GiB", LIMIT, AMBIGUOUS, ALIVE),
    (
        "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        OOM, SURE, STICKY,
    ),
    # CUDA, ROCm, XPU allocators and drivers
    (
        ("CUDA out of memory. Tried to allocate 2.87 GiB (GPU 0; 14.76 GiB total capacity; 8.77 GiB"
        " already allocated; 19.75 MiB free; 13.71 GiB reserved in total by PyTorch)"),
        OOM, SURE, ALIVE,
    ),
    (
        ("HIP out of memory. Tried to allocate 1.88 GiB. GPU 0 has a total capacity of 23.98 GiB of"
        " which 1.70 GiB is free."),
        OOM, SURE, ALIVE,
    ),
    (
        ("XPU out of memory. Tried to allocate 4.66 GiB. GPU 0 has a total capacity of 5.65 GiB of"
        " which 5.65 GiB is free."),
        OOM, SURE, ALIVE,
    ),
    (
        "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable assertions.",
        OOM, SURE, STICKY,
    ),
    ("HIP error: out of memory", OOM, SURE, STICKY),
    ("hipErrorOutOfMemory", OOM, SURE, STICKY),
    ("CUDA driver error: out of memory", OOM, SURE, STICKY),
    ("level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
     OOM, AMBIGUOUS, STICKY),
    ("UR backend failed. UR backend returns:40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)",
     OOM, AMBIGUOUS, STICKY),
    ("Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)",
     OOM, AMBIGUOUS, STICKY),
    ("OneDNN errcode -6,CL_OUT_OF_HOST_MEMORY", OOM, AMBIGUOUS, STICKY),
    (
        ('NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator.cpp"'
        ":1016, please report a bug to PyTorch."),
        OOM, AMBIGUOUS, STICKY,
    ),
    (
        ("!block->expandable_segment_ INTERNAL ASSERT FAILED at"
        ' "../c10/cuda/CUDACachingAllocator.cpp":2814, please report a bug to PyTorch.'),
        OOM, AMBIGUOUS, STICKY,
    ),
    ('!handles_.at(i) INTERNAL ASSERT FAILED at "c10/cuda/Other.cpp":487', OOM, AMBIGUOUS, STICKY),
    # Libraries
    (
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        OOM, AMBIGUOUS, STICKY,
    ),
    ("CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
     OOM, AMBIGUOUS, STICKY),
    ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
     OOM, AMBIGUOUS, STICKY),
    ("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", OOM, AMBIGUOUS, STICKY),
    ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`",
     OOM, AMBIGUOUS, STICKY),
    ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", OOM, AMBIGUOUS, STICKY),
    ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", OOM, AMBIGUOUS, STICKY),
    ("miopenStatusUnknownError", OOM, AMBIGUOUS, STICKY),
    (
        ("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a"
        " non-contiguous input."),
        LIMIT, AMBIGUOUS, ALIVE,
    ),
    ("GET was unable to find an engine to execute this computation", OOM, AMBIGUOUS, ALIVE),
    ("FIND was unable to find an engine to execute this computation", OOM, AMBIGUOUS, ALIVE),
    ("no valid convolution algorithms available in CuDNN", OOM, AMBIGUOUS, ALIVE),
    # NCCL
    (
        ("NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled cuda"
        " error, NCCL version 2.21.5\nLast error:\nCuda failure 2 'out of memory'"),
        OOM, SURE, STICKY,
    ),
    ("Failed to CUDA calloc async 608 bytes", OOM, SURE, STICKY),
    # The host
    (
        ("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory:"
        " you tried to allocate 642318336 bytes. Error code 12 (Cannot allocate memory)"),
        OOM, SURE, ALIVE,
    ),
    ("DefaultCPUAllocator: not enough memory: you tried to allocate 4096 bytes.",
     OOM, SURE, ALIVE),
    ("std::bad_alloc", OOM, SURE, ALIVE),
    ("could not create a primitive", OOM, AMBIGUOUS, ALIVE),
    ("could not execute a primitive", OOM, AMBIGUOUS, ALIVE),
    ("could not create a memory object", OOM, AMBIGUOUS, ALIVE),
    ("Unable to allocate 7.45 GiB for an array with shape (1000000000,)", OOM, SURE, ALIVE),
    ("mmap failed: Cannot allocate memory", OOM, SURE, ALIVE),
    ("can't start new thread", OOM, AMBIGUOUS, ALIVE),
    ("libgomp: Thread creation failed: Resource temporarily unavailable", OOM, AMBIGUOUS, ALIVE),
    ("unable to mmap 1024 bytes from file </torch_1234>: No space left on device (28)",
     OOM, AMBIGUOUS, ALIVE),
    ("unable to allocate shared memory(shm) for file </torch_1>", OOM, AMBIGUOUS, ALIVE),
    ("DataLoader worker (pid 4711) is killed by signal: Killed. ", OOM, AMBIGUOUS, ALIVE),
    (("DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that"
      " dataloader's workers are out of shared memory."), OOM, AMBIGUOUS, ALIVE),
    ("DataLoader worker (pid(s) 11, 12) exited unexpectedly", OOM, AMBIGUOUS, ALIVE),
    # Poisoned contexts
    ("CUDA error: an illegal memory access was encountered", LIMIT, AMBIGUOUS, STICKY),
    ("CUDA error: device-side assert triggered", LIMIT, AMBIGUOUS, STICKY),
    ("CUDA error: unspecified launch failure", LIMIT, AMBIGUOUS, STICKY),
    ("UR error: UR_RESULT_ERROR_DEVICE_LOST", LIMIT, AMBIGUOUS, STICKY),
    ("CUDA error: uncorrectable ECC error encountered", FAILED, SURE, STICKY),
    ("CUDA error: no kernel image is available for execution on the device",
     FAILED, SURE, STICKY),
    # The rest
    ("The plugin ran out of device memory", OOM, AMBIGUOUS, ALIVE),
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


@pytest.mark.parametrize(("message", "status", "ambiguous", "sticky"), MESSAGES)
def test_message(message, status, ambiguous, sticky):
    verdict = classify_exception(RuntimeError(message))
    assert (verdict.status, verdict.ambiguous, verdict.sticky) == (status, ambiguous, sticky)
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
    assert (verdict.status, verdict.ambiguous, verdict.sticky) == (OOM, False, False)
    text = "CUDA out of memory. Tried to allocate 2 GiB"
    named = classify_exception(torch.OutOfMemoryError(text))
    assert named.requested_bytes == 2 * 2**30


def test_accelerator_errors_are_sticky():
    if not hasattr(torch, "AcceleratorError"):
        pytest.skip("this torch has no AcceleratorError")
    memory = classify_exception(torch.AcceleratorError("CUDA error: out of memory"))
    assert (memory.status, memory.ambiguous, memory.sticky) == (OOM, False, True)
    unknown = classify_exception(torch.AcceleratorError("CUDA error: something new"))
    assert (unknown.status, unknown.ambiguous, unknown.sticky) == (FAILED, True, True)


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
    assert verdict.sticky


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
