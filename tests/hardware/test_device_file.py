"""Device files: what is read from one, and every way that one can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsprof.errors import CalibrationError
from bsprof.hardware.device_file import read_device_file
from bsprof.records import Quantity

GOOD = """
[sources]
compute_units = "sheet"
memory_gib = "sheet"
capacity_gib = "torch"
peak_tflops = "sheet"
bandwidth_gb_per_s = "sheet"

[devices.card]
title = "A Card"
aliases = ["card one"]
architecture = "ada"
compute_units = 10
memory_gib = 8
capacity_gib = { value = 7.75, low = 7.5, high = 8 }
peak_tflops = { fp16 = 20.5, fp32 = 10 }
bandwidth_gb_per_s = 500
"""
MORE = """
kind = "rocm"
compute_capability = [8, 9]
l2_mib = 5.5
boost_mhz = 2520
power_w = 72.5
links_gb_per_s = { pcie = 32 }
context_mib = { value = 400, low = 300, high = 500 }
notes = ["Odd."]
sources.compute_capability = "c"
sources.l2_mib = "l"
sources.boost_mhz = "b"
sources.power_w = "p"
sources.links_gb_per_s = "k"
sources.context_mib = "x"
sources.memory_gib = "own"
"""
GIB = 2**30


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "card.toml"


def test_the_least_that_a_file_says(file):
    file.write_text(GOOD)
    (device,) = read_device_file(file)
    assert (device.name, device.title, device.aliases) == ("card", "A Card", ("card one",))
    assert device.nominal_memory_bytes == 8 * GIB
    assert device.capacity_bytes == Quantity(value=7.75 * GIB, low=7.5 * GIB, high=8 * GIB)
    assert device.flops_per_s == {"fp32": 10e12, "fp16": 20.5e12}
    assert device.bandwidth_bytes_per_s == 500e9
    assert (device.kind, device.notes, device.links_bytes_per_s) == ("cuda", (), {})
    assert device.context_bytes is None
    assert device.sources["capacity_bytes"] == "torch"
    assert len(device.sources) == 5


def test_all_that_a_file_may_say(file):
    file.write_text(GOOD + MORE)
    (device,) = read_device_file(file)
    assert device.kind == "rocm"
    assert device.compute_capability == (8, 9)
    assert device.l2_bytes == 5.5 * 2**20
    assert device.boost_clock_hz == 2.52e9
    assert device.power_w == 72.5
    assert device.links_bytes_per_s == {"pcie": 32e9}
    assert device.context_bytes == Quantity(value=400 * 2**20, low=300 * 2**20, high=500 * 2**20)
    assert device.notes == ("Odd.",)
    assert device.sources["nominal_memory_bytes"] == "own"
    assert len(device.sources) == 11


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("compute_units = 10\n", "", "devices.card: no compute_units"),
        ('title = "A Card"\n', "", "devices.card: no title"),
        ("compute_units = 10\n", "compute_units = 10.5\n", "devices.card.compute_units: 10.5"),
        ("compute_units = 10\n", "compute_units = true\n", "devices.card.compute_units: True"),
        ("memory_gib = 8\n", 'memory_gib = "8"\n', "devices.card.memory_gib: '8'"),
        ("memory_gib = 8\n", "memory_gib = -8\n", "devices.card.memory_gib: -8"),
        ("memory_gib = 8\n", "memory_gib = inf\n", "devices.card.memory_gib: inf"),
        ("memory_gib = 8\n", "memory_gib = 7\n", "devices.card.capacity_gib: more than memory"),
        ("low = 7.5", "low = 7.8", "devices.card.capacity_gib: {"),
        ("low = 7.5, ", "", "devices.card.capacity_gib: {"),
        ("fp16 = 20.5", "fp17 = 20.5", "devices.card.peak_tflops: {"),
        ("{ fp16 = 20.5, fp32 = 10 }", "{}", "devices.card.peak_tflops: {}"),
        ('aliases = ["card one"]', 'aliases = "card one"', "devices.card.aliases: 'card one'"),
        ('aliases = ["card one"]', 'aliases = [""]', "devices.card.aliases: ['']"),
        ('title = "A Card"', "title = 4", "devices.card.title: 4"),
        ("memory_gib = 8", "memory_gib = 8\nkind = 'tpu'", "devices.card.kind: 'tpu'"),
        ("memory_gib = 8", "memory_gib = 8\ncompute_capability = [8]", "compute_capability: [8]"),
        ("memory_gib = 8", "memory_gib = 8\nl2_mb = 4", "devices.card.l2_mb: an unknown key"),
        ("memory_gib = 8", "memory_gib = 8\nl2_mib = 4", "devices.card.l2_mib: no source"),
        ('capacity_gib = "torch"\n', "", "devices.card.capacity_gib: no source"),
        ('capacity_gib = "torch"', 'capacity_gib = ""', "sources.capacity_gib: ''"),
        ('capacity_gib = "torch"', 'capacity = "torch"', "sources.capacity: an unknown key"),
        ("memory_gib = 8", "memory_gib = 8\nsources.power_w = 'x'", "sources.power_w: no such"),
        ("memory_gib = 8", "memory_gib = 8\nsources = 'x'", "devices.card.sources: 'x'"),
        ("[devices.card]", "[device.card]", "device: an unknown key"),
        ("[devices.card]", "[devices]\ncard = 4\n[devices.other]", "devices.card: 4"),
        (GOOD, "[sources]\n", "devices: no device"),
        (GOOD, "devices = [", "Invalid value"),
    ],
)
def test_what_is_wrong_is_named(file, old, new, found):
    assert old in GOOD
    file.write_text(GOOD.replace(old, new, 1) if old != "memory_gib = 8" else _in_device(new))
    with pytest.raises(CalibrationError) as raised:
        read_device_file(file)
    assert raised.value.doing == f"cannot read {file}"
    assert found in raised.value.found
    assert raised.value.next_step


def _in_device(new: str) -> str:
    """The good file with lines added to its device."""
    head, device = GOOD.split("[devices.card]")
    return head + "[devices.card]" + device.replace("memory_gib = 8", new, 1)


def test_a_file_that_cannot_be_read(file):
    with pytest.raises(CalibrationError, match="cannot read"):
        read_device_file(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CalibrationError, match="cannot read"):
        read_device_file(file)
