"""What the measured loader means for a plan."""

from dataclasses import replace

import pytest
from recommend_profiles import affine, curve_profile, device, profile_of

from bsprof.recommend import recommend_plan
from bsprof.records import LoaderPoint, Mode, Quantity

GPU = device(kind="cuda", name="test GPU")


def loader(rates, *, size=16):
    """Points by number of workers, each rate known to within 1 %."""
    return tuple(
        LoaderPoint(
            batch_size=size,
            num_workers=workers,
            prefetch_factor=2 if workers else None,
            samples_per_s=Quantity(value=rate, low=0.99 * rate, high=1.01 * rate),
            first_batch_s=0.2,
        )
        for workers, rate in rates.items()
    )


def answered(rates, *, on=GPU, world_size=1, size=16, **more):
    """16 micro-steps of 16, 0.01 s a sample and 0.01 s: 99.6 samples/s in 2.57 s a rank."""
    profile = curve_profile(
        [4, 16], affine(0.05, 0.01), half_width=0.001, device=on, loader=loader(rates, size=size)
    )
    return recommend_plan(profile, target_batch=256 * world_size, world_size=world_size, **more)


def the_note(answer):
    (found,) = [n for n in answer.notes if n.code.startswith("loader-")]
    return found


def test_no_loader_no_note():
    assert not [n for n in answered({}).notes if "loader" in n.code]


def test_a_loader_that_keeps_up_names_the_fewest_workers():
    answer = answered({0: 60.0, 1: 55.0, 2: 105.0, 4: 210.0})
    note = the_note(answer)
    assert note.code == "loader-keeps-up"
    takes = answer.plan.samples_per_s.value
    assert note.message.startswith(f"Training takes {takes:.1f}")
    assert "at micro-batch 16, and the loader gives 105 (104 to 106) with 2 workers" in note.message
    assert note.message.endswith("the fewest measured that keep up: it would not wait for data.")
    assert note.hint == "num_workers=2, prefetch_factor=2"


def test_fewer_workers_that_may_do_are_named():
    takes = answered({}).plan.samples_per_s.value
    note = the_note(answered({1: takes, 2: 3 * takes}))
    assert note.message.endswith("1 worker may do as well: too close to tell.")
    assert note.hint.startswith("num_workers=2")
    note = the_note(answered({1: takes}))
    assert note.code == "loader-unclear"
    assert "with 1 worker: too close to tell whether it would wait" in note.message


def test_a_loader_that_is_too_slow_bounds_the_update_and_leaves_the_plan_as_it_is():
    answer = answered({0: 30.0, 1: 28.0, 2: 40.0})
    note = the_note(answer)
    assert note.code == "loader-waits"
    assert "at most 40.0 (39.6 to 40.4) with 2 workers" in note.message
    assert "the update would take at least 6.40 s (6.34 s to 6.46 s) instead of " in note.message
    assert answer.plan == answered({}).plan


def test_loading_in_the_training_process_comes_on_top():
    note = the_note(answered({0: 1000.0}))
    assert note.code == "loader-waits"
    assert "1,000 (990 to 1,010) without workers, in the same process" in note.message
    assert "it would wait for data, 256 ms (253 ms to 259 ms) in every update" in note.message
    assert the_note(answered({0: 1e6})).code == "loader-keeps-up"


def test_each_rank_has_a_loader_of_its_own():
    alone, many = the_note(answered({2: 40.0})), the_note(answered({2: 40.0}, world_size=4))
    assert "on each rank" in many.message
    assert many.message.endswith("Ranks on one machine share its cores.")
    for note in (alone, many):
        assert "at least 6.40 s" in note.message


def test_a_processor_shares_its_cores_with_the_loader():
    note = the_note(answered({1: 500.0}, on=device()))
    assert note.message.endswith("while the same cores compute, it gives less.")


def test_a_rate_from_other_batches_says_so():
    note = the_note(answered({1: 500.0}, size=5))
    assert note.message.endswith("It was measured in batches of 5.")


def test_inference_reads_well_too():
    points = curve_profile([4, 16], affine(0.05, 0.01), half_width=0.001).points
    profile = profile_of(
        points, mode=Mode.INFER, device=GPU, loader=loader({0: 30.0, 2: 40.0}, size=16)
    )
    note = the_note(recommend_plan(profile, target_batch=256))
    assert note.message.startswith("Inference takes ")
    assert "the batch would take at least 6.40 s" in note.message


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_energy_of_a_plan_follows_its_time(ranks):
    small, large = curve_profile([4, 16], affine(0.05, 0.01)).points
    points = [small, replace(large, energy_j=Quantity(value=44.0, low=40.0, high=48.0))]
    answer = recommend_plan(
        profile_of(points, device=GPU), target_batch=256 * ranks, world_size=ranks
    )
    # 0.22 s took 44 J: 200 W for 16 micro-steps of 0.21 s and 0.01 s, on every rank.
    assert answer.plan.energy_j.value == pytest.approx(200 * 3.37 * ranks)
    assert answer.plan.energy_j.low == pytest.approx(200 * 3.37 * ranks * 40 / 44)
    assert {a.plan.energy_j for a in answer.alternatives} == {None}
