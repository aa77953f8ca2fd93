"""The numbers of the catalogue against arithmetic on chips, and against a public table."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from bsprof.hardware.catalogue import devices, find_device
from bsprof.records import DeviceSpec

GIB = 2**30

PART = {
    "a100": (1024, 64),
    "a800": (1024, 64),
    "a30": (1024, 64),
    "v100": (512, 64),
    "h100": (2048, 128),
    "h200": (2048, 128),
    "gh200": (2048, 128),
    "b200": (4096, 128),
    "rtx-50": (256, 128),
    "rtx-pro-6000": (512, 128),
    "rtx-40": (256, 128),
    "rtx-4000-ada": (512, 128),
    "rtx-2000-ada": (512, 128),
    "rtx-6000-ada": (512, 128),
    "l4": (512, 128),
    "l40": (256, 128),
    "l40s": (512, 128),
    "rtx-30": (256, 128),
    "a10": (512, 128),
    "a10g": (256, 128),
    "a40": (512, 128),
    "rtx-a": (512, 128),
    "t4": (512, 64),
    "rtx-2080": (256, 64),
    "titan-rtx": (512, 64),
    "quadro": (512, 64),
    "p100": (64, 64),
    "p4": (None, 128),
    "p40": (None, 128),
    "gtx-10": (None, 128),
    "titan-xp": (None, 128),
    "mi300x": (1024, 128),
    "mi250x": (512, 64),
    "mi210": (512, 64),
    "mi100": (512, 64),
    "rx-7900": (512, 256),
}
"""By the longest fitting start of a name: fp16 multiply-adds (fp32 accumulation) and fp32 ones
per unit and clock, from the makers' papers on each architecture."""

SHEET_MHZ = {
    "h100-80gb-pcie": 1620,
    "h100-80gb-sxm": 1830,
    "h100-nvl": 1545,
    "h200": 1830,
    "gh200-96gb": 1830,
    "b200": 1855,
    "l40s": 2490,
    "p100-16gb-pcie": 1303,
}
"""The clock that a data sheet's matrix figure belongs to, where it is not the boost clock."""

BUS = {
    "a100-40gb-pcie": (5120, 2.43),
    "a100-40gb-sxm": (5120, 2.43),
    "a100-80gb-pcie": (5120, 3.024),
    "a100-80gb-sxm": (5120, 3.186),
    "h100-80gb-pcie": (5120, 3.186),
    "h100-80gb-sxm": (5120, 5.238),
    "h200": (6144, 6.25),
    "v100-16gb-sxm": (4096, 1.752),
    "v100-32gb-pcie": (4096, 1.752),
    "p100-16gb-pcie": (4096, 1.43),
    "rtx-5090": (512, 28.0),
    "rtx-5080": (256, 30.0),
    "rtx-pro-6000-server": (512, 28.0),
    "rtx-4090": (384, 21.0),
    "rtx-4090-d": (384, 21.0),
    "rtx-4080": (256, 22.4),
    "rtx-4080-super": (256, 23.0),
    "rtx-4070": (192, 21.0),
    "rtx-3090": (384, 19.5),
    "rtx-3090-ti": (384, 21.0),
    "rtx-3080-10gb": (320, 19.0),
    "rtx-3080-12gb": (384, 19.0),
    "rtx-3060-12gb": (192, 15.0),
    "rtx-2080-ti": (352, 14.0),
    "t4": (256, 10.0),
    "l4": (192, 12.5),
    "l40": (384, 18.0),
    "l40s": (384, 18.0),
    "a10": (384, 12.5),
    "a10g": (384, 12.5),
    "a30": (3072, 2.43),
    "a40": (384, 14.5),
    "rtx-a6000": (384, 16.0),
    "rtx-a5000": (384, 16.0),
    "rtx-a4000": (256, 14.0),
    "rtx-6000-ada": (384, 20.0),
    "titan-rtx": (384, 14.0),
    "mi300x": (8192, 5.2),
    "mi250x-die": (4096, 3.2),
}
"""Width of the memory bus in bits, and Gbit/s on each of its wires."""


def per_clock(device: DeviceSpec) -> tuple[int | None, int]:
    start = max((s for s in PART if device.name.startswith(s)), key=len)
    return PART[start]


@pytest.fixture(params=devices(), ids=lambda d: d.name)
def device(request: pytest.FixtureRequest) -> DeviceSpec:
    return request.param


def test_matrix_peaks_are_what_the_chip_can_do(device):
    fused, _ = per_clock(device)
    if fused is None:
        assert set(device.flops_per_s) == {"fp32"}
        return
    assert device.boost_clock_hz is not None
    hertz = SHEET_MHZ.get(device.name, device.boost_clock_hz / 1e6) * 1e6
    expected = device.compute_units * fused * 2 * hertz
    assert device.flops_per_s["fp16"] == pytest.approx(expected, rel=0.015)


def test_vector_peaks_are_what_the_chip_can_do(device):
    assert device.boost_clock_hz is not None
    hertz = 1303e6 if device.name == "p100-16gb-pcie" else device.boost_clock_hz
    expected = device.compute_units * per_clock(device)[1] * 2 * hertz
    assert device.flops_per_s["fp32"] == pytest.approx(expected, rel=0.015)


def test_precisions_stand_in_the_ratio_of_their_generation(device):
    peaks = device.flops_per_s
    old = ("volta", "turing", "pascal")
    assert ("bf16" in peaks) == (device.architecture not in old)
    assert ("fp8" in peaks) == (device.architecture in ("ada", "hopper", "blackwell", "cdna3"))
    if device.kind == "cuda":
        assert ("tf32" in peaks) == (device.architecture not in old)
    if "bf16" in peaks and device.name != "mi100":  # the MI100 has bf16 at half rate
        assert peaks["bf16"] == peaks["fp16"]
    if "tf32" in peaks:
        assert peaks["tf32"] == pytest.approx(peaks["fp16"] / 2, rel=0.015)
    if "fp8" in peaks:
        assert peaks["fp8"] == pytest.approx(peaks["fp16"] * 2, rel=0.015)


@pytest.mark.parametrize("name", BUS)
def test_bandwidth_is_bus_times_rate(name):
    bits, gigabits = BUS[name]
    expected = bits / 8 * gigabits * 1e9
    assert find_device(name).bandwidth_bytes_per_s == pytest.approx(expected, rel=0.015)


def test_memory_is_less_than_the_box_says_and_never_by_much(device):
    share = device.capacity_bytes.value / device.nominal_memory_bytes
    assert 0.89 < share < 1  # GDDR with ECC gives up a sixteenth, the driver up to 4 %
    width = (device.capacity_bytes.high - device.capacity_bytes.low) / GIB
    assert 0.09 < width < 1


def test_every_number_has_its_source_and_no_other(device):
    numbers = {
        field: getattr(device, field)
        for field in (
            "compute_capability",
            "compute_units",
            "nominal_memory_bytes",
            "capacity_bytes",
            "flops_per_s",
            "bandwidth_bytes_per_s",
            "l2_bytes",
            "boost_clock_hz",
            "power_w",
            "links_bytes_per_s",
            "context_bytes",
        )
    }
    assert set(device.sources) == {field for field, value in numbers.items() if value}
    assert all(len(source) > 5 for source in device.sources.values())
    assert not any("/" in s and s.endswith((".csv", ".md")) for s in device.sources.values())


def rows() -> list[dict[str, str]]:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    folder = Path(os.environ.get("BSPROF_SHARED_DATA", beside))
    file = folder / "kernels" / "gpu_specs.csv"
    if not file.is_file():
        pytest.skip("public specifications not here; set BSPROF_SHARED_DATA")
    with file.open(newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


def test_a_public_table_agrees():
    columns = {
        "fp32_tflops": "fp32",
        "tf32_dense_tflops": "tf32",
        "fp16_fp32acc_dense_tflops": "fp16",
        "bf16_dense_tflops": "bf16",
        "fp8_fp32acc_dense_tflops": "fp8",
    }
    compared = 0
    for row in rows():
        if "both GCDs" in row["gpu"]:
            continue  # torch sees its dies as two devices, and so does the catalogue
        device = find_device(row["gpu"], compute_units=int(row["sms"]))
        for column, kind in columns.items():
            theirs = float(row[column] or 0) * 1e12
            assert device.flops_per_s.get(kind, 0) == pytest.approx(theirs, rel=1e-3), row["gpu"]
        bandwidth = float(row["mem_bw_gbs"]) * 1e9
        assert device.bandwidth_bytes_per_s == pytest.approx(bandwidth, rel=1e-3), row["gpu"]
        assert device.nominal_memory_bytes == int(row["mem_nominal_gb"]) * GIB
        assert device.l2_bytes == pytest.approx(float(row["l2_mb"]) * 2**20)
        assert device.power_w == float(row["tdp_w"])
        assert device.boost_clock_hz == float(row["boost_mhz"]) * 1e6
        if device.compute_capability is not None:
            major, minor = device.compute_capability
            assert f"{major}.{minor}" == row["compute_capability"]
        theirs = float(row["mem_torch_gib"]) * GIB
        if row["mem_torch_is"] == "reported":
            assert device.capacity_bytes.low <= theirs <= device.capacity_bytes.high, row["gpu"]
            assert device.capacity_bytes.value == pytest.approx(theirs, abs=0.02 * GIB)
        else:  # 1 % less than nvidia-smi, which reports of the same memory correct
            assert device.capacity_bytes.value == pytest.approx(theirs, rel=0.02), row["gpu"]
        compared += 1
    assert compared == 33
