"""CUDA's autocast policy on CPU tensors.

What the CPU treats alike keeps its kernel; what the CPU casts and CUDA does not falls through to
the operators it is made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import ref

import torch
from torch.amp.autocast_mode import autocast

from bsprof.predict.cuda.autocast_lists import (
    APPENDED,
    FP32,
    FP32_OUTPUT,
    LOWER_PRECISION,
    PROMOTED,
    in_list,
)
from bsprof.predict.cuda.overrides import AUTOCAST, Kernel, attribute, kernels, known, operator
from bsprof.predict.target import Software

_CPU_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


class WeightCache:
    """The 16-bit copies of weights made in one autocast block, as torch keeps them: until it ends.

    torch has one of its own, which the kernels in C++ use; a weight is in one of the two.
    """

    def __init__(self) -> None:
        self._copies: dict[int, tuple[ref[torch.Tensor], torch.Tensor]] = {}

    def cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The tensor in the type; leaf weights in fp32 keep their 16-bit copy."""
        kept = (
            torch.is_autocast_cache_enabled()
            and dtype != torch.float32
            and tensor.dtype == torch.float32
            and tensor.requires_grad
            and tensor.is_leaf
            and not tensor._is_view()
        )
        if not kept:
            return tensor.to(dtype)
        owner, copy = self._copies.get(id(tensor), (None, None))
        if owner is None or copy is None or owner() is not tensor:
            copy = tensor.to(dtype)
            self._copies[id(tensor)] = (ref(tensor), copy)
        return copy

    def clear(self) -> None:
        self._copies.clear()


def eligible(value: object) -> bool:
    """Whether autocast may cast it: a floating-point tensor, not in double precision."""
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype != torch.float64
        and value.device.type == "cpu"
    )


def cast(value: Any, dtype: torch.dtype, cache: WeightCache) -> Any:
    """A value, or the tensors in a list, in the type, where eligible."""
    if isinstance(value, (list, tuple)):
        return type(value)(cast(item, dtype, cache) for item in value)
    if eligible(value) and value.dtype != dtype:
        return cache.cast(value, dtype)
    return value


def _casting(name: str, dtype_of: Kernel, cache: WeightCache) -> Kernel:
    call = operator(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_CPU_AUTOCAST):
            dtype = dtype_of(args, kwargs)
            named = {key: cast(value, dtype, cache) for key, value in kwargs.items()}
            return call(*(cast(value, dtype, cache) for value in args), **named)

    return kernel


def _lower(args: Any, kwargs: Any) -> torch.dtype:  # noqa: ARG001
    return torch.get_autocast_dtype("cpu")


def _fp32(args: Any, kwargs: Any) -> torch.dtype:  # noqa: ARG001
    return torch.float32


def _widest(args: Any, kwargs: Any) -> torch.dtype:
    flat = torch.utils._pytree.tree_leaves((args, kwargs))
    if any(eligible(value) and value.dtype == torch.float32 for value in flat):
        return torch.float32
    return torch.get_autocast_dtype("cpu")


def _output_in_fp32(name: str) -> Kernel:
    call = operator(name)
    position = [argument.name for argument in call._schema.arguments].index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_CPU_AUTOCAST):
            given = args[position] if len(args) > position else kwargs.pop("dtype", None)
            if given is None and eligible(args[0]):
                given = torch.float32
            return call(*args[:position], dtype=given, **kwargs)

    return kernel


def _output_appended(name: str) -> Kernel:
    call = operator(name)

    def kernel(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_CPU_AUTOCAST):
            dtype = torch.float32 if eligible(tensor) else tensor.dtype
            return call(tensor, *args, dtype=dtype, **kwargs)

    return kernel


def _banned(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
    raise RuntimeError(
        "binary_cross_entropy and BCELoss are unsafe to autocast on CUDA: torch refuses them; "
        "binary_cross_entropy_with_logits is safe"
    )


def cuda_kernels(software: Software, cache: WeightCache) -> dict[str, Kernel]:
    """By operator: the kernel that casts as CUDA does, for all where the CPU's rule is another."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(AUTOCAST)
    cpu = {name.removeprefix("aten::") for name in registered if name.startswith("aten::")}
    alike = {name for name in cpu.intersection(LOWER_PRECISION) if in_list(name, software)}
    table: dict[str, Kernel] = dict.fromkeys(cpu - alike, torch.library.fallthrough_kernel)
    rules = [(LOWER_PRECISION, _lower), (FP32, _fp32), (PROMOTED, _widest)]
    for names, dtype_of in rules:
        for name in names:
            if name not in alike and known(name) and in_list(name, software):
                table[name] = _casting(name, dtype_of, cache)
    table |= {name: _output_in_fp32(name) for name in FP32_OUTPUT if known(name)}
    table |= {name: _output_appended(target) for name, target in APPENDED.items()}
    table["binary_cross_entropy"] = _banned
    return table


def _as_cpu(device_type: str) -> str:
    return "cpu" if device_type == "cuda" else device_type


@contextmanager
def cuda_autocast(software: Software) -> Iterator[None]:
    """Has `torch.autocast("cpu")` follow CUDA's rules, and `torch.autocast("cuda")` mean it.

    What user code asks about CUDA's autocast (`torch.is_autocast_enabled()` and the like) is
    answered for the CPU's, which stands in for it.
    """
    cache = WeightCache()
    begin, clear = autocast.__init__, torch.clear_autocast_cache
    enabled, dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype

    def __init__(  # noqa: N807
        self: autocast, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kw: Any
    ) -> None:
        if device_type == "cuda" and dtype is None:
            dtype = dtype_of("cuda")
        begin(self, _as_cpu(device_type), dtype, *args, **kw)

    def clear_both() -> None:
        cache.clear()
        clear()

    def is_enabled(device_type: str = "cuda") -> bool:
        return enabled(_as_cpu(device_type))

    with ExitStack() as stack:
        stack.enter_context(kernels(cuda_kernels(software, cache), AUTOCAST))
        for owner, name, value in (
            (autocast, "__init__", __init__),
            (torch, "clear_autocast_cache", clear_both),
            (torch, "is_autocast_enabled", is_enabled),
            (torch, "get_autocast_dtype", lambda device_type: dtype_of(_as_cpu(device_type))),
            (torch, "get_autocast_gpu_dtype", lambda: dtype_of("cpu")),
        ):
            stack.enter_context(attribute(owner, name, value))
        yield
