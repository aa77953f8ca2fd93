"""Every fault of a user's code, in a real worker process: the sweep survives and names it."""

import time
from pathlib import Path

import pytest

from bsprof.errors import WorkloadError
from bsprof.hardware.peaks import load_peaks
from bsprof.measure.choose import HEAP_SCATTER
from bsprof.measure.crew import Crew
from bsprof.measure.raw import Effort
from bsprof.measure.sweep import run_sweep
from bsprof.measure.wire import PhaseLimits
from bsprof.records import PointStatus, SweepPlan, WorkloadSpec
from bsprof.store import listing, load

FAULTY = Path(__file__).with_name("faulty.py")


def sweep(name, store, sizes=(2, 3, 4), **more):
    return run_sweep(
        WorkloadSpec(model=f"{FAULTY}:{name}", optimizer="sgd"),
        device="cpu",
        plan=SweepPlan(micro_batch_sizes=sizes),
        store=store,
        **more,
    )


def statuses(profile):
    return {p.micro_batch_size: p.status for p in profile.points}


def test_the_kernel_kills_the_worker(peaks_store):
    profile = sweep("is_killed", peaks_store)
    assert statuses(profile) == {
        2: PointStatus.OK,
        3: PointStatus.KILLED,
        4: PointStatus.SKIPPED,
    }
    failure = profile.point(3).failure
    assert failure.exit_status == -9
    assert profile.complete


def test_out_of_memory_in_backward(peaks_store):
    profile = sweep("out_of_memory_backward", peaks_store, sizes=(2, 3))
    assert statuses(profile) == {2: PointStatus.OK, 3: PointStatus.OOM}
    assert profile.point(3).failure.requested_bytes == 2**46


def test_an_error_in_the_users_code_is_shown_with_its_place(peaks_store):
    with pytest.raises(WorkloadError) as caught:
        sweep("raises_always", peaks_store)
    assert "a bug in the user's loss" in caught.value.found
    assert "faulty.py:" in caught.value.found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "status", "exit_status"),
    [
        ("raises", PointStatus.FAILED, None),
        ("exits", PointStatus.CRASHED, 7),
        ("segfaults", PointStatus.CRASHED, -11),
        ("out_of_memory_forward", PointStatus.OOM, None),
        ("looks_like_memory_when_large", PointStatus.OOM, None),
    ],
)
def test_faults_from_one_size_on(peaks_store, name, status, exit_status):
    profile = sweep(name, peaks_store, sizes=(2, 3))
    assert statuses(profile)[2] is PointStatus.OK
    assert statuses(profile)[3] is status
    assert profile.point(3).failure.exit_status == exit_status
    assert profile.point(2).confirmed


def test_a_worker_that_dies_after_its_result_has_given_it():
    spec = WorkloadSpec(model=f"{FAULTY}:dies_after_its_result", optimizer="sgd")
    with Crew(spec, "cpu", None) as crew:
        first = crew.measure(2, Effort(seconds=0.0))
        assert first.observed_micro_batch_size == 2
        second = crew.measure(4, Effort(seconds=0.0))  # not its fault that nobody is there
        assert second.observed_micro_batch_size == 4
        assert crew.workers_used == 2


@pytest.mark.slow
def test_a_sweep_whose_workers_die_after_each_result_is_whole(peaks_store):
    profile = sweep("dies_after_its_result", peaks_store)
    assert set(statuses(profile).values()) == {PointStatus.OK}
    assert profile.complete
    assert any(p.confirmed for p in profile.points)
    assert all(p.flops is not None for p in profile.points)


@pytest.mark.slow
def test_a_winner_that_does_not_fit_a_fresh_process_loses(peaks_store):
    profile = sweep("does_not_fit_a_fresh_process", peaks_store, sizes=(2, 8))
    assert statuses(profile) == {2: PointStatus.OK, 8: PointStatus.OOM}
    (note,) = [n for n in profile.notes if n.code == "not-confirmed"]
    assert note.micro_batch_size == 8
    assert "in a fresh process ended oom" in note.message
    assert profile.point(2).confirmed
    assert profile.point(8).failure.requested_bytes == 2**46


@pytest.mark.slow
def test_a_winner_that_fails_for_another_reason_stays_unconfirmed(peaks_store):
    profile = sweep("raises_in_a_fresh_process", peaks_store, sizes=(2, 8))
    assert statuses(profile) == {2: PointStatus.OK, 8: PointStatus.OK}
    (note,) = [n for n in profile.notes if n.code == "not-confirmed"]
    assert "ended failed" in note.message
    assert not any(p.confirmed for p in profile.points)
    assert profile.complete


@pytest.mark.slow
def test_out_of_memory_in_the_optimizer_step(peaks_store):
    profile = sweep("out_of_memory_step", peaks_store, sizes=(2, 4))
    assert PointStatus.OOM in statuses(profile).values()


@pytest.mark.slow
def test_a_hang_is_ended_by_its_phase_limit(peaks_store):
    profile = sweep("hangs", peaks_store, sizes=(2, 3), limits=PhaseLimits(step_s=5.0))
    assert statuses(profile) == {2: PointStatus.OK, 3: PointStatus.TIMEOUT}
    assert "5 s" in profile.point(3).failure.reason


@pytest.mark.slow
def test_what_the_user_prints_cannot_touch_the_result(peaks_store):
    profile = sweep("prints", peaks_store)
    assert set(statuses(profile).values()) == {PointStatus.OK}


@pytest.mark.slow
def test_a_grandchild_cannot_hold_the_sweep_and_is_ended(peaks_store, tmp_path, monkeypatch):
    note = tmp_path / "grandchild"
    monkeypatch.setenv("GRANDCHILD_FILE", str(note))
    started = time.monotonic()
    profile = sweep("leaves_a_grandchild", peaks_store, sizes=(2, 3))
    assert time.monotonic() - started < 120
    assert statuses(profile)[3] is PointStatus.CRASHED
    assert not _alive(int(note.read_text()))


@pytest.mark.slow
def test_a_message_that_is_not_about_memory_here(peaks_store):
    with pytest.raises(WorkloadError, match="failed at micro-batch"):
        sweep("looks_like_memory", peaks_store)


def _alive(pid):
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        if state == "Z":
            return False
        time.sleep(0.1)
    return True


@pytest.mark.slow
def test_a_batch_of_another_size_is_refused(peaks_store):
    with pytest.raises(WorkloadError) as caught:
        sweep("wrong_size", peaks_store)
    assert "3" in str(caught.value)
    assert "2" in str(caught.value)


@pytest.mark.slow
def test_a_real_memory_limit_is_found_and_kept(peaks_store):
    profile = run_sweep(
        WorkloadSpec(model=f"{FAULTY}:hungry", optimizer="sgd"),
        device="cpu",
        plan=SweepPlan(memory_limit_bytes=2**30, find_max=True),
        store=peaks_store,
    )
    largest = profile.max_micro_batch_size
    ran = max(p.micro_batch_size for p in profile.points if p.is_ok)
    # Upwards to 5 %; downwards it says that another process's heap may end earlier.
    assert ran <= largest.value
    assert largest.high - ran <= max(1, 0.05 * ran)
    assert (1 - HEAP_SCATTER) * ran - 1 < largest.low <= ran
    above = profile.smallest_too_big()
    assert above is not None
    assert above.micro_batch_size == largest.high + 1
    for point in profile.ok_points():
        assert point.device_used_bytes.value <= 2**30


@pytest.mark.slow
def test_no_size_above_the_data_set_is_tried(peaks_store):
    profile = run_sweep(
        WorkloadSpec(model=f"{FAULTY}:small_data", optimizer="sgd"),
        device="cpu",
        store=peaks_store,
    )
    assert max(p.micro_batch_size for p in profile.points) <= 3
    assert profile.max_micro_batch_size.value == 3


def test_the_point_is_saved_before_the_next_one_starts(peaks_store):
    seen = []

    def look(event):
        if event.kind == "start":
            seen.append(None)
        elif event.kind == "point" and event.point.micro_batch_size == 3:
            (entry,) = listing(peaks_store, reference=peaks_store / "none")
            seen.append(load(entry.path))

    profile = sweep("healthy", peaks_store, on_event=look)
    assert seen[0] is None
    assert [p.micro_batch_size for p in seen[1].points] == [2]
    assert not seen[1].complete
    assert profile.complete
    assert profile.peaks == load_peaks(peaks_store, profile.peaks.device_key)


@pytest.mark.slow
def test_crew_keeps_a_clean_worker_and_replaces_one_after_trouble():
    spec = WorkloadSpec(model=f"{FAULTY}:raises", optimizer="sgd")
    with Crew(spec, "cpu", None) as crew:
        quick = Effort(seconds=0.0)
        crew.measure(1, quick)
        crew.measure(2, quick)
        assert crew.workers_used == 1
        assert crew.measure(3, quick).status is PointStatus.FAILED
        crew.measure(2, quick)
        assert crew.workers_used == 2
