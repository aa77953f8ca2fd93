from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bsprof import records
from bsprof.errors import ProfileFormatError
from bsprof.records import Plan, Point, PointStatus, Profile, Quantity, RankPieces, WorkloadSpec
from bsprof.records.codec import from_json, to_json

RECORDS = sorted(
    (
        r
        for r in vars(records).values()
        if isinstance(r, type) and hasattr(r, "__dataclass_fields__")
    ),
    key=lambda r: r.__name__,
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_record_survives_json(record, record_strategy, data):
    original = data.draw(record_strategy(record))
    text = json.dumps(to_json(original), allow_nan=False, sort_keys=True)
    assert from_json(record, json.loads(text)) == original


def test_document_is_plain_json_with_the_field_names_as_keys():
    point = Point(micro_batch_size=4, status=PointStatus.OK, micro_step_s=Quantity.exact(0.5))
    document = to_json(point)
    assert document["status"] == "ok"
    assert document["micro_step_s"] == {"value": 0.5, "low": 0.5, "high": 0.5}
    assert document["peak_reserved_bytes"] is None
    assert type(document["status"]) is str


def test_integers_are_good_floats():
    quantity = from_json(Quantity, {"value": 1, "low": 1, "high": 2})
    assert quantity == Quantity(value=1.0, low=1.0, high=2.0)
    assert type(quantity.value) is float


@pytest.mark.parametrize(
    ("record", "data", "message"),
    [
        (WorkloadSpec, [], "WorkloadSpec should be an object"),
        (WorkloadSpec, {}, "missing field WorkloadSpec.model"),
        (WorkloadSpec, {"model": "m", "lr": 1}, "unknown field WorkloadSpec.lr"),
        (WorkloadSpec, {"model": 3}, "WorkloadSpec.model should be a str"),
        (WorkloadSpec, {"model": "m", "seq_len": 1.5}, "WorkloadSpec.seq_len should be a int"),
        (WorkloadSpec, {"model": "m", "seq_len": True}, "WorkloadSpec.seq_len should be a int"),
        (WorkloadSpec, {"model": "m", "compile": 1}, "WorkloadSpec.compile should be a bool"),
        (
            WorkloadSpec,
            {"model": "m", "clip_norm": "1"},
            "WorkloadSpec.clip_norm should be a float",
        ),
        (WorkloadSpec, {"model": "m", "optimizer_options": 1}, "should be an object"),
        (WorkloadSpec, {"model": "m", "optimizer_options": {"lr": []}}, "optimizer_options.lr"),
        (WorkloadSpec, {"model": "m", "precision": "fp8"}, "one of fp32, fp32-strict, tf32"),
        (Quantity, {"value": 3, "low": 4, "high": 5}, "outside its interval"),
        (Quantity, {"value": float("nan"), "low": 4, "high": 5}, "must be finite"),
        (Point, {"micro_batch_size": 1, "status": "ok", "timing": 3}, "Point.timing"),
        (
            Point,
            {
                "micro_batch_size": 1,
                "status": "ok",
                "failure": {"reason": "x", "phase": "y", "tail": "z"},
            },
            "Point.failure.tail should be a list",
        ),
        (
            Point,
            {"micro_batch_size": 1, "status": "ok", "peak_by_category_bytes": {"cache": 1}},
            "one of weights, gradients",
        ),
    ],
)
def test_a_wrong_field_is_named_by_its_path(record, data, message):
    with pytest.raises(ProfileFormatError) as caught:
        from_json(record, data)
    assert message in str(caught.value)


def test_the_path_goes_down_into_lists(make_profile):
    document = to_json(make_profile())
    document["points"][2]["micro_step_s"]["value"] = "fast"
    with pytest.raises(ProfileFormatError) as caught:
        from_json(Profile, document)
    assert caught.value.doing == "Profile.points[2].micro_step_s.value should be a float"
    assert caught.value.found == "'fast'"


def test_nested_tuples_come_back_as_tuples():
    plan = Plan(
        micro_batch_size=3,
        accumulation_steps=2,
        pieces=(RankPieces.of((3, 2), ranks=2),),
        effective_batch_size=10,
        step_time_s=Quantity.exact(1.0),
        samples_per_s=Quantity.exact(10.0),
    )
    assert from_json(Plan, to_json(plan)).pieces_by_rank == ((3, 2), (3, 2))


@pytest.mark.parametrize(
    ("field", "number"),
    [("usable_bytes", "9" * 400), ("capacity_bytes", str(-(10**30)))],
)
def test_a_count_too_large_to_compute_with_is_named(make_profile, field, number):
    document = to_json(make_profile())
    document["device"][field] = json.loads(number)
    with pytest.raises(ProfileFormatError, match=f"Profile.device.{field} is too large a number"):
        from_json(Profile, document)


@pytest.mark.parametrize("number", ["9" * 400, "1e400", "-1e400"])
def test_a_number_too_large_to_compute_with_is_named(make_profile, number):
    document = to_json(make_profile())
    document["duration_s"] = json.loads(number)
    with pytest.raises(ProfileFormatError, match=r"Profile.duration_s is too large a number"):
        from_json(Profile, document)
