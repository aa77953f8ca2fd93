"""What reading commands make of a stored prediction of memory alone, as older versions made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bsprof.records import (
    DeviceSnapshot,
    Origin,
    Point,
    PointPrediction,
    PointStatus,
    Prediction,
    Quantity,
)
from bsprof.store import profile_path, save

GIB = 2**30


def point(size, used, status=PointStatus.OK):
    amount = Quantity(value=used, low=0.97 * used, high=1.03 * used)
    return Point(
        micro_batch_size=size,
        status=status,
        device_used_bytes=amount,
        prediction=PointPrediction(top_modules={"head": 1000}),
    )


@pytest.fixture
def predicted(folder, make_profile):  # noqa: ARG001
    """A prediction in the store: 16 fits, 32 does not."""
    profile = replace(
        make_profile(),
        origin=Origin.PREDICTED,
        device=DeviceSnapshot(
            kind="cuda",
            name="NVIDIA GeForce RTX 4090",
            capacity_bytes=24 * GIB,
            usable_bytes=23 * GIB,
            limit_source="catalogue",
        ),
        points=(
            point(8, 6 * GIB),
            point(16, 12 * GIB),
            point(32, 24 * GIB, status=PointStatus.OOM),
        ),
        max_micro_batch_size=Quantity(value=30, low=29, high=31),
        prediction=Prediction(device="rtx-4090", software={"torch": "2.13"}),
    )
    save(profile, profile_path(profile, Path("profiles")))
    return profile


@pytest.mark.parametrize("device", ["rtx-4090", "NVIDIA GeForce RTX 4090", "cuda"])
def test_recommend_finds_it_by_its_device_and_claims_no_time(run, predicted, device):  # noqa: ARG001
    outcome = run("recommend", "--target-batch", "256", "--device", device)
    assert outcome.status == 0
    assert "micro-batch 16 x 16 accumulation steps" in outcome.out
    assert "why\tThe profile holds no time" in outcome.out
    assert "predict it anew, with times: bsprof sweep --model gpt-tiny" in outcome.err
    assert "samples/s" not in outcome.out


def test_another_device_is_not_found(run, predicted):  # noqa: ARG001
    assert run("recommend", "--target-batch", "256", "--device", "rtx-3090").status == 3


def test_the_document_has_nulls(run, predicted):  # noqa: ARG001
    document = run("recommend", "--target-batch", "256", "--json").json
    assert document["step_time_s"] is None
    assert document["samples_per_s"] is None
    assert document["device_used_bytes"]["value"] == 12 * GIB
    assert [a["slower_by"] for a in document["alternatives"]] == [None]


def test_what_does_not_fit_exits_with_5(run, predicted):  # noqa: ARG001
    outcome = run("recommend", "--target-batch", "256", "--headroom", "80%")
    assert outcome.status == 5
    assert "needs up to 6.18 GiB" in outcome.err


@pytest.mark.parametrize("ending", ["html", "md", "csv"])
def test_a_report_of_it(run, predicted, folder, ending):  # noqa: ARG001
    assert run("report", "--target-batch", "256", "-o", f"r.{ending}").status == 0
    assert "predicted" in (folder / f"r.{ending}").read_text().lower()


def test_compared_with_a_measurement(run, predicted, folder):
    measured = replace(predicted, origin=Origin.MEASURED, prediction=None, points=())
    steps = Quantity.exact(0.5)
    real = replace(point(16, 11.8 * GIB), micro_step_s=steps, micro_steps_run=3, prediction=None)
    save(replace(measured, points=(real,)), folder / "m.json")
    save(predicted, folder / "p.json")
    outcome = run("compare", "p.json", "m.json")
    assert outcome.status == 0
    assert outcome.out.startswith("memory used is predicted 1.7 % too high at one size")
    assert "Memory by size" in outcome.out
    assert "+1.7 %" in outcome.out
    document = run("compare", "p.json", "m.json", "--json").json
    assert document["predicted_against_measured"][0]["inside_interval"] == 1


def test_the_list_says_that_it_is_predicted(run, predicted):  # noqa: ARG001
    rows = [line.split("\t") for line in run("profiles").out.splitlines()]
    assert rows[1][-1] == "predicted"
    assert rows[1][-2] == "30"
