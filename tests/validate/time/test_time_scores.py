"""Scores of times: sweeps, the data sheet's roofline, halves, multiplications and bars."""

from __future__ import annotations

import pytest

from bsprof.accounting.work import Work, WorkClass
from bsprof.hardware.catalogue import find_device
from bsprof.predict.cost import Part, StepCosts
from bsprof.records import Precision, WorkloadSpec
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.datasheet import constant, kind_of, sheet_of_update, sheet_seconds
from bsprof.validate.time.gmacs import gmacs_of, other_network
from bsprof.validate.time.halves import fits
from bsprof.validate.time.sweeps import rank_correlation, sweep_score

DEVICE = find_device("a100-80gb-sxm")


def product(m=1000, n=1000, k=1000, compute="bf16", **changes) -> Work:
    flops = 2 * m * n * k
    return Work(
        work_class=changes.pop("work_class", WorkClass.MATMUL),
        compute=compute,
        flops=flops,
        model_flops=changes.pop("model_flops", flops),
        bytes=2 * (m * k + k * n + m * n),
        m=m,
        n=n,
        k=k,
        **changes,
    )


def case(**changes) -> TimeCase:
    return TimeCase(
        row="f.csv:2",
        source="somebody",
        family="resnet",
        model="resnet50",
        spec=WorkloadSpec(model="resnet50"),
        device="a100-80gb-sxm",
        micro_batch=changes.pop("micro_batch", 1),
        seconds=1.0,
        **changes,
    )


def test_a_sweep_that_is_right_up_to_a_constant_is_ranked_as_measured():
    points = [(size, 2 * (1 + size), 1.0 + size) for size in (1, 2, 4, 8, 16)]
    score = sweep_score(points)
    assert score is not None
    assert score.rank == pytest.approx(1.0)
    assert score.knee_steps == 0


def test_a_knee_that_comes_too_early_counts_grid_steps():
    measured = {1: 1.0, 2: 1.0, 4: 1.0, 8: 2.0}  # throughput 1, 2, 4, 4
    predicted = {1: 1.0, 2: 1.05, 4: 2.1, 8: 4.2}  # 1, 1.9, 1.9, 1.9
    score = sweep_score([(b, predicted[b], measured[b]) for b in measured])
    assert score is not None
    assert score.knee_steps == -1


def test_two_sizes_are_no_sweep():
    assert sweep_score([(1, 1.0, 1.0), (2, 1.5, 1.5)]) is None


def test_ranks_of_ties_are_shared_and_of_a_constant_say_nothing():
    assert rank_correlation([1.0, 2.0, 2.0], [1.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert rank_correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == 0.0
    assert rank_correlation([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)


def test_the_data_sheet_takes_the_slower_of_flops_and_bytes():
    large, small = product(4096, 4096, 4096), product(4096, 4096, 1)
    assert sheet_seconds(large, DEVICE) == pytest.approx(large.flops / 312e12)
    assert sheet_seconds(small, DEVICE) == pytest.approx(small.bytes / DEVICE.bandwidth_bytes_per_s)


def test_a_type_that_a_device_has_not_takes_the_next_wider_peak():
    old = find_device("p100-16gb-pcie")
    assert sheet_seconds(product(compute="tf32"), old) >= 2e9 / old.flops_per_s["fp32"] * 0.999


def test_an_update_has_its_micro_steps_and_a_share_of_the_optimizer():
    part = Part(works=((product(), 3),))
    costs = StepCosts(forward=part, backward=part, optimizer=part)
    once = 3 * sheet_seconds(product(), DEVICE)
    assert sheet_of_update(costs, DEVICE, accumulation_steps=4, world_size=2) == pytest.approx(
        8 * once + once / 2
    )


def test_constants_are_medians_and_precisions_of_a_kind_share_one():
    assert constant([1.0, 2.0, 9.0]) == 2.0
    assert constant([]) is None
    assert kind_of(Precision.BF16) == kind_of(Precision.AMP_FP16) != kind_of(Precision.TF32)
    assert kind_of(Precision.FP32) == kind_of(Precision.FP32_STRICT)


def test_multiplications_are_of_one_sample_with_and_without_attention_and_norms():
    inside = product(work_class=WorkClass.BATCHED_MATMUL)
    norm = Work(
        work_class=WorkClass.NORMALISATION,
        compute="fp16",
        rows=1000,
        columns=10**5,
        name="aten.native_batch_norm",
    )
    forward = Part(works=((product(), 4), (inside, 2), (norm, 1)))
    assert gmacs_of(forward, micro_batch=2) == pytest.approx((3.0, 2.0, 3.1, 2.1))


@pytest.mark.parametrize(
    ("published", "is_other"),
    [((4.0,), False), ((4.07,), False), ((4.2,), True), ((2.0, 4.0), False), ((), False)],
)
def test_a_network_is_another_when_no_published_figure_is_near(published, is_other):
    forward = Part(works=((product(), 4),))
    found = other_network(case(published_gmacs=published), forward)
    assert (found is not None) is is_other


def test_halves_depend_on_the_name_alone():
    names = [f"resnet{n}" for n in range(200)]
    chosen = [name for name in names if fits(name)]
    assert 70 < len(chosen) < 130
    assert chosen == [name for name in names if fits(name)]
