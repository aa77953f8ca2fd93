"""The few calls of torch.cuda and torch.xpu that bsprof makes, behind one small protocol.

Everything above is tested against a fake of it; everything here is a line of torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from bsprof.measure.devices.settings import common_settings, read_fields
from bsprof.records import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """What the runtime says of a device without opening a context on it.

    Attributes:
        total_bytes: Memory of the device (of the slice, under MIG).
        uuid: Without a prefix; None where the runtime has none.
        compute_units: SMs or compute units.
        capability: `9.0` for CUDA; None elsewhere.
    """

    name: str
    total_bytes: int
    uuid: str | None = None
    compute_units: int | None = None
    capability: str | None = None


class Runtime(Protocol):
    """One accelerator as torch offers it. Sizes in bytes."""

    @property
    def kind(self) -> str:
        """`cuda` or `xpu`."""

    @property
    def index(self) -> int:
        """Number among the visible devices."""

    def properties(self) -> Properties:
        """Facts that need no context."""

    def memory_info(self) -> tuple[int, int]:
        """(free, total) of the visible device; opens a context."""

    def statistics(self) -> Mapping[str, int]:
        """The caching allocator's counters, named as torch names them."""

    def reset_peaks(self) -> None:
        """Sets the counters' peaks to their present values."""

    def empty_cache(self) -> None:
        """Returns cached segments to the driver."""

    def set_fraction(self, fraction: float) -> None:
        """Lets the allocator reserve at most this share of the device's memory."""

    def synchronize(self) -> None:
        """Waits for everything queued."""

    def settings(self) -> Mapping[str, Scalar]:
        """Switches that change speed or memory; unreadable ones are left out."""


class TorchRuntime:
    """`torch.cuda` or `torch.xpu` for one device."""

    def __init__(self, kind: str, index: int) -> None:
        self.kind = kind
        self.index = index
        self._module: Any = getattr(torch, kind)

    def properties(self) -> Properties:
        found = self._module.get_device_properties(self.index)
        facts = read_fields(
            {
                "uuid": lambda: str(found.uuid),
                "units": lambda: int(found.multi_processor_count),
                "xpu_units": lambda: int(found.gpu_eu_count),
                "capability": lambda: f"{found.major}.{found.minor}",
            }
        )
        units = facts.get("units", facts.get("xpu_units"))
        uuid, capability = facts.get("uuid"), facts.get("capability")
        return Properties(
            name=str(found.name),
            total_bytes=int(found.total_memory),
            uuid=uuid.removeprefix("GPU-") if isinstance(uuid, str) else None,
            compute_units=units if isinstance(units, int) else None,
            capability=capability if isinstance(capability, str) else None,
        )

    def memory_info(self) -> tuple[int, int]:
        free, total = self._module.mem_get_info(self.index)
        return int(free), int(total)

    def statistics(self) -> Mapping[str, int]:
        found: Mapping[str, int] = self._module.memory_stats(self.index)
        return found

    def reset_peaks(self) -> None:
        self._module.reset_peak_memory_stats(self.index)

    def empty_cache(self) -> None:
        self._module.empty_cache()

    def set_fraction(self, fraction: float) -> None:
        # Late versions of torch.xpu have it, early ones do not.
        setter = getattr(self._module, "set_per_process_memory_fraction", None)
        if setter is not None:
            setter(fraction, self.index)

    def synchronize(self) -> None:
        self._module.synchronize(self.index)

    def settings(self) -> Mapping[str, Scalar]:
        return common_settings() | (cuda_settings() if self.kind == "cuda" else {})


def cuda_settings() -> dict[str, Scalar]:
    """CUDA switches of this process, each read by itself.

    The old (`allow_tf32`) and new (`fp32_precision`) TF32 switches exclude each other: after one
    kind was set, reading the other raises, and then only that field is missing.
    """
    backends: Any = torch.backends
    cuda: Any = torch.cuda
    return read_fields(
        {
            "matmul_allow_tf32": lambda: bool(backends.cuda.matmul.allow_tf32),
            "matmul_fp32_precision": lambda: backends.cuda.matmul.fp32_precision,
            "matmul_reduced_precision_bf16": (
                lambda: bool(backends.cuda.matmul.allow_bf16_reduced_precision_reduction)
            ),
            "cudnn_allow_tf32": lambda: bool(backends.cudnn.allow_tf32),
            "cudnn_conv_fp32_precision": lambda: backends.cudnn.conv.fp32_precision,
            "cudnn_enabled": lambda: bool(backends.cudnn.enabled),
            "cudnn_benchmark": lambda: bool(backends.cudnn.benchmark),
            "cudnn_deterministic": lambda: bool(backends.cudnn.deterministic),
            "sdp_flash": lambda: bool(backends.cuda.flash_sdp_enabled()),
            "sdp_mem_efficient": lambda: bool(backends.cuda.mem_efficient_sdp_enabled()),
            "sdp_math": lambda: bool(backends.cuda.math_sdp_enabled()),
            "sdp_cudnn": lambda: bool(backends.cuda.cudnn_sdp_enabled()),
            "allocator_backend": lambda: cuda.get_allocator_backend(),
            "cublas_workspace_bytes": lambda: backends.cuda.cublas_workspace_size(),
        }
    )
