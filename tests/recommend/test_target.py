"""What was asked: every option is checked, and has its effect."""

import pytest
from recommend_profiles import GIB, Mode, affine, curve_profile, facts

from bsprof.errors import UsageError
from bsprof.recommend import recommend_plan

PROFILE = curve_profile([1, 2, 4, 8, 16], affine(0.02, 0.005), facts=facts(tokens_per_sample=128))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a target"),
        ({"target_batch": 0}, "at least 1 sample"),
        ({"target_batch": 8, "world_size": 0}, "world size must be at least 1"),
        ({"target_batch": 8, "target_tokens": 8}, "not both"),
        ({"target_tokens": 0}, "at least 1 token"),
        ({"target_batch": 8, "tolerance": 1.0}, "tolerance"),
        ({"target_batch": 8, "tolerance": -0.1}, "tolerance"),
        ({"target_batch": 8, "tolerance": float("nan")}, "tolerance"),
        ({"target_batch": 8, "headroom": 1.0}, "headroom must be a share"),
        ({"target_batch": 8, "headroom": -0.1}, "headroom must be a share"),
        ({"target_batch": 8, "headroom": True}, "headroom must be a share"),
        ({"target_batch": 8, "headroom": -1}, "must not be negative"),
        ({"target_batch": 8, "headroom": 3 * GIB}, "leaves nothing"),
        ({"target_batch": 8, "objective": "speed"}, "unknown objective 'speed'"),
    ],
)
def test_values_that_cannot_be(options, message):
    with pytest.raises(UsageError, match=message) as caught:
        recommend_plan(PROFILE, **options)
    assert caught.value.next_step


def test_bytes_of_a_headroom_are_shown_for_people():
    with pytest.raises(UsageError) as caught:
        recommend_plan(PROFILE, target_batch=8, headroom=3 * GIB)
    assert caught.value.doing == (
        "a headroom of 3.00 GiB leaves nothing of the 3.00 GiB that are usable"
    )


def test_a_target_smaller_than_the_world_names_the_largest_world_that_works():
    with pytest.raises(UsageError) as error:
        recommend_plan(PROFILE, target_batch=3, world_size=4)
    assert "target batch of 3 cannot be shared by 4 ranks" in str(error.value)
    assert "at most 3 ranks" in error.value.next_step
    answer = recommend_plan(PROFILE, target_batch=3, world_size=3)
    assert answer.plan.pieces_by_rank == ((1,), (1,), (1,))


def test_tokens_become_samples():
    answer = recommend_plan(PROFILE, target_tokens=128 * 64)
    assert answer.target.target_batch == 64
    assert answer.target.target_tokens == 8192
    assert "target-tokens-rounded" not in {n.code for n in answer.notes}


def test_tokens_that_are_no_whole_sample_are_rounded_and_said_so():
    answer = recommend_plan(PROFILE, target_tokens=128 * 64 + 20)
    assert answer.target.target_batch == 64
    (note,) = [n for n in answer.notes if n.code == "target-tokens-rounded"]
    assert "8,212 tokens" in note.message
    assert "8,192 tokens" in note.message


def test_tokens_need_samples_with_tokens():
    with pytest.raises(UsageError, match="means nothing for gpt-tiny"):
        recommend_plan(curve_profile([1, 2], affine(0, 1)), target_tokens=128)


def test_headroom_as_share_and_as_bytes():
    # 200 MiB + 30 MiB per sample of 3072 MiB usable: 16 samples need 680 MiB.
    assert recommend_plan(PROFILE, target_batch=64).plan.micro_batch_size == 16
    share = recommend_plan(PROFILE, target_batch=64, headroom=0.8)  # 614 MiB may be used
    amount = recommend_plan(PROFILE, target_batch=64, headroom=int(0.8 * 3 * GIB))
    assert share.plan.micro_batch_size == amount.plan.micro_batch_size == 8
    assert amount.target.headroom_bytes == int(0.8 * 3 * GIB)
    assert share.target.headroom_bytes is None
    assert recommend_plan(PROFILE, target_batch=64, headroom=0).plan.micro_batch_size == 16


def test_inference_may_leave_the_target_open():
    profile = curve_profile([1, 2, 4, 8], affine(0.02, 0.005), mode=Mode.INFER)
    answer = recommend_plan(profile, world_size=2)
    assert answer.plan.micro_batch_size == 8
    assert answer.plan.pieces_by_rank == ((8,), (8,))
    assert answer.target.target_batch == 16
    with pytest.raises(UsageError, match="nothing without a target"):
        recommend_plan(profile, tolerance=0.1)
