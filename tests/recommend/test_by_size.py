"""Predicted memory side by side, and beside what was measured."""

import json
from dataclasses import replace

import pytest
from recommend_profiles import (
    GIB,
    MIB,
    Origin,
    Quantity,
    device,
    failed_point,
    ok_point,
    predicted_point,
    predicted_profile,
    profile_of,
)

from bsprof.recommend.by_size import against_measured
from bsprof.recommend.compare import compare_profiles
from bsprof.recommend.compare_document import comparison_document
from bsprof.records import Precision, WorkloadSpec


def measured(sizes=(1, 2, 4, 8), *, bytes_per_sample=195 * MIB, **more):
    """A measured profile of the card and workload of `predicted_profile`."""
    points = [ok_point(b, 0.01 * b, used_bytes=GIB + bytes_per_sample * b) for b in sizes]
    return replace(
        profile_of([*points, failed_point(99)]), **({"device": predicted_profile().device} | more)
    )


def test_two_predictions_are_compared_by_the_sizes_that_fit():
    small = predicted_profile((1, 2, 4, 8), failed=(16,))
    comparison = compare_profiles([("large", predicted_profile()), ("small", small)])
    assert comparison.title == "micro-batch 64 on large and 8 on small; no time is known to compare"
    assert [entry.ratio for entry in comparison.profiles] == [None, None]
    assert [entry.rate_per_s for entry in comparison.profiles] == [None, None]
    assert [entry.plan.micro_batch_size for entry in comparison.profiles] == [64, 8]
    comparison.raise_for_status()


def test_the_size_compared_leaves_the_usual_headroom():
    points = (predicted_point(8, 10 * GIB), predicted_point(16, 22 * GIB))
    tight = replace(predicted_profile(), points=points)
    comparison = compare_profiles([("a", tight), ("b", predicted_profile())])
    assert comparison.profiles[0].plan.micro_batch_size == 8


def test_a_target_compares_the_plans():
    comparison = compare_profiles(
        [("a", predicted_profile()), ("b", predicted_profile((1, 2, 4, 8)))], target_batch=256
    )
    assert [entry.plan.accumulation_steps for entry in comparison.profiles] == [4, 32]
    assert {entry.plan.step_time_s for entry in comparison.profiles} == {None}


def test_an_error_is_told_beside_a_prediction():
    nothing = predicted_profile((), failed=(1,))
    comparison = compare_profiles([("a", predicted_profile()), ("b", nothing)])
    assert comparison.title.startswith("only a")
    assert comparison.profiles[1].error is not None


def test_predicted_against_measured():
    comparison = compare_profiles([("p", predicted_profile()), ("m", measured())])
    [pair] = comparison.against
    assert (pair.predicted, pair.measured, pair.field) == (0, 1, "device_used_bytes")
    assert pair.sizes == (1, 2, 4, 8)
    for size, ratio in zip(pair.sizes, pair.ratios, strict=True):
        assert ratio == pytest.approx((GIB + 200 * MIB * size) / (GIB + 195 * MIB * size))
    assert pair.inside == 4
    assert "too high in the median of 4 sizes" in comparison.title
    assert "4 of 4 measured values lie in the interval" in comparison.title
    assert comparison.profiles[0].verdict == "no time is known of predicted"


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_the_profiles_does_not_matter(order):
    profiles = [predicted_profile(), measured()][::order]
    [pair] = against_measured(profiles)
    assert profiles[pair.predicted].origin is Origin.PREDICTED
    assert profiles[pair.measured].origin is Origin.MEASURED


@pytest.mark.parametrize(
    "other",
    [
        measured(workload=WorkloadSpec(model="gpt-tiny", precision=Precision.BF16)),
        measured(device=device()),
        measured(ranks=2, parallel="ddp"),
        measured((100, 200)),
    ],
    ids=["workload", "kind of device", "ranks", "sizes"],
)
def test_what_is_not_alike_is_not_scored(other):
    assert against_measured([predicted_profile(), other]) == ()


def test_another_seed_is_alike_and_another_card_is_told():
    other = measured(
        workload=WorkloadSpec(model="gpt-tiny", seed=3),
        device=device(kind="cuda", name="NVIDIA A100"),
    )
    comparison = compare_profiles([("p", predicted_profile()), ("m", other)])
    assert len(comparison.against) == 1
    [note] = [n for n in comparison.notes if n.code == "different-devices"]
    assert "predicted for NVIDIA GeForce RTX 4090 and measured on NVIDIA A100" in note.message


def test_allocated_bytes_are_compared_where_nothing_more_is_known():
    points = [
        replace(p, device_used_bytes=None, peak_allocated_bytes=Quantity.exact(GIB))
        for p in measured().points[:2]
    ]
    [pair] = against_measured([predicted_profile(), measured(points=tuple(points))])
    assert pair.field == "peak_allocated_bytes"
    assert pair.sizes == (1, 2)


def test_the_document_has_memory_by_size():
    comparison = compare_profiles([("p", predicted_profile()), ("m", measured())])
    document = json.loads(json.dumps(comparison_document(comparison), allow_nan=False))
    row = document["memory_by_size"][0]
    assert row["micro_batch_size"] == 1
    assert [p["status"] for p in row["profiles"]] == ["ok", "ok"]
    assert row["profiles"][0]["device_used_bytes"]["value"] == GIB + 200 * MIB
    assert document["memory_by_size"][-1]["profiles"] == [
        {
            "status": "oom",
            "alloc_retries": None,
            "device_used_bytes": None,
            "peak_reserved_bytes": None,
            "peak_allocated_bytes": None,
        },
        None,
    ]
    [pair] = document["predicted_against_measured"]
    assert (pair["predicted"], pair["measured"]) == ("p", "m")
    assert pair["inside_interval"] == 4
    assert document["profiles"][0]["rate_per_s"] is None
