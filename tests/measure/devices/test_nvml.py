"""NVML over a stand-in module: numbering, MIG, and refusal of every single call."""

from types import SimpleNamespace

import pytest

from bsprof.measure.devices.nvml import Nvml, open_nvml

GIB = 2**30


class NVMLError(Exception):
    pass


class FakeModule:
    """`pynvml` with two cards whose NVML order is the reverse of CUDA's."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, refuse: str = "") -> None:
        self.refuse = refuse
        self.cards = {
            "GPU-bbbb": SimpleNamespace(total=80 * GIB, used=3 * GIB),
            "GPU-aaaa": SimpleNamespace(total=80 * GIB, used=40 * GIB),
            "MIG-cccc": SimpleNamespace(total=141 * GIB, used=9 * GIB),
        }

    def __getattribute__(self, name: str):
        if name.startswith("nvml") and name == object.__getattribute__(self, "refuse"):
            raise_it = object.__getattribute__(self, "NVMLError")

            def refused(*_: object) -> None:
                raise raise_it("Insufficient Permissions")

            return refused
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"570.86.15"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid not in self.cards:
            raise NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        return self.cards[handle]

    def nvmlDeviceGetClockInfo(self, _handle: str, _which: int) -> int:  # noqa: N802
        return 1410

    def nvmlDeviceGetMaxClockInfo(self, _handle: str, _which: int) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetEnforcedPowerLimit(self, _handle: str) -> int:  # noqa: N802
        return 700_000

    def nvmlDeviceGetTemperature(self, _handle: str, _sensor: int) -> int:  # noqa: N802
        return 45

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _handle: str) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, _handle: str) -> int:  # noqa: N802
        return 123_456_789

    def nvmlDeviceGetEccMode(self, _handle: str) -> list[int]:  # noqa: N802
        return [1, 1]


def test_devices_are_found_by_uuid_not_by_number():
    nvml = Nvml(FakeModule())
    assert nvml.used_bytes("aaaa", 80 * GIB) == 40 * GIB
    assert nvml.used_bytes("bbbb", 80 * GIB) == 3 * GIB
    assert nvml.used_bytes("zzzz", 80 * GIB) is None


def test_a_slice_whose_full_card_is_reported_is_not_believed():
    nvml = Nvml(FakeModule())
    assert nvml.used_bytes("cccc", 16 * GIB) is None


def test_facts():
    assert Nvml(FakeModule()).facts("aaaa") == {
        "driver": "570.86.15",
        "sm_clock_mhz": 1410,
        "sm_clock_max_mhz": 1980,
        "memory_clock_mhz": 1410,
        "power_limit_w": 700.0,
        "temperature_c": 45,
        "throttle_reasons": 0,
        "ecc": True,
    }
    assert Nvml(FakeModule()).facts("zzzz") == {"driver": "570.86.15"}


# What `used_bytes` and `energy_j` alone ask has a test of its own.
APART = {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetTotalEnergyConsumption"}
CALLS = sorted(name for name in vars(FakeModule) if name.startswith("nvml") and name not in APART)


@pytest.mark.parametrize("refused", CALLS)
def test_any_call_may_be_refused(refused):
    module = FakeModule(refused)
    nvml = open_nvml(lambda _name: module)
    if refused == "nvmlInit":
        assert nvml is None
        return
    assert nvml is not None
    full = Nvml(FakeModule()).facts("aaaa")
    facts = nvml.facts("aaaa")
    assert set(facts) < set(full)
    assert all(full[name] == value for name, value in facts.items())
    used = nvml.used_bytes("aaaa", 80 * GIB)
    assert (used is None) == (refused == "nvmlDeviceGetHandleByUUID")


def test_refused_memory_leaves_the_facts():
    nvml = Nvml(FakeModule("nvmlDeviceGetMemoryInfo"))
    assert nvml.used_bytes("aaaa", 80 * GIB) is None
    assert nvml.facts("aaaa") == Nvml(FakeModule()).facts("aaaa")


def test_the_energy_counter_is_in_millijoules():
    assert Nvml(FakeModule()).energy_j("aaaa") == 123_456.789
    assert Nvml(FakeModule()).energy_j("zzzz") is None


def test_a_card_before_volta_or_a_slice_counts_no_energy():
    assert Nvml(FakeModule("nvmlDeviceGetTotalEnergyConsumption")).energy_j("aaaa") is None


def test_an_old_library_without_the_energy_call_counts_none():
    class OldModule:
        NVMLError = NVMLError

        def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
            return uuid

    assert Nvml(OldModule()).energy_j("aaaa") is None


def test_no_package_and_no_library():
    def missing(_name: str) -> None:
        raise ModuleNotFoundError("No module named 'pynvml'")

    assert open_nvml(missing) is None


def test_on_this_machine_it_answers_or_is_none():
    assert open_nvml() is None or isinstance(open_nvml(), Nvml)
