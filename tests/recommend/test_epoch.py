"""Updates of an epoch, what is over, and schedules in optimizer steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recommend_profiles import affine, curve_profile

from bsprof.errors import UsageError
from bsprof.recommend.advice import Situation
from bsprof.recommend.document import recommendation_document
from bsprof.recommend.epoch import epoch_notes, epoch_of
from bsprof.recommend.pieces import exact_pieces
from bsprof.recommend.plan import recommend_plan

SIZES = (1, 2, 4, 8, 16, 32)


def pieces(target, world_size=1, size=32):
    found = exact_pieces(target, world_size, size, lambda _: True)
    assert found is not None
    return found


@given(
    samples=st.integers(1, 5000),
    target=st.integers(8, 700),
    world_size=st.integers(1, 8),
    epochs=st.integers(1, 4),
)
def test_no_sample_is_lost_or_counted_twice(samples, target, world_size, epochs):
    epoch = epoch_of(samples, pieces(target, world_size), epochs=epochs)
    assert epoch.whole_updates * target + epoch.left_samples == samples
    assert 0 <= epoch.left_samples < target
    if epoch.last_pieces:
        ran = sum(kind.ranks * kind.samples for kind in epoch.last_pieces)
        assert ran == epoch.left_samples
        assert sum(kind.ranks for kind in epoch.last_pieces) == world_size
    else:
        assert epoch.left_samples < world_size
    assert epoch.schedule_updates <= epoch.carried_updates
    assert epoch.carried_updates == epochs * samples // target


def test_the_last_window_in_words():
    epoch = epoch_of(1000, pieces(96), epochs=10, warmup_share=0.05)
    window, length = epoch_notes(epoch)
    assert window.code == "partial-window"
    assert "10 whole updates and 40 samples over" in window.message
    assert "4.0 % of an epoch" in window.message
    assert "n / 40" in window.message
    assert "shrink that gradient to 42 %" in window.message
    assert length.message.startswith(
        "In optimizer steps: 10 per epoch, 100 in 10 epochs (104 where samples are carried over), "
        "of them 5 of warm-up"
    )


def test_too_few_samples_to_give_every_rank_one():
    (window, _) = epoch_notes(epoch_of(100, pieces(48, 8)))
    assert "too few to give every rank a piece" in window.message


def test_a_target_above_the_data_set():
    (note,) = epoch_notes(epoch_of(100, pieces(256), epochs=10))
    assert note.code == "target-above-dataset"
    assert "at most 100" in note.hint
    assert "3 whole updates in 10 epochs" in note.hint


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"warmup_share": 1.5}])
def test_what_cannot_be_is_refused(bad):
    with pytest.raises(UsageError):
        epoch_of(100, pieces(10), **bad)


def test_the_document_of_a_plan_holds_it():
    profile = curve_profile(SIZES, affine(0.02, 0.005))
    answer = recommend_plan(
        profile,
        target_batch=100,
        world_size=2,
        situation=Situation(dataset_size=1009, epochs=3, warmup_share=0.1),
    )
    epoch = recommendation_document(answer)["epoch"]
    assert epoch["updates_per_epoch"] == 10
    assert epoch["left_samples"] == 9
    assert epoch["last_pieces_by_rank"] == [[5], [4]]
    assert epoch["schedule_updates"] == 30
    assert epoch["warmup_updates"] == 3
    assert recommendation_document(recommend_plan(profile, target_batch=100))["epoch"] is None
