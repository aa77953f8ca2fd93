from __future__ import annotations

import json
import traceback

import pytest
import torch

from bsprof.errors import UsageError, WorkloadError
from bsprof.workloads.faults import (
    advice,
    is_device_error,
    traceback_tail,
    user_code,
    user_location,
)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory"
        ),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
        RuntimeError("MPS backend out of memory (MPS allocated: 8.02 GB)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
        RuntimeError("GET was unable to find an engine to execute this computation"),
        RuntimeError("CUDA error: invalid configuration argument"),
        RuntimeError("HIP error: hipErrorOutOfMemory"),
        RuntimeError("level_zero backend failed with error: 39"),
    ],
)
def test_errors_of_memory_and_device_pass_through(error: Exception) -> None:
    assert is_device_error(error)
    with pytest.raises(type(error)) as caught, user_code("cannot do it"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
        ValueError("out of memory of what to say"),
        KeyError("x"),
    ],
)
def test_the_users_errors_become_workload_errors(error: Exception) -> None:
    with pytest.raises(WorkloadError) as caught, user_code("cannot do it"):
        raise error
    assert caught.value.doing == "cannot do it"
    assert caught.value.__cause__ is error
    assert type(error).__name__ in caught.value.found


def test_our_own_errors_are_not_wrapped() -> None:
    with pytest.raises(UsageError), user_code("cannot do it"):
        raise UsageError("no")


def test_location_is_the_users_deepest_frame_not_the_librarys() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        location = user_location(error)
        deepest = traceback.extract_tb(error.__traceback__)[-1].filename
        tail = traceback_tail(error, lines=2)
    assert location is not None
    assert location.startswith(__file__)
    assert "json" in deepest
    assert tail[-1].startswith("json.decoder.JSONDecodeError: Expecting")
    assert len(tail) == 2


def test_error_without_a_users_frame_has_no_location() -> None:
    assert user_location(ValueError("never raised")) is None
    assert traceback_tail(ValueError("never raised")) == ("ValueError: never raised",)


def test_frames_that_only_call_are_left_out() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    try:
        model(torch.ones(2, 3))
    except RuntimeError as error:
        tail = "\n".join(traceback_tail(error, lines=99))
    assert "_call_impl" not in tail
    assert "in forward" in tail
    assert __file__ in tail


def test_error_without_a_message_is_named_by_its_type() -> None:
    with pytest.raises(WorkloadError) as caught, user_code("cannot do it"):
        raise AssertionError
    assert ": AssertionError\n" in caught.value.found


@pytest.mark.parametrize(
    ("message", "advised"),
    [
        ("stack expects each tensor to be equal size, but got [5] at entry 0 and [7]", "pad them"),
        ("Net.forward() missing 1 required positional argument: 'mask'", "forward needs 'mask'"),
        (
            "Net.forward() missing 2 required keyword-only arguments: 'a' and 'b'",
            "forward needs 'a' and 'b'",
        ),
        ("Expected all tensors to be on the same device, but found cuda:0 and cpu!", "device"),
    ],
)
def test_errors_that_users_often_meet_come_with_advice(message: str, advised: str) -> None:
    assert advised in (advice(message) or "")
    with pytest.raises(WorkloadError) as caught, user_code("cannot do it"):
        raise TypeError(message)
    assert advised in caught.value.next_step


def test_other_errors_have_no_advice() -> None:
    assert advice("name 'mode1' is not defined") is None
