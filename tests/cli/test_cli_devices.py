"""`bsprof devices` as a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bsprof.hardware.catalogue import devices

ROOT = Path(__file__).parent.parent.parent


def names(outcome) -> list[str]:
    return [line.split("\t")[0] for line in outcome.out.splitlines()[1:]]


def test_everything_is_listed(run):
    outcome = run("devices")
    assert (outcome.status, outcome.err) == (0, "")
    head, *rows = (line.split("\t") for line in outcome.out.splitlines())
    assert head == ["device", "memory", "bf16", "fp16", "bandwidth", "units", "capability"]
    assert [row[0] for row in rows] == [device.name for device in devices()]
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["rtx-4090"] == [
        "23.6 GiB",
        "165 TFLOP/s",
        "165 TFLOP/s",
        "1.01 TB/s",
        "128",
        "8.9",
    ]
    assert by_name["t4"][1] == "none"
    assert by_name["mi300x"][-1] == "rocm"


@pytest.mark.parametrize("name", ["rtx-4090", "NVIDIA GeForce RTX 4090", "4090"])
def test_one_is_explained_with_sources(run, name):
    outcome = run("devices", name)
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "rtx-4090: NVIDIA GeForce RTX 4090"
    assert "number\tvalue\tsource" in lines
    fields = {cells[0]: cells[1:] for line in lines if len(cells := line.split("\t")) == 3}
    assert fields["bf16 peak, dense"][0] == "165 TFLOP/s"
    assert fields["memory handed out"][0] == "23.6 GiB (23.5 GiB to 23.7 GiB)"
    assert fields["power limit"][0] == "450 W"
    assert all(source for _, source in fields.values())
    assert "not free" in outcome.err
    assert "rtx-4090-d" not in outcome.out


def test_every_device_can_be_explained(run):
    for device in devices():
        lines = run("devices", device.name, "-q").out.splitlines()
        assert lines[0].startswith(f"{device.name}: ")
        assert len([n for n in device.sources if n != "flops_per_s"]) <= len(lines) - 4
        assert all(note in "\n".join(lines) for note in device.notes)


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("a100", ["a100-40gb-pcie", "a100-40gb-sxm", "a100-80gb-pcie", "a100-80gb-sxm"]),
        ("RTX PRO", ["rtx-pro-6000-server", "rtx-pro-6000-workstation"]),
        ("mi2", ["mi210", "mi250x-die"]),
    ],
)
def test_a_short_name_or_a_part_lists(run, name, listed):
    assert names(run("devices", name)) == listed


def test_a_part_of_one_name_explains_it(run):
    assert run("devices", "1080").out.startswith("gtx-1080-ti: NVIDIA GeForce GTX 1080 Ti\n")


def test_json_holds_all_that_is_known(run):
    outcome = run("devices", "H100 SXM", "--json")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.json["schema"] == 1
    (device,) = outcome.json["devices"]
    assert device["name"] == "h100-80gb-sxm"
    assert device["compute_units"] == 132
    assert device["compute_capability"] == [9, 0]
    assert device["flops_per_s"]["bf16"] == 989.4e12
    assert device["capacity_bytes"]["low"] < device["capacity_bytes"]["value"]
    assert "sheet" in device["sources"]["flops_per_s"]
    assert len(run("devices", "--json").json["devices"]) == len(devices())


@pytest.mark.parametrize(
    ("name", "found"),
    [("rtx-4909", "near: rtx-4090"), ("A100-SXM4-40GB MIG 1g.5gb", "a MIG slice"), ("", "")],
)
def test_a_miss_says_what_is_near(run, name, found):
    outcome = run("devices", name)
    assert (outcome.status, outcome.out) == (3, "")
    assert f"no device of the catalogue is named {name!r}" in outcome.err
    assert found in outcome.err
    assert "see `bsprof devices`" in outcome.err


def test_a_broken_file_of_ones_own_is_named(run, monkeypatch, tmp_path):
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "mine.toml").write_text("[devices.mine]\ntitle = 'Mine'\n")
    monkeypatch.setenv("BSPROF_CALIBRATION", str(tmp_path))
    outcome = run("devices", "--json")
    assert (outcome.status, outcome.out) == (3, "")
    assert "mine.toml" in outcome.err
    assert "devices.mine: no architecture" in outcome.err


@pytest.mark.parametrize("words", [[], ["rtx-4090"], ["--json"], ["--help"]])
def test_nothing_heavy_is_loaded(words):
    script = (
        f"from bsprof.cli import main; import sys; main(['devices', *{words}]); "
        "print([n for n in ('torch', 'numpy', 'pandas', 'matplotlib') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines()[-1].endswith("[]")
