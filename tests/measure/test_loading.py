"""Which settings of a loader are measured, what is told of them; real faults in real workers."""

from pathlib import Path

import pytest

from bsprof.measure import loading
from bsprof.measure.crew import Built, Trouble, answer_of
from bsprof.measure.ledger import Ledger
from bsprof.measure.loading import add_loader, batch_sizes, measure_loader, worker_counts
from bsprof.measure.supervisor import Death, Reply, Worker
from bsprof.measure.sweep import run_sweep
from bsprof.measure.wire import PhaseLimits
from bsprof.records import (
    DeviceSnapshot,
    Environment,
    Quantity,
    SweepPlan,
    WorkloadFacts,
    WorkloadKey,
    WorkloadSpec,
)
from bsprof.records.codec import from_json, to_json
from bsprof.records.profile import Profile
from bsprof.workloads.loaders import LoaderSetting

FAULTY = Path(__file__).with_name("faulty_loaders.py")
WORKLOADS = Path(__file__).with_name("faulty.py")
GIB = 2**30


class FakeWorker:
    """Answers as a loader with `cores` cores would; `trouble` in place of the n-th answer.

    Each process gives 1000 samples a second, less what 0.01 s a batch costs.
    """

    def __init__(self, *, own=None, settable=(), trouble=None, restarts=0, fixed=None):
        self.own, self.settable, self.trouble = own, list(settable), trouble or {}
        self.restarts, self.fixed = restarts, fixed
        self.asked = []
        self.phase, self.ended = "load", False

    def __call__(self, *, limits=None, on_phase=None):
        self.limits, self.on_phase = limits, on_phase
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended = True

    def tail(self):
        return ()

    def ask(self, request):
        assert request["type"] == "load"
        self.asked.append(from_json(LoaderSetting, request["setting"]))
        setting = self.asked[-1]
        if len(self.asked) in self.trouble:
            return self.trouble[len(self.asked)]
        workers = setting.num_workers if self.fixed is None else self.fixed
        size = setting.batch_size if "batch_size" in self.settable else 7
        rate = max(1, min(workers, 4)) * size / (0.01 + size / 1000)
        timing = {
            "batch_size": size,
            "samples_per_s": {"value": rate, "low": 0.99 * rate, "high": 1.01 * rate},
            "first_batch_s": 0.1,
            "restarts": self.restarts,
            "epoch_batches": 3 if self.restarts else None,
        }
        return Reply(
            payload={
                "type": "reply",
                "num_workers": workers,
                "prefetch_factor": 2 * setting.prefetch_times if workers else None,
                "timing": timing,
                "settable": self.settable,
                "own_workers": self.own,
            }
        )


ALL = ("batch_size", "num_workers", "prefetch_factor")


def death(**more):
    fields = {
        "began": True,
        "phase": "load",
        "exit_status": -9,
        "timed_out_s": None,
        "oom_kills": 0,
        "tail": (),
    }
    return Death(**(fields | more))


@pytest.fixture
def survey(monkeypatch, make_point):
    """`survey(worker, seconds_per_sample=..., cores=...)` runs against a fake worker."""

    def run(worker, *, sample_s=1e-6, cores=8, sizes=(4, 16)):
        monkeypatch.setattr(loading, "Worker", worker)
        monkeypatch.setattr(loading, "usable_cores", lambda: cores)
        points = [make_point(b, (b + 4) * sample_s, 10 * b) for b in sizes]
        lines = []
        return measure_loader("data.py:make", points, GIB, say=lines.append), lines

    return run


def settings(worker):
    return [(s.batch_size, s.num_workers, s.prefetch_times) for s in worker.asked]


def test_workers_double_until_they_gain_nothing_then_another_size_and_prefetch(survey):
    worker = FakeWorker(settable=ALL)
    report, lines = survey(worker, cores=32)
    first = [(16, n, 1) for n in (0, 1, 2, 4, 8)]  # four is as fast as it gets
    assert settings(worker) == [*first, *((4, n, 1) for n in (0, 1, 2, 4, 8)), (16, 4, 2)]
    assert [p.prefetch_factor for p in report.points][:2] == [None, 2]
    assert report.points[-1].prefetch_factor == 4
    assert report.notes == []
    assert worker.ended
    assert lines[0] == "loader, batches of 16: 615 samples/s without workers"
    assert lines[1] == "loader, batches of 16: 615 samples/s with 1 worker, prefetch 2"
    assert lines[-1] == (
        "loader: 2,462 samples/s with 4 workers, where micro-batch 16 takes 1,597: keeps up"
    )


def test_no_more_workers_than_training_can_ever_need(survey):
    worker = FakeWorker(settable=ALL)
    survey(worker, sample_s=0.0016)  # takes 500 a second: 615 is not ample, 1231 is
    assert [n for b, n, t in settings(worker) if (b, t) == (16, 1)] == [0, 1, 2]


def test_the_loaders_own_number_of_workers_is_tried_too(survey):
    worker = FakeWorker(settable=ALL, own=6)
    survey(worker, sample_s=0.0016, cores=4)
    assert [n for b, n, t in settings(worker) if (b, t) == (16, 1)] == [0, 1, 2, 6]


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        (FakeWorker(settable=()), [(16, 0, 1)]),
        (FakeWorker(settable=("batch_size",)), [(16, 0, 1), (4, 0, 1)]),
        (FakeWorker(settable=("num_workers",)), [(16, 0, 1), (16, 1, 1), (16, 2, 1)]),
        (FakeWorker(settable=ALL, fixed=3), [(16, 0, 1), (4, 0, 1)]),
    ],
)
def test_what_cannot_be_set_is_not_asked_for(survey, worker, expected):
    report, _ = survey(worker, cores=2)
    assert settings(worker) == expected
    assert len(report.points) == len(expected)


def test_epochs_that_end_are_told_where_workers_start_anew(survey):
    report, _ = survey(FakeWorker(settable=ALL, restarts=2), cores=1)
    (note,) = report.notes
    assert note.code == "loader-short-epoch"
    assert "after 3 batches" in note.message


def test_the_time_for_all_settings_is_bounded(survey, monkeypatch):
    monkeypatch.setattr(loading, "MOST_SECONDS", -1.0)
    report, lines = survey(FakeWorker(settable=ALL))
    assert report.points == []
    assert [n.code for n in report.notes] == ["loader-cut-short"]
    assert lines == []


def test_trouble_keeps_the_settings_before_it(survey):
    worker = FakeWorker(settable=ALL, trouble={3: death()})
    report, _ = survey(worker)
    assert [p.num_workers for p in report.points] == [0, 1]
    (note,) = report.notes
    assert note.code == "loader-failed"
    assert note.message.startswith("the loader failed with 2 workers: the worker was killed")
    assert note.message.endswith("; the settings before it are kept")


def test_a_hang_is_told_by_its_limit(survey):
    report, lines = survey(FakeWorker(trouble={1: death(timed_out_s=5.0)}))
    (note,) = report.notes
    assert note.message == (
        "the loader failed without workers: no sign of life for 5 s while in phase load"
    )
    assert lines == []


def test_sizes_are_the_one_to_choose_and_one_other(make_point):
    def sizes(*tried):
        return batch_sizes([make_point(b, 0.1 + 0.01 * b, 10 * b) for b in tried], GIB)

    assert sizes(1, 2, 4, 8, 16, 32, 64) == (64, 16)
    assert sizes(3, 64) == (64, 3)
    assert sizes(8) == (8,)
    assert sizes() == ()
    falling = [make_point(b, 0.1 * b**2, 10 * b) for b in (2, 4, 16)]
    assert batch_sizes(falling, GIB) == (2, 4)


def test_numbers_of_workers():
    assert worker_counts(1, None) == (0, 1)
    assert worker_counts(2, None) == (0, 1, 2)
    assert worker_counts(6, None) == (0, 1, 2, 4, 6)
    assert worker_counts(2, 16) == (0, 1, 2, 16)


def ledger(points, **plan):
    book = Ledger(spec=WorkloadSpec(model="mlp"), plan=SweepPlan(**plan), created_at="t")
    book.built = Built(
        device=DeviceSnapshot(kind="cpu", name="c", capacity_bytes=GIB, usable_bytes=GIB),
        facts=WorkloadFacts(parameter_count=1, trainable_parameter_count=1, parameter_bytes=4),
        key=WorkloadKey(sources="s", parameters="p", operators="o", options="q", software="w"),
        environment=Environment(bsprof="0", python="3", torch="2", platform="l"),
        device_key="d",
    )
    book.stored = {p.micro_batch_size: p for p in points}
    return book


def test_the_ledger_takes_points_and_notes_and_a_resumed_sweep_repeats_nothing(
    monkeypatch, make_point
):
    worker = FakeWorker(settable=(), trouble={2: death()}, restarts=1, fixed=1)
    monkeypatch.setattr(loading, "Worker", worker)
    told = []

    def add(book):
        add_loader(book, limits=PhaseLimits(load_s=3.0), say=lambda *event: told.append(event))

    add(ledger([make_point(4, 0.1, 10)]))
    assert worker.asked == []  # the plan names none
    book = ledger([make_point(4, 0.1, 10)], loader="data.py:make")
    add(book)
    assert len(book.loader) == 1
    assert {kind for kind, _ in told} == {"loader"}
    assert worker.limits.load_s == 3.0
    profile = book.profile(1.0)
    assert profile.loader == book.loader
    assert profile.plan.loader == "data.py:make"
    assert [n.code for n in profile.notes] == ["loader-short-epoch"]
    assert from_json(Profile, to_json(profile)) == profile

    again = ledger([], loader="data.py:make")
    again.resume(profile, again.built)
    add(again)
    assert len(worker.asked) == 1
    without = ledger([])
    without.resume(profile, without.built)
    assert without.loader == book.loader
    assert without.plan.loader == "data.py:make"
    other = ledger([], loader="other.py:make")
    other.resume(profile, other.built)
    assert other.loader == ()
    assert other.notes == []  # what is measured again is told again
    add(other)
    assert [n.code for n in other.notes] == ["loader-failed"]


def ask(worker, name, workers, size=8):
    return answer_of(
        worker,
        {
            "type": "load",
            "loader": f"{FAULTY}:{name}",
            "setting": to_json(LoaderSetting(batch_size=size, num_workers=workers)),
            "seconds": 0.1,
        },
    )


def test_real_loaders_and_their_faults():
    """One worker for all: an answer that is an error leaves it as it was."""
    faults = {
        "raises": (0, "the loader failed", "faulty_loaders.py:", "ValueError: a bad sample"),
        "raises_in_a_process": (1, "with 1 worker", "faulty_loaders.py:", "a bad sample"),
        "yields_nothing": (0, "yields no batch", "5 samples", "drop_last"),
    }
    with Worker(limits=PhaseLimits(load_s=60.0)) as worker:
        for name, (workers, doing, *words) in faults.items():
            found = ask(worker, name, workers)
            assert isinstance(found, Trouble), name
            assert doing in str(found.error), name
            assert all(word in found.error.found for word in words), (name, found.error)
        for name in ("noisy", "short"):
            answer = ask(worker, name, 1)
            assert isinstance(answer, dict), answer
            assert (answer["num_workers"], answer["prefetch_factor"]) == (1, 2)
            rate = from_json(Quantity, answer["timing"]["samples_per_s"])
            assert rate.low > 0
    assert answer["timing"]["epoch_batches"] == 3
    assert answer["timing"]["restarts"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hangs", "no sign of life for 5 s while in phase load"),
        ("ends_the_worker", "exit status 4"),
        ("is_killed", "with 1 worker: a process of the data loader was killed"),
        ("out_of_shared_memory", "with 1 worker: a process of the data loader was killed"),
    ],
)
def test_a_worker_that_is_lost_or_hangs(make_point, name, words):
    report = measure_loader(
        f"{FAULTY}:{name}",
        [make_point(8, 0.01, 10)],
        GIB,
        limits=PhaseLimits(load_s=5.0),
    )
    (note,) = report.notes
    assert note.code == "loader-failed"
    assert words in note.message
    assert all(p.num_workers == 0 for p in report.points)
    assert bool(note.hint) == (report.points != [])


@pytest.mark.slow
def test_processes_of_the_loader_end_with_its_worker(make_point, tmp_path, monkeypatch):
    note = tmp_path / "grandchild"
    monkeypatch.setenv("GRANDCHILD_FILE", str(note))
    report = measure_loader(
        f"{FAULTY}:leaves_a_grandchild",
        [make_point(8, 0.01, 10)],
        GIB,
        limits=PhaseLimits(load_s=5.0),
    )
    assert "no sign of life" in report.notes[0].message
    state = Path(f"/proc/{note.read_text()}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.slow
def test_processes_that_are_started_anew_find_the_users_file():
    with Worker() as worker:
        answer = ask(worker, "spawned", 2)
    assert isinstance(answer, dict), answer
    assert answer["num_workers"] == 2
    assert answer["own_workers"] == 1


@pytest.mark.slow
def test_a_whole_sweep_with_a_loader(peaks_store, monkeypatch):
    monkeypatch.setattr(loading, "SECONDS", 0.2)
    events = []
    profile = run_sweep(
        WorkloadSpec(model=f"{WORKLOADS}:healthy", optimizer="sgd"),
        device="cpu",
        plan=SweepPlan(micro_batch_sizes=(4, 16)),
        store=peaks_store,
        loader=f"{FAULTY}:healthy",
        on_event=events.append,
    )
    assert profile.complete
    assert {p.batch_size for p in profile.loader} == {4, 16}
    assert {p.num_workers for p in profile.loader} >= {0, 1}
    for point in profile.loader:
        assert point.samples_per_s.low > 0
        assert point.first_batch_s > 0
    lines = [e.text for e in events if e.kind == "loader"]
    assert len(lines) == len(profile.loader) + 1
    assert lines[-1].startswith("loader: ")


@pytest.mark.slow
def test_a_loader_that_fails_costs_a_note_and_not_the_sweep(peaks_store):
    profile = run_sweep(
        WorkloadSpec(model=f"{WORKLOADS}:healthy", optimizer="sgd"),
        device="cpu",
        plan=SweepPlan(micro_batch_sizes=(4,)),
        store=peaks_store,
        loader=f"{FAULTY}:raises",
    )
    assert profile.complete
    assert profile.loader == ()
    (note,) = [n for n in profile.notes if n.code == "loader-failed"]
    assert "faulty_loaders.py:" in note.message
    assert "a bad sample" in note.message
