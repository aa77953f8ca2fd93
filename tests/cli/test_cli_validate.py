"""`bsprof validate` on the command line: what it refuses, and a real run on a small file."""

from __future__ import annotations

import csv
import json

import pytest

from bsprof.cli import main

HEADER = ["model", "micro_batch", "image_size", "framework", "framework_version"]


def test_an_unknown_quantity_is_told(capsys):
    assert main(["validate", "--quantity", "joy"]) == 2
    assert "unknown quantity 'joy'" in capsys.readouterr().err


def test_a_source_needs_measurements(capsys):
    assert main(["validate", "--source", "litgpt"]) == 2
    assert "--measurements" in capsys.readouterr().err


def test_a_folder_without_measurements_is_told(capsys, tmp_path):
    assert main(["validate", "--measurements", str(tmp_path)]) == 2
    assert "no measurements" in capsys.readouterr().err


@pytest.mark.slow
def test_a_small_model_is_compared_and_its_traces_are_kept(capsys, tmp_path):
    pytest.importorskip("timm")
    with (tmp_path / "timm_train_rtx3090.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(HEADER)
        rows.writerow(["resnet18", "512", "224", "pytorch+timm (NCHW)", "1.12 cu11.3"])
    cache = tmp_path / "cache"
    words = ["validate", "--measurements", str(tmp_path), "--cache", str(cache), "--json"]
    assert main(words) == 0
    first = json.loads(capsys.readouterr().out)
    kept = sorted(cache.iterdir())
    assert kept
    assert [row["model"] for row in first["rows"]] == ["resnet18"]
    times = [path.stat().st_mtime_ns for path in kept]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert [path.stat().st_mtime_ns for path in kept] == times
