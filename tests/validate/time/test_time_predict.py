"""Cases predicted from real traces of small built-ins, with coefficients made by hand."""

from __future__ import annotations

import pytest

from bsprof.predict.target import Protocol
from bsprof.records import Mode, Precision, WorkloadSpec
from bsprof.validate.time.cases import Calibrates, TimeCase, TimeQuantity
from bsprof.validate.time.collect import TimeCollected
from bsprof.validate.time.groups import grouped
from bsprof.validate.time.run import validate


def case(size=32, *, model="mlp", seconds=1e-3, row=None, spec=None, **changes) -> TimeCase:
    return TimeCase(
        row=row or f"f.csv:{size}",
        source="somebody",
        family=model,
        model=model,
        spec=WorkloadSpec(model=model, precision=Precision.FP32, **(spec or {})),
        device=changes.pop("device", "rtx-3090"),
        micro_batch=size,
        seconds=seconds,
        **changes,
    )


def predicted(tmp_path, calibration, *cases):
    collected = TimeCollected(cases=cases, skipped=(), assumptions={})
    done = validate(collected, tmp_path / "traces", calibration=calibration)
    assert not done.failed, done.failed
    return {o.case.row: o for o in done.outcomes}


def test_cases_share_traces_over_sizes_devices_and_ranks_and_not_over_settings():
    groups = grouped(
        [
            case(8),
            case(16),
            case(8, device="rtx-a6000"),  # of the same compute capability
            case(8, device="rtx-4090"),
            case(8, world_size=4, parallel="ddp"),
            case(8, spec={"channels_last": True}),
        ]
    )
    assert [len(group.cases) for group in groups] == [4, 1, 1]
    assert groups[0].sizes == (8, 16)


def test_an_update_takes_longer_than_its_micro_step_and_that_than_its_forward(
    tmp_path, calibration
):
    found = predicted(
        tmp_path,
        calibration,
        case(4096, row="update"),
        case(4096, row="micro", quantity=TimeQuantity.MICRO_STEP),
        case(4096, row="forward", quantity=TimeQuantity.FORWARD),
        case(4096, row="four", accumulation_steps=4),
    )
    seconds = {row: o.predicted.value for row, o in found.items()}
    assert seconds["forward"] < seconds["micro"] < seconds["update"] < seconds["four"]
    assert found["four"].sheet_s > 3 * found["micro"].sheet_s
    assert all(o.predicted.low < o.predicted.value < o.predicted.high for o in found.values())


def test_a_measured_host_corrects_the_rows_of_its_machine(tmp_path, calibration):
    spec = {"mode": Mode.INFER}
    shared = {
        "quantity": TimeQuantity.FORWARD,
        "protocol": Protocol(windows=(1,)),
        "machine": "a notebook",
        "spec": spec,
    }
    slow = case(1, seconds=5e-3, calibrates=Calibrates.HOST, **shared)
    found = predicted(tmp_path, calibration, slow, case(2, **shared))
    assert found["f.csv:2"].predicted.value == pytest.approx(5e-3, rel=0.3)
    assert not found["f.csv:1"].is_scored
    assert found["f.csv:2"].is_scored


def test_a_measured_point_adds_the_constant_of_its_sweep(tmp_path, calibration):
    known = {"framework_s": 0.1}
    first = case(256, seconds=0.1, calibrates=Calibrates.POINT, sweep="here", **known)
    second = case(512, sweep="here", **known)
    elsewhere = case(512, row="elsewhere", sweep="there")
    found = predicted(tmp_path, calibration, first, second, elsewhere)
    assert found["f.csv:256"].predicted.value == pytest.approx(0.1, rel=0.05)
    added = found["f.csv:512"].predicted.value - found["elsewhere"].predicted.value
    assert added == pytest.approx(0.1, rel=0.1)


def test_another_network_is_not_scored_and_is_excused(tmp_path, calibration):
    wrong = case(32, published_gmacs=(99.0,))
    collected = TimeCollected(
        cases=(wrong,),
        skipped=(),
        judged=frozenset({wrong.row}),
        usable={wrong.row: wrong.source},
        assumptions={},
    )
    done = validate(collected, tmp_path, calibration=calibration)
    assert done.outcomes == ()
    assert "another network" in done.failed[0].reason
    assert done.share().count == 0


def test_a_model_that_cannot_be_traced_counts_as_missing(tmp_path, calibration):
    wrong = case(32, model="mlp", spec={"seq_len": 128})
    collected = TimeCollected(
        cases=(wrong,),
        skipped=(),
        judged=frozenset({wrong.row}),
        usable={wrong.row: wrong.source},
        assumptions={},
    )
    done = validate(collected, tmp_path, calibration=calibration)
    assert (done.share().hits, done.share().count) == (0, 1)


def test_a_device_of_no_catalogue_is_told(tmp_path, calibration):
    collected = TimeCollected(cases=(case(8, device="rtx-1"),), skipped=(), assumptions={})
    done = validate(collected, tmp_path, calibration=calibration)
    assert "rtx-1" in done.failed[0].reason


def test_ranks_take_longer_than_one_and_share_out_the_optimizer(tmp_path, calibration):
    several = {"world_size": 4, "parallel": "fsdp", "device": "a100-80gb-sxm"}
    found = predicted(
        tmp_path,
        calibration,
        case(64, row="one", device="a100-80gb-sxm"),
        case(64, row="four", **several),
    )
    assert found["four"].sheet_s < found["one"].sheet_s
    assert found["four"].predicted.value != found["one"].predicted.value
