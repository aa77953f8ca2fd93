"""What a sweep keeps, and what it takes over from an interrupted one."""

from dataclasses import replace

import pytest

from bsprof.measure.crew import Built, Trouble
from bsprof.measure.ledger import Ledger
from bsprof.measure.raw import RawPoint
from bsprof.records import (
    Category,
    DeviceSnapshot,
    Environment,
    Failure,
    MemoryPeaks,
    Phase,
    PointStatus,
    Quantity,
    SweepPlan,
    Timing,
    WorkloadFacts,
    WorkloadKey,
    WorkloadSpec,
)

GIB = 2**30
KEY = WorkloadKey(sources="s", parameters="p", operators="o", options="q", software="w")


def built(usable=3 * GIB):
    return Built(
        device=DeviceSnapshot(
            kind="cpu", name="cpu", capacity_bytes=8 * GIB, usable_bytes=usable, threads=2
        ),
        facts=WorkloadFacts(parameter_count=1, trainable_parameter_count=1, parameter_bytes=4),
        key=KEY,
        environment=Environment(bsprof="0", python="3", torch="2", platform="l"),
        device_key="d",
    )


def ledger(**more):
    return Ledger(
        spec=WorkloadSpec(model="mlp"), plan=SweepPlan(), created_at="t", built=built(), **more
    )


def raw(size, seconds=0.1, pace=0.001, inherits=False):
    return RawPoint(
        micro_batch_size=size,
        observed_micro_batch_size=size,
        micro_steps_run=5,
        memory=MemoryPeaks(
            resident_bytes=1,
            allocated_by_phase_bytes={Phase.FORWARD_BACKWARD: 10 * size},
            device_used_by_phase_bytes={Phase.FORWARD_BACKWARD: 100 + 10 * size},
        ),
        reserved_bytes=None,
        first_step_reserved_bytes=None,
        alloc_retries=0,
        timing=Timing(micro_step_samples_s=(seconds,) * 5, pace_samples_s=(pace,) * 5),
        resident_by_category_bytes={Category.WEIGHTS: 4},
        gradient_bytes=4,
        inherits_heap=inherits,
    )


def trouble(status):
    return Trouble(status=status, failure=Failure(reason="r", phase="step"))


def test_a_size_that_fails_later_loses_its_numbers():
    book = ledger()
    book.add_raw(raw(4))
    book.add_trouble(4, trouble(PointStatus.OOM))
    (point,) = book.points()
    assert point.status is PointStatus.OOM
    assert not book.ran_any()


def test_a_note_is_kept_once_for_each_size():
    book = ledger()
    book.note("c", "m", size=1)
    book.note("c", "m", size=1)
    book.note("c", "m", size=2)
    assert [n.micro_batch_size for n in book.notes] == [1, 2]


def test_sizes_measured_at_another_pace_compare():
    book = ledger()
    book.add_raw(raw(4, seconds=0.4, pace=0.001))
    book.add_raw(raw(8, seconds=1.6, pace=0.002))  # the machine ran at half its speed
    small, large = book.points()
    assert large.micro_step_s.value == pytest.approx(2 * small.micro_step_s.value)


def interrupted(*troubles, usable=3 * GIB):
    book = ledger()
    book.built = built(usable)
    book.add_raw(raw(4, seconds=0.4, pace=0.001))
    for size, status in troubles:
        book.add_trouble(size, trouble(status))
    book.largest = Quantity(value=40, low=38, high=42)
    return book.profile(10.0)


def test_resume_keeps_points_time_and_the_largest_size():
    book = ledger()
    book.resume(interrupted(), book.built)
    book.add_raw(raw(8, seconds=1.6, pace=0.002))
    profile = book.profile(5.0)
    assert [p.micro_batch_size for p in profile.points] == [4, 8]
    assert profile.duration_s == 15.0
    assert book.largest.value == 40
    small, large = profile.points
    assert large.micro_step_s.value == pytest.approx(2 * small.micro_step_s.value)


@pytest.mark.parametrize("status", [PointStatus.KILLED, PointStatus.CRASHED, PointStatus.TIMEOUT])
def test_resume_tries_chance_deaths_again(status):
    book = ledger()
    book.resume(interrupted((64, status)), book.built)
    assert not book.has(64)


def test_resume_tries_what_did_not_fit_again_only_with_more_memory():
    old = interrupted((64, PointStatus.OOM))
    same, more = ledger(), ledger()
    same.resume(old, same.built)
    assert same.has(64)
    more.resume(old, built(8 * GIB))
    assert not more.has(64)
    assert more.largest is None


def test_a_profile_says_which_times_are_unstable():
    book = ledger()
    wild = replace(
        raw(4), timing=Timing(micro_step_samples_s=(0.1, 0.2, 0.1, 0.3, 0.1), pace_samples_s=())
    )
    book.add_raw(wild)
    codes = {n.code for n in book.profile(1.0).notes}
    assert "unstable-timing" in codes
    book.add_raw(raw(4))
    assert "unstable-timing" not in {n.code for n in book.profile(1.0).notes}
