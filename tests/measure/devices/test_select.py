"""Device names, and what is said of those that are not here."""

import pytest
import torch

from bsprof.errors import DeviceUnavailable, UnknownDevice
from bsprof.measure.devices import select
from bsprof.measure.devices.select import (
    is_measured_name,
    open_device,
    parse_device_name,
    unavailable,
)


@pytest.mark.parametrize(
    ("name", "kind", "index"),
    [
        ("auto", "auto", None),
        ("cpu", "cpu", None),
        ("CPU", "cpu", None),
        ("cuda", "cuda", None),
        ("cuda:3", "cuda", 3),
        ("xpu:0", "xpu", 0),
        ("mps", "mps", None),
        ("mps:0", "mps", 0),
    ],
)
def test_names(name, kind, index):
    parsed = parse_device_name(name)
    assert (parsed.kind, parsed.index) == (kind, index)


@pytest.mark.parametrize("name", ["", "gpu0x", "cuda:", "cuda:one", "cpu:1", "mps:1", "tpu-v9"])
def test_unknown_names(name):
    with pytest.raises(UnknownDevice) as raised:
        parse_device_name(name)
    assert repr(name) in raised.value.doing
    assert "cuda:N" in raised.value.next_step


def test_near_names_are_offered():
    with pytest.raises(UnknownDevice) as raised:
        open_device("cdua")
    assert "did you mean cuda" in raised.value.next_step


@pytest.mark.parametrize(
    ("name", "here"),
    [("auto", True), ("CUDA:1", True), ("cpu", True), ("cpu:1", False), ("rtx-4090", False)],
)
def test_a_name_is_of_this_machine_or_not(name, here):
    assert is_measured_name(name) == here


def test_a_device_of_the_catalogue_is_said_to_be_one():
    with pytest.raises(UnknownDevice) as raised:
        parse_device_name("NVIDIA GeForce RTX 4090")
    assert raised.value.found == "in the catalogue, to predict for: rtx-4090"
    with pytest.raises(UnknownDevice) as raised:
        parse_device_name("rtx-4909")
    assert "did you mean rtx-4090" in raised.value.next_step


def test_cpu_opens_with_its_limit():
    device = open_device("cpu", 10**9)
    assert device.kind == "cpu"
    assert device.torch_device == "cpu"
    assert device.snapshot().usable_bytes <= 10**9


def test_auto_without_an_accelerator_is_the_cpu(monkeypatch):
    monkeypatch.setattr(select, "available_kind", lambda: "cpu")
    assert open_device("auto").kind == "cpu"


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_an_accelerator_that_is_not_here(kind, monkeypatch):
    module = torch.backends.mps if kind == "mps" else getattr(torch, kind)
    monkeypatch.setattr(module, "is_available", lambda: False)
    with pytest.raises(DeviceUnavailable) as raised:
        open_device(kind)
    assert f"no {kind} device" in raised.value.found


def test_a_number_beyond_the_last():
    error = unavailable("cuda", 4, 2)
    assert error.doing == "cannot open device cuda:4"
    assert "2 cuda devices" in error.found
    assert error.next_step == "use cuda:0 to cuda:1"
    assert unavailable("xpu", 1, 1).next_step == "use xpu:0"


@pytest.mark.parametrize("first", ["cuda", "mps", "xpu", "cpu"])
def test_auto_prefers_cuda_then_mps_then_xpu(first, monkeypatch):
    order = ["cuda", "mps", "xpu", "cpu"]
    there = order[order.index(first) :]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in there)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in there)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: "xpu" in there)
    assert select.available_kind() == first
