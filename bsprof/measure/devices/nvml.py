"""What NVIDIA's management library adds: driver, clocks, power, energy, memory of others.

Optional everywhere: the library may be missing (no driver, Jetson, macOS), any single call may be
refused (MIG, containers, laptops), and its numbering is not CUDA's, so devices are found by UUID.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from bsprof.records import Scalar

# NVML and CUDA agree on a card's memory to within reserved pages. Further apart means that NVML
# speaks of the whole card and CUDA of a MIG slice. Heuristic.
_SAME_DEVICE_SHARE = 0.1


class Nvml:
    """The library, loaded and initialised; every question may come back without an answer.

    Args:
        module: `pynvml`, or a stand-in.
    """

    def __init__(self, module: Any) -> None:
        self._module = module

    def used_bytes(self, uuid: str, capacity_bytes: int) -> int | None:
        """Bytes in use on the device, by anyone; None where NVML does not know this device.

        Args:
            uuid: The device's UUID as CUDA reports it, without a prefix.
            capacity_bytes: What CUDA says the device has; NVML is not believed about another
                amount, as when it reports the full card behind a MIG slice.
        """
        handle = self._handle(uuid)
        if handle is None:
            return None
        memory = self._ask(lambda: self._module.nvmlDeviceGetMemoryInfo(handle))
        if memory is None:
            return None
        if abs(int(memory.total) - capacity_bytes) > _SAME_DEVICE_SHARE * capacity_bytes:
            return None
        return int(memory.used)

    def energy_j(self, uuid: str) -> float | None:
        """Joules that the board took since its driver was loaded, by whomever; None if not told.

        The counter is in millijoules and exists from Volta on (NVML API reference,
        nvmlDeviceGetTotalEnergyConsumption); a MIG slice has none.
        """
        handle = self._handle(uuid)
        if handle is None:
            return None
        counted = self._ask(lambda: int(self._module.nvmlDeviceGetTotalEnergyConsumption(handle)))
        return None if counted is None else counted / 1000

    def facts(self, uuid: str) -> dict[str, Scalar]:
        """Driver, clocks (MHz), power limit (W), temperature (C), as far as they are told."""
        m = self._module
        facts = {"driver": self._ask(lambda: _text(m.nvmlSystemGetDriverVersion()))}
        handle = self._handle(uuid)
        if handle is not None:
            facts |= {
                "sm_clock_mhz": self._ask(
                    lambda: int(m.nvmlDeviceGetClockInfo(handle, m.NVML_CLOCK_SM))
                ),
                "sm_clock_max_mhz": self._ask(
                    lambda: int(m.nvmlDeviceGetMaxClockInfo(handle, m.NVML_CLOCK_SM))
                ),
                "memory_clock_mhz": self._ask(
                    lambda: int(m.nvmlDeviceGetClockInfo(handle, m.NVML_CLOCK_MEM))
                ),
                "power_limit_w": self._ask(
                    lambda: m.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
                ),
                "temperature_c": self._ask(
                    lambda: int(m.nvmlDeviceGetTemperature(handle, m.NVML_TEMPERATURE_GPU))
                ),
                "throttle_reasons": self._ask(
                    lambda: int(m.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
                ),
                "ecc": self._ask(lambda: bool(m.nvmlDeviceGetEccMode(handle)[0])),
            }
        return {name: value for name, value in facts.items() if value is not None}

    def _handle(self, uuid: str) -> Any:
        for prefix in ("GPU-", "MIG-"):
            handle = self._ask(partial(self._by_uuid, prefix + uuid))
            if handle is not None:
                return handle
        return None

    def _by_uuid(self, name: str) -> Any:
        return self._module.nvmlDeviceGetHandleByUUID(name)

    def _ask(self, question: Callable[[], Any]) -> Any:
        """The answer, or None where the library refuses or this version lacks the call."""
        try:
            return question()
        except (self._module.NVMLError, AttributeError, TypeError, IndexError):
            return None


def open_nvml(load: Callable[[str], Any] = importlib.import_module) -> Nvml | None:
    """NVML, or None where there is no library, no driver or no permission."""
    try:
        module = load("pynvml")
    except ImportError:
        return None
    try:
        module.nvmlInit()
    except (module.NVMLError, OSError):
        return None
    return Nvml(module)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
