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


def test_leaving_a_gpu_out_needs_measurements_and_times(capsys, tmp_path):
    assert main(["validate", "--quantity", "time", "--leave-out", "h100-80gb-sxm"]) == 2
    assert "--measurements" in capsys.readouterr().err
    words = ["validate", "--measurements", str(tmp_path), "--leave-out", "h100-80gb-sxm"]
    assert main(words) == 2
    assert "--quantity time" in capsys.readouterr().err


@pytest.mark.slow
def test_a_published_time_is_compared(capsys, tmp_path):
    row = {
        "gpu": "A100",
        "gpu_mem_gb": "80",
        "n_gpus": "8",
        "model": "mpt-125m",
        "precision": "amp_bf16",
        "micro_batch": "32",
        "grad_accum": "2",
        "seq_len": "2048",
        "act_ckpt": "False",
        "step_ms": "924.751",
        "judge": "TN",
    }
    with (tmp_path / "llmfoundry_mpt_train.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, list(row))
        rows.writeheader()
        rows.writerow(row)
    words = ["validate", "--quantity", "time", "--measurements", str(tmp_path), "--json"]
    assert main([*words, "--cache", str(tmp_path / "cache")]) == 0
    document = json.loads(capsys.readouterr().out)
    [found] = document["rows"]
    assert found["set"] == "llm-foundry-a100"
    assert 0.5 < found["predicted_s"]["value"] / found["measured_s"] < 2
    assert found["data_sheet_s"] < found["predicted_s"]["value"]
    assert document["sheets"][0]["rows"][0][0] == "LLM Foundry, A100"


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
