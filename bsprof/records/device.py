"""Where it is run: what the device reported, its measured peaks, and the software around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bsprof.records.quantity import Quantity
from bsprof.records.workload import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSnapshot:
    """What the device said of itself when the sweep began.

    Attributes:
        kind: `cpu`, `cuda`, `mps` or `xpu`.
        index: Number among the visible devices of that kind; 0 for the CPU.
        name: As the runtime reports it (`NVIDIA H200`, the processor's model name).
        uuid: The driver's identity of this very device; None where there is none.
        capacity_bytes: What the device has.
        usable_bytes: What this process may use: capacity less what is not ours, or the limit.
        other_bytes: What others on the device use; None where that cannot be known.
        limit_source: Where `usable_bytes` comes from: `device`, `option`, `rlimit`, `cgroup`.
        threads: CPU threads that torch computes with; None on accelerators.
        compute_units: SMs, cores or compute units; None when unknown.
        details: Further fields as reported (driver, compute capability, clocks, power limit).
    """

    kind: str
    index: int = 0
    name: str
    uuid: str | None = None
    capacity_bytes: int
    usable_bytes: int
    other_bytes: int | None = None
    limit_source: str = "device"
    threads: int | None = None
    compute_units: int | None = None
    details: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeaks:
    """Ceilings of a device: what MFU and the regime are measured against.

    Attributes:
        flops_per_s: Best dense matmul rate by compute type (`fp32`, `tf32`, `bf16`, `fp16`).
        bandwidth_bytes_per_s: Best copy rate, bytes read plus bytes written per second.
        launch_s: Seconds the device needs for one empty operator.
        source: `probe`, or `catalogue`: the data sheet's.
        device_key: Identity the probe is kept under (kind, name, threads, torch version).
        measured_at: UTC time of the probe, ISO 8601; None for a catalogue entry.
    """

    flops_per_s: Mapping[str, float]
    bandwidth_bytes_per_s: float
    launch_s: float
    source: str
    device_key: str
    measured_at: str | None = None

    @property
    def are_measured(self) -> bool:
        """Whether they were measured on the device; else they are its data sheet's."""
        return self.source != "catalogue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The software and settings around a measurement; every field tolerates being unknown.

    Attributes:
        bsprof, python, torch: Versions.
        platform: Operating system, kernel and machine.
        libraries: Versions of CUDA, cuDNN, NCCL, driver and the like, where they exist.
        settings: Switches that change speed or memory (TF32, cuDNN benchmark, allocator
            configuration, thread counts, relevant environment variables).
    """

    bsprof: str
    python: str
    torch: str
    platform: str
    libraries: Mapping[str, Scalar] = field(default_factory=dict)
    settings: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """A device as its data sheet and public measurements describe it; it need not be here.

    Attributes:
        name: Of the catalogue: `rtx-4090`, `a100-80gb-sxm`.
        title: As people write it: `NVIDIA GeForce RTX 4090`.
        kind: `cuda`, or `rocm` for AMD's.
        aliases: Other spellings, as `nvidia-smi` and people write them.
        architecture: `ada`, `hopper`, ...
        compute_capability: Major and minor; None where there is no such thing.
        compute_units: SMs or compute units.
        nominal_memory_bytes: What the box says.
        capacity_bytes: What the driver hands out in all (torch's `total_memory`), with the
            interval that drivers leave.
        flops_per_s: Dense peaks by compute type (`fp32`, `tf32`, `bf16`, `fp16`, `fp8`).
        bandwidth_bytes_per_s: Of device memory, from the data sheet.
        l2_bytes: Second-level cache.
        boost_clock_hz: Of the card.
        power_w: Board power limit.
        links_bytes_per_s: Bytes per second in one direction by link (`pcie`, `nvlink`).
        context_bytes: CUDA context and loaded modules, outside the allocator; None takes the
            default of `bsprof.predict.terms`.
        sources: Where each number comes from, by field.
        notes: What to know before trusting a number.
    """

    name: str
    title: str
    kind: str = "cuda"
    aliases: tuple[str, ...] = ()
    architecture: str
    compute_capability: tuple[int, int] | None = None
    compute_units: int
    nominal_memory_bytes: int
    capacity_bytes: Quantity
    flops_per_s: Mapping[str, float]
    bandwidth_bytes_per_s: float
    l2_bytes: int | None = None
    boost_clock_hz: float | None = None
    power_w: float | None = None
    links_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    context_bytes: Quantity | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
