"""The loader's clock on fake loaders whose batches take known seconds of a fake clock."""

from pathlib import Path

import pytest
import torch

from bsprof.errors import MeasurementError, WorkloadError
from bsprof.measure import loader_clock
from bsprof.measure.loader_clock import fault_in_process, loader_code, rate, samples_in, time_loader


class FakeTime:
    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


class FakeLoader:
    """Batches of `size` samples, as `waits(number)` says how long each takes."""

    batch_size, drop_last = 4, False

    def __init__(self, clock, waits, *, epoch=10**9, epochs=10**9, workers=0, size=4, start_s=0.0):
        self._clock, self._waits = clock, waits
        self._epoch, self._epochs, self._start_s = epoch, epochs, start_s
        self.num_workers, self.prefetch_factor = workers, 2 if workers else None
        self.dataset = range(epoch * size)
        self._size = size

    def __iter__(self):
        self._clock.now += self._start_s
        self._epochs -= 1
        for number in range(self._epoch if self._epochs >= 0 else 0):
            self._clock.now += self._waits(number)
            yield torch.zeros(self._size, 3)


@pytest.fixture
def clock(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(loader_clock, "time", fake)
    return fake


def timed(loader, seconds=2.0, on_batch=lambda: None):
    return time_loader(loader, batch_size=4, on_batch=on_batch, seconds=seconds)


def test_the_first_batch_stands_apart(clock):
    found = timed(FakeLoader(clock, lambda n: 0.1 if n else 1.0, start_s=2.0))
    assert found.first_batch_s == pytest.approx(3.0)
    assert found.samples_per_s.value == pytest.approx(40.0)
    assert found.samples_per_s.relative_width < 1e-6
    assert (found.batch_size, found.restarts, found.epoch_batches) == (4, 0, None)


def test_workers_give_their_batches_in_rounds(clock):
    # Four at once, every second: the warm-up ends within a round, the rate is 16 a second.
    found = timed(FakeLoader(clock, lambda n: 0.0 if n % 4 else 1.0, workers=4), seconds=6.0)
    assert found.samples_per_s.value == pytest.approx(16.0)


def test_a_slow_loader_gets_time_for_one_batch_of_each_worker(clock):
    found = timed(FakeLoader(clock, lambda n: 0.0 if n % 2 else 3.0, workers=2), seconds=2.0)
    assert found.samples_per_s.value == pytest.approx(8 / 3.0)
    stuck = timed(FakeLoader(clock, lambda _n: 30.0, workers=8), seconds=2.0)
    assert stuck.samples_per_s.value == pytest.approx(4 / 30.0)


def test_an_epoch_that_ends_is_begun_again_and_costs_what_it_costs(clock):
    beats = []
    loader = FakeLoader(clock, lambda _n: 0.1, epoch=5, start_s=0.5)
    found = timed(loader, seconds=10.0, on_batch=lambda: beats.append(1))
    assert found.samples_per_s.value == pytest.approx(20.0, rel=0.05)
    assert found.epoch_batches == 5
    assert found.restarts >= 9
    assert len(beats) > 50


def test_a_stall_now_and_then_counts(clock):
    found = timed(FakeLoader(clock, lambda n: 1.1 if n % 10 == 9 else 0.1), seconds=20.0)
    assert found.samples_per_s.value == pytest.approx(20.0, rel=0.1)


def test_a_loader_that_yields_nothing(clock):
    with pytest.raises(WorkloadError, match="yields no batch") as caught:
        timed(FakeLoader(clock, lambda _n: 0.1, epoch=0))
    assert caught.value.found == "a data set of 0 samples, batch size 4, drop_last False"


def test_a_loader_that_runs_out_for_good(clock):
    with pytest.raises(WorkloadError, match="second epoch") as caught:
        timed(FakeLoader(clock, lambda _n: 0.1, epoch=1, epochs=1))
    assert "1 batches in the first" in caught.value.found
    found = timed(FakeLoader(clock, lambda _n: 0.1, epoch=9, epochs=1))
    assert found.samples_per_s.value == pytest.approx(40.0)


def test_the_interval_of_a_rate():
    steady = rate([1.0, 2.0, 3.0, 4.0], [8, 8, 8, 8], 1)
    assert steady.low == pytest.approx(8.0) == steady.high
    wild = rate([1.0, 4.0, 5.0, 8.0], [8, 8, 8, 8], 1)
    assert wild.value == pytest.approx(4.0)
    assert wild.low < 3.0
    alone = rate([1.0], [8], 4)  # fewer batches than workers
    assert alone.value == pytest.approx(8.0)
    assert alone.relative_width > 0.4


@pytest.mark.parametrize(
    ("batch", "wanted", "samples"),
    [
        (torch.zeros(8, 3), 8, 8),
        ((torch.zeros(5, 3), torch.zeros(5)), 8, 5),  # the last of an epoch
        ({"ids": torch.zeros(128, 8), "n": torch.zeros(8)}, 8, 8),  # sequence first
        (torch.zeros(128, 3), 8, 8),  # nodes of a graph
        (["a text", "another"], 8, 8),
        (torch.zeros(6), None, 6),
        ("text", None, 1),
    ],
)
def test_samples_of_a_batch(batch, wanted, samples):
    assert samples_in(batch, wanted) == samples


QUOTED = """Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/torch/utils/data/_utils/worker.py", line 349, in _loop
    data = fetcher.fetch(index)
  File "/home/me/data.py", line 12, in __getitem__
    raise ValueError("a bad sample")
  File "/home/me/lib/site-packages/x.py", line 3, in f
    raise ValueError("a bad sample")
ValueError: a bad sample
"""


def test_the_place_of_an_error_in_a_process_of_the_loader():
    assert (
        fault_in_process(QUOTED, Path("/home/me"))
        == "/home/me/data.py:12: ValueError: a bad sample"
    )
    assert fault_in_process(QUOTED, Path("/home/you")) == ""
    assert fault_in_process("a plain message", Path("/")) == ""


def test_errors_of_a_loader_say_what_to_do():
    with (
        pytest.raises(WorkloadError, match="the loader failed") as caught,
        loader_code("the loader failed with 2 workers", Path("/home/me")),
    ):
        raise ValueError(QUOTED)
    assert caught.value.found.splitlines()[0] == "/home/me/data.py:12: ValueError: a bad sample"
    killed = "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that"
    with (
        pytest.raises(MeasurementError, match="the loader failed") as short,
        loader_code("the loader failed with 2 workers", Path("/home/me")),
    ):
        raise RuntimeError(killed + " dataloader's workers are out of shared memory.")
    assert "--shm-size" in short.value.next_step
    with pytest.raises(MeasurementError), loader_code("x", Path("/")):
        raise MemoryError("no")
