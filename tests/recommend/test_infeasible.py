"""What is said when nothing answers the question."""

import pytest
from recommend_profiles import (
    GIB,
    Point,
    PointStatus,
    affine,
    curve_profile,
    device,
    facts,
    failed_point,
    ok_point,
    profile_of,
)

from bsprof.errors import MeasurementError, NoFeasibleBatch
from bsprof.recommend import recommend_plan
from bsprof.records import Category, WorkloadSpec


def refusal(profile, **question):
    with pytest.raises(NoFeasibleBatch) as error:
        recommend_plan(profile, **({"target_batch": 64} | question))
    return error.value


def test_nothing_fits_names_the_smallest_failure_and_its_bytes():
    error = refusal(profile_of([failed_point(1), failed_point(2)], facts=facts()))
    assert error.doing == "no micro-batch size of gpt-tiny fits on test CPU"
    assert error.found == (
        "the smallest size that failed, 1, ran out of memory at a request of 512 MiB; "
        "usable memory is 3.00 GiB"
    )
    assert error.next_step.startswith("hold activations in half the bytes")
    assert "(estimated)" in error.next_step


def test_smaller_sizes_are_the_cheapest_change():
    error = refusal(profile_of([failed_point(8, PointStatus.KILLED)]))
    assert "was killed for its memory" in error.found
    assert "--micro-batch-sizes 1" in error.next_step
    error = refusal(profile_of([failed_point(8)], facts=facts(batch_norm_modules=1)))
    assert "--micro-batch-sizes 2" in error.next_step


def test_the_users_own_limit_is_named():
    error = refusal(profile_of([failed_point(1)], device=device(limit_source="option")))
    assert error.next_step == "raise --memory-limit by at least 512 MiB"


@pytest.mark.parametrize(
    ("categories", "spec", "expected"),
    [
        (
            {Category.WEIGHTS: GIB, Category.ACTIVATIONS: 2 * GIB},
            {"precision": "fp32"},
            "--precision amp-bf16",
        ),
        (
            {Category.WEIGHTS: GIB, Category.ACTIVATIONS: 2 * GIB},
            {"precision": "amp-bf16"},
            "--activation-checkpointing full",
        ),
        (
            {Category.WEIGHTS: GIB, Category.OPTIMIZER_STATE: 2 * GIB},
            {"precision": "fp32"},
            "--optimizer sgd",
        ),
        ({Category.WEIGHTS: 3 * GIB}, {"precision": "fp32"}, "--precision bf16"),
        (
            {Category.WEIGHTS: 3 * GIB},
            {"precision": "bf16", "activation_checkpointing": "full"},
            "a device with more memory",
        ),
    ],
)
def test_the_cheapest_change_that_suffices(categories, spec, expected):
    point = ok_point(1, 0.1, used_bytes=3.5 * GIB, peak_by_category_bytes=categories)
    error = refusal(profile_of([point], workload=WorkloadSpec(model="m", **spec)))
    assert expected in error.next_step


def test_what_headroom_would_fit():
    error = refusal(curve_profile([1, 2], affine(0, 1)), headroom=0.95)
    assert "needs up to 230 MiB; 154 MiB of 3.00 GiB may be used" in error.found
    assert "--headroom 92% size 1 fits" in error.next_step
    answer = recommend_plan(curve_profile([1, 2], affine(0, 1)), target_batch=64, headroom=0.92)
    assert answer.plan.micro_batch_size == 1


def test_only_after_a_cache_flush_is_not_enough():
    error = refusal(profile_of([ok_point(1, 0.1, alloc_retries=2)]))
    assert "fits only after the allocator flushed its cache" in error.found


def test_a_target_below_the_smallest_measured_size():
    error = refusal(curve_profile([8, 16], affine(0, 1)), target_batch=4)
    assert error.doing == "no measured micro-batch size is small enough for a target of 4 samples"
    assert error.next_step.endswith("--micro-batch-sizes 4")
    error = refusal(curve_profile([8, 16], affine(0, 1), failed=[4]), target_batch=8, world_size=2)
    assert "the 4 samples that each of 2 ranks has per update" in error.doing
    assert error.next_step == "use a target of at least 16"


def test_a_target_that_batch_norm_cannot_split():
    error = refusal(
        curve_profile([2], affine(0, 1), facts=facts(batch_norm_modules=1)), target_batch=7
    )
    assert "without a piece of one sample" in error.doing
    assert "multiple of 2 (nearest: 8)" in error.next_step
    near = recommend_plan(
        curve_profile([2], affine(0, 1), facts=facts(batch_norm_modules=1)),
        target_batch=7,
        tolerance=0.2,
    )
    assert near.plan.effective_batch_size == 6


def test_failures_that_are_not_about_memory():
    with pytest.raises(MeasurementError, match="usable measurement"):
        recommend_plan(profile_of([failed_point(1, PointStatus.FAILED)]), target_batch=8)
    with pytest.raises(MeasurementError, match="has no point"):
        recommend_plan(profile_of([]), target_batch=8)
    empty = Point(micro_batch_size=1, status=PointStatus.OK)
    with pytest.raises(MeasurementError, match="can be used"):
        recommend_plan(profile_of([empty]), target_batch=8)


def test_bytes_are_estimated_from_the_parameters():
    big = facts(
        parameter_count=400_000_000,
        trainable_parameter_count=400_000_000,
        parameter_bytes=1_600_000_000,
    )
    # Weights, gradients and two states are 5.96 GiB of 3: precision saves half, sgd 2.98 GiB.
    error = refusal(profile_of([failed_point(1)], facts=big))
    assert error.next_step.startswith("use an optimizer without state")
    assert "2.98 GiB" in error.next_step
