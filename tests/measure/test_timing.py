"""The step clock on a fake training whose steps take known seconds of a fake clock."""

import pytest

from bsprof.measure import timing
from bsprof.measure.timing import StepClock


class FakeTime:
    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


class FakeTraining:
    """Each micro-step takes the next of `seconds` (the last for ever), an optimizer step 0.5."""

    optimizer = object()

    def __init__(self, clock, seconds):
        self._clock, self._seconds = clock, list(seconds)
        self.micro_steps = self.optimizer_steps = self.zeroed = 0
        self.skips = 0

    def micro_step(self, _batch, _scale):
        self._clock.now += self._seconds[min(self.micro_steps, len(self._seconds) - 1)]
        self.micro_steps += 1

    def optimizer_step(self):
        self._clock.now += 0.5
        self.optimizer_steps += 1
        return self.optimizer_steps > self.skips

    def zero_grad(self):
        self.zeroed += 1


class FakeDevice:
    def synchronize(self):
        pass


@pytest.fixture
def clock(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(timing, "time", fake)
    return fake


def step_clock(training):
    return StepClock(training, FakeDevice(), None, lambda: None)


def test_warm_up_ends_when_two_blocks_agree_and_keeps_the_second(clock):
    training = FakeTraining(clock, [9.0, 3.0, 1.0, 1.02])
    steps = step_clock(training)
    steps.warm_up()
    assert steps.micro_s == [pytest.approx(1.02)]
    assert steps.warmup_steps == 3
    assert training.zeroed == 1


def test_a_step_that_ran_just_before_counts_for_the_warm_up(clock):
    steps = step_clock(FakeTraining(clock, [1.0]))
    steps.warm_up(previous=1.05)
    assert steps.warmup_steps == 0
    assert steps.micro_s == [1.0]


def test_short_steps_are_queued_in_blocks(clock):
    training = FakeTraining(clock, [0.0001])
    steps = step_clock(training)
    steps.warm_up()
    assert steps.block_steps == 20
    steps.update()
    assert steps.micro_s[-1] == pytest.approx(0.0001)


def test_sampling_ends_when_precise_enough_or_out_of_time(clock):
    steady = step_clock(FakeTraining(clock, [1.0]))
    steady.sample(relative_error=0.02, seconds=1e9)
    assert 5 <= len(steady.micro_s) <= 6
    wild = step_clock(FakeTraining(clock, [1.0, 2.0, 1.0, 3.0, 1.0, 2.0, 1.5, 4.0]))
    wild.sample(relative_error=0.001, seconds=30.0)
    assert 5 <= len(wild.micro_s) <= 30


def test_an_optimizer_step_that_was_skipped_is_no_sample(clock):
    training = FakeTraining(clock, [1.0])
    training.skips = 2
    steps = step_clock(training)
    for _ in range(4):
        steps.update()
    assert steps.optimizer_s == [0.5, 0.5]
    assert training.zeroed == 4


def test_drift_that_the_pacer_sees_is_taken_out(clock):
    class Pacer:
        def reading(self, _block_s):
            return clock.now / 100 + 0.01

    training = FakeTraining(clock, [1.0])
    steps = StepClock(training, FakeDevice(), None, lambda: None, Pacer())
    steps.update()
    assert len(steps.pace_s) == len(steps.micro_s) == 2
    assert steps.pace_s[0] < steps.pace_s[1]
