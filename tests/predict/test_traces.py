"""How few traces serve for all sizes, with a worker that is made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bsprof.errors import UsageError, WorkloadError
from bsprof.measure.crew import Trouble
from bsprof.predict.target import Protocol, TraceTarget
from bsprof.predict.traces import FIRST_SIZE, Traces
from bsprof.predict.worker import TracedSize
from bsprof.records import Failure, Note, PointStatus, WorkloadFacts, WorkloadKey, WorkloadSpec

SPEC = WorkloadSpec(model="made")
HERE, ALIKE, OTHER = (TraceTarget(compute_capability=(8, minor)) for minor in (0, 6, 9))


class FakeWorker:
    """Traces made runs; `failing` sizes fail, `odd` sizes run one operator more."""

    def __init__(self, made_run):
        self.made_run = made_run
        self.failing = {}
        self.odd = set()
        self.batch_norm_modules = 0
        self.asked = []

    def trace(self, spec, size, target, protocol, others):
        assert (spec, target, protocol) == (SPEC, HERE, Protocol())
        self.asked.append(size)
        if size in self.failing:
            return self.failing[size]
        stream = self.made_run(size)
        if size in self.odd:
            stream = replace(stream, operators=(*stream.operators, stream.operators[0]))
        return TracedSize(
            stream=stream,
            facts=WorkloadFacts(
                parameter_count=1,
                trainable_parameter_count=1,
                parameter_bytes=4,
                batch_norm_modules=self.batch_norm_modules,
            ),
            key=WorkloadKey(sources="", parameters="", operators="", options="", software=""),
            notes=(Note(code="made", message="made up"),),
            shared_by=tuple(other for other in others if other == ALIKE),
            seconds=1.5,
        )


def trouble(reason, *, phase="trace", status=PointStatus.FAILED, error=None):
    return Trouble(status=status, failure=Failure(reason=reason, phase=phase), error=error)


@pytest.fixture
def worker(made_run):
    return FakeWorker(made_run)


def traces(worker, **options):
    return Traces(worker, SPEC, HERE, Protocol(), **options)


def test_two_traces_serve_for_all_sizes(worker, made_run):
    found = traces(worker)
    found.prepare()
    assert worker.asked == [FIRST_SIZE, 1]
    assert found.scales
    for size in (1, 2, 7, FIRST_SIZE, 100, 4096):
        assert found.at(size) == made_run(size)
    assert worker.asked == [FIRST_SIZE, 1]
    assert found.seconds == 3.0
    assert found.notes == (Note(code="made", message="made up"),)


def test_a_size_of_one_may_run_otherwise(worker, made_run):
    worker.odd = {1}
    found = traces(worker)
    found.prepare()
    assert worker.asked == [FIRST_SIZE, 1, 2]
    assert found.scales
    assert found.at(3) == made_run(3)
    assert len(found.at(1).operators) == len(made_run(1).operators) + 1


def test_sizes_that_do_not_scale_are_traced_each_and_a_note_says_why(worker):
    worker.odd = {FIRST_SIZE}
    found = traces(worker)
    found.prepare()
    assert not found.scales
    assert [note.code for note in found.notes] == ["made", "traced-each"]
    found.at(5)
    found.at(5)
    assert worker.asked == [FIRST_SIZE, 1, 2, 5]


def test_batch_normalisation_and_failures_at_one_begin_at_two(worker):
    worker.batch_norm_modules = 3
    found = traces(worker)
    found.prepare()
    assert worker.asked == [FIRST_SIZE, 2]
    assert found.smallest() == 2
    assert found.smallest(cap=1) == 1

    worker.batch_norm_modules = 0
    worker.failing = {1: trouble("a mean of one")}
    other = traces(worker)
    other.prepare()
    assert other.scales
    assert other.smallest() == 2
    with pytest.raises(WorkloadError, match="failed at micro-batch 1"):
        other.at(1)


def test_explicit_sizes_are_traced_at_their_ends(worker, made_run):
    found = traces(worker)
    found.prepare([4, 32, 8])
    assert worker.asked == [32, 4]
    assert found.at(8) == made_run(8)
    single = traces(worker)
    single.prepare([8])
    assert worker.asked[2:] == [8]
    assert not single.scales


def test_a_cap_bounds_what_is_traced(worker):
    found = traces(worker)
    found.prepare(cap=6)
    assert worker.asked == [6, 1]
    only = traces(worker)
    only.prepare(cap=1)
    assert worker.asked[2:] == [1]
    assert only.notes == (Note(code="made", message="made up"),)


def test_a_data_set_too_small_for_the_first_size_is_traced_at_less(worker):
    worker.failing = {FIRST_SIZE: trouble("cannot make 16", error=WorkloadError("cannot make"))}
    found = traces(worker)
    found.prepare()
    assert worker.asked == [FIRST_SIZE, 4, 10, 13, 14, 15, 1]
    assert found.cap == FIRST_SIZE - 1
    assert found.scales


def test_what_fails_everywhere_is_told_as_it_failed_first(worker):
    worker.failing = {size: trouble(f"wrong at {size}") for size in (16, 4, 1)}
    with pytest.raises(WorkloadError) as caught:
        traces(worker).prepare()
    assert "failed at micro-batch 16" in str(caught.value)
    assert "wrong at 16" in str(caught.value)


@pytest.mark.parametrize(
    "problem",
    [
        trouble("no such option", error=UsageError("no such option")),
        trouble("cannot build", phase="build"),
        trouble("killed", status=PointStatus.KILLED),
    ],
)
def test_what_no_smaller_size_mends_is_told_at_once(worker, problem):
    worker.failing = {FIRST_SIZE: problem}
    with pytest.raises(Exception, match=r"no such option|cannot build|ran out of memory"):
        traces(worker).prepare()
    assert worker.asked == [FIRST_SIZE]


def test_targets_that_agree_on_every_trace_share_them(worker):
    found = traces(worker, others=(ALIKE, OTHER))
    found.prepare()
    assert found.serve(HERE)
    assert found.serve(ALIKE)
    assert not found.serve(OTHER)


def test_nothing_is_computed_above_the_largest_size_that_can_be_traced(worker, made_run):
    worker.failing = {size: trouble(f"wrong at {size}") for size in range(9, 65)}
    found = traces(worker)
    found.prepare()
    assert found.cap == 8
    assert found.reason(9) == "wrong at 9"
    assert found.scales
    assert found.at(8) == made_run(8)
    with pytest.raises(WorkloadError, match="failed at micro-batch 64"):
        found.at(64)
