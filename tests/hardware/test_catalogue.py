"""Which device a name means: whole names only, look-alikes apart, helpful misses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bsprof.errors import CalibrationError, UnknownDevice
from bsprof.hardware.catalogue import devices, devices_named, find_device, near_names

ROOT = Path(__file__).parent.parent.parent
GIB = 2**30
OWN = """
[sources]
compute_units = "counted"
memory_gib = "the box"
capacity_gib = "measured"
peak_tflops = "measured"
bandwidth_gb_per_s = "measured"

[devices.{name}]
title = "{title}"
aliases = {aliases}
architecture = "ampere"
compute_units = 14
memory_gib = 5
capacity_gib = {{ value = 4.75, low = 4.7, high = 4.8 }}
peak_tflops = {{ fp32 = 2.5 }}
bandwidth_gb_per_s = 194
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """`own(name=..., title=..., aliases=...)`: a device in a folder of one's own."""
    monkeypatch.setenv("BSPROF_CALIBRATION", str(tmp_path))
    (tmp_path / "devices").mkdir()

    def write(**fields: str) -> None:
        (tmp_path / "devices" / "mine.toml").write_text(OWN.format(**fields))

    return write


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("rtx-4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("GeForce RTX 4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("RTX_4090 ", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("RTX 4090 24 GB", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090 D", "rtx-4090-d"),
        ("4090D", "rtx-4090-d"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop"),
        ("A100-SXM4-80GB", "a100-80gb-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb-sxm"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb-pcie"),
        ("a100 sxm 80 GiB", "a100-80gb-sxm"),
        ("A100-SXM-80G", "a100-80gb-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb-sxm"),
        ("h100-sxm", "h100-80gb-sxm"),
        ("NVIDIA H100 PCIe", "h100-80gb-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A40", "a40"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("Quadro RTX 6000", "quadro-rtx-6000"),
        ("Tesla V100-SXM2-32GB", "v100-32gb-sxm"),
        ("Tesla V100-PCIE-16GB", "v100-16gb-pcie"),
        ("Tesla T4", "t4"),
        ("Tesla P100-PCIE-16GB", "p100-16gb-pcie"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_names_as_people_and_tools_write_them(name, found):
    assert find_device(name).name == found


def test_every_device_is_found_by_its_own_name():
    names = [device.name for device in devices()]
    assert names == sorted(set(names))
    assert [find_device(name).name for name in names] == names


def test_an_alias_of_several_devices_is_meant_to_be_one():
    shared = {
        alias
        for device in devices()
        for alias in (*device.aliases, device.title)
        if len(devices_named(alias)) > 1
    }
    for alias in shared:  # of one chip or product line: every bearer's name begins alike
        starts = {d.name.removeprefix("quadro-").split("-")[0] for d in devices_named(alias)}
        assert len(starts) == 1, alias


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("a100", "a100-40gb-pcie, a100-40gb-sxm, a100-80gb-pcie, a100-80gb-sxm"),
        ("A100 80GB", "a100-80gb-pcie, a100-80gb-sxm"),
        ("h100", "h100-80gb-pcie, h100-80gb-sxm, h100-nvl"),
        ("v100", "v100-16gb-pcie, v100-16gb-sxm, v100-32gb-pcie, v100-32gb-sxm"),
        ("RTX 3080", "rtx-3080-10gb, rtx-3080-12gb"),
        ("RTX 6000", "quadro-rtx-6000, rtx-6000-ada"),
        ("RTX PRO 6000", "rtx-pro-6000-server, rtx-pro-6000-workstation"),
    ],
)
def test_a_name_of_several_devices_is_refused_with_the_choices(name, choices):
    with pytest.raises(UnknownDevice, match="names several devices") as raised:
        find_device(name)
    assert raised.value.found == choices


@pytest.mark.parametrize(
    ("name", "numbers", "found"),
    [
        ("RTX 3080", {"compute_units": 70}, "rtx-3080-12gb"),
        ("RTX 3080", {"memory_bytes": 9.78 * GIB}, "rtx-3080-10gb"),
        ("h100", {"compute_units": 114}, "h100-80gb-pcie"),
        ("h100", {"memory_bytes": 93 * GIB}, "h100-nvl"),
        ("A100 SXM", {"memory_bytes": 39.39 * GIB, "compute_units": 108}, "a100-40gb-sxm"),
        ("rtx a6000", {"memory_bytes": 44.43 * GIB}, "rtx-a6000"),  # ECC on
        ("NVIDIA A10", {"memory_bytes": 23.7 * GIB}, "a10"),  # ECC off
        ("RTX 4090", {"memory_bytes": 23.99 * GIB}, "rtx-4090"),  # Windows
    ],
)
def test_what_the_device_reports_decides(name, numbers, found):
    assert find_device(name, **numbers).name == found


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("NVIDIA A100-SXM4-40GB", {"compute_units": 14, "memory_bytes": 4.75 * GIB}),  # a slice
        ("NVIDIA H200", {"compute_units": 132, "memory_bytes": 16 * GIB}),
        ("NVIDIA GeForce RTX 4090", {"compute_units": 128, "memory_bytes": 47.4 * GIB}),
        ("NVIDIA GeForce RTX 4090", {"compute_units": 114}),
        ("NVIDIA GeForce RTX 2080 Ti", {"memory_bytes": 21.5 * GIB}),
        ("NVIDIA GH200 480GB", {"memory_bytes": 141 * GIB}),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", {"memory_bytes": 8 * GIB}),
        ("A100", {"memory_bytes": 60 * GIB}),
    ],
)
def test_another_device_of_that_name_is_unknown(name, numbers):
    with pytest.raises(UnknownDevice, match="no device of the catalogue is a") as raised:
        find_device(name, **numbers)
    for device in devices_named(name):
        assert device.name in raised.value.found


@pytest.mark.parametrize(
    "name",
    [
        "RTX 4090 Ti",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA GH200 144G HBM3e",
        "NVIDIA H200 NVL",
        "NVIDIA RTX 5000 Ada Generation Laptop GPU",
        "my NVIDIA A10",
        "A1",
        "",
        "NVIDIA",
    ],
)
def test_no_part_of_a_name_is_taken_for_a_device(name):
    with pytest.raises(UnknownDevice, match="no device of the catalogue is named"):
        find_device(name)


def test_a_slice_is_said_to_be_one():
    with pytest.raises(UnknownDevice) as raised:
        find_device("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert "a MIG slice" in raised.value.found


@pytest.mark.parametrize(
    ("name", "near"),
    [("rtx-4909", "rtx-4090"), ("A100-SXM5-80GB", "a100-80gb-sxm"), ("a11", "a10")],
)
def test_near_names_are_told(name, near):
    assert near in near_names(name)
    assert len(near_names(name)) == len(set(near_names(name))) <= 3
    with pytest.raises(UnknownDevice) as raised:
        find_device(name)
    assert near in raised.value.found
    assert "bsprof devices" in raised.value.next_step


def test_ones_own_device_is_added(own):
    own(name="slice", title="NVIDIA A100-SXM4-40GB MIG 1g.5gb", aliases='["1g.5gb"]')
    assert {"slice", "rtx-4090"} <= {device.name for device in devices()}
    found = find_device("A100-SXM4-40GB MIG 1g.5gb", compute_units=14, memory_bytes=4.75 * GIB)
    assert found.name == "slice"
    assert find_device("a100-40gb-sxm").compute_units == 108


def test_ones_own_device_replaces_and_takes_its_names(own):
    own(name="rtx-4090", title="My card", aliases='["3090", "A100"]')
    assert find_device("rtx-4090").title == "My card"
    assert find_device("my card").name == "rtx-4090"
    assert find_device("3090").name == "rtx-4090"
    assert find_device("a100").name == "rtx-4090"
    assert find_device("rtx-3090").compute_units == 82
    with pytest.raises(UnknownDevice):
        find_device("4090")  # an alias of the one that was replaced


def test_a_folder_that_is_not_there_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("BSPROF_CALIBRATION", str(tmp_path / "absent"))
    with pytest.raises(CalibrationError, match="absent") as raised:
        devices()
    assert "BSPROF_CALIBRATION" in raised.value.found


def test_a_name_twice_is_refused(own, tmp_path):
    own(name="twice", title="A", aliases="[]")
    text = (tmp_path / "devices" / "mine.toml").read_text()
    (tmp_path / "devices" / "other.toml").write_text(text)
    with pytest.raises(CalibrationError, match=r"other\.toml") as raised:
        devices()
    assert "devices.twice" in raised.value.found


def test_nothing_heavy_is_loaded():
    script = (
        "from bsprof.hardware.catalogue import find_device; find_device('rtx-4090'); import sys; "
        "print([n for n in ('torch', 'numpy', 'pandas', 'rich', 'typer') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.strip() == "[]"
