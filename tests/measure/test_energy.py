"""The energy of whole updates on a fake device whose counter rises with a fake clock."""

import pytest
import torch

from bsprof.measure import energy
from bsprof.measure.devices.select import open_device
from bsprof.measure.energy import WINDOW_S, energy_window
from bsprof.records import WorkloadSpec
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

WATTS = 250.0


class FakeTime:
    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


class FakeTraining:
    """An update of 0.3 s, the optimizer step 0.1 s of it."""

    def __init__(self, clock):
        self._clock = clock
        self.micro_steps = self.optimizer_steps = self.zeroed = 0

    def micro_step(self, _batch, _scale):
        self._clock.now += 0.2
        self.micro_steps += 1

    def optimizer_step(self):
        self._clock.now += 0.1
        self.optimizer_steps += 1

    def zero_grad(self):
        self.zeroed += 1


class FakeDevice:
    """Counts 250 W; the n-th reading is replaced by an entry of `readings` where it has one."""

    def __init__(self, clock, **readings):
        self._clock, self._readings = clock, readings
        self.read = self.synchronized = 0

    def synchronize(self):
        self.synchronized += 1

    def energy_j(self):
        self.read += 1
        counted = 1e6 + WATTS * self._clock.now
        return self._readings.get(f"reading_{self.read}", counted)


@pytest.fixture
def clock(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(energy, "time", fake)
    return fake


def test_whole_updates_fill_the_window(clock):
    training, device, beats = FakeTraining(clock), FakeDevice(clock), []
    window = energy_window(training, device, None, lambda: beats.append(1))
    assert window.updates == len(beats) == training.optimizer_steps == training.zeroed == 4
    assert window.seconds == pytest.approx(1.2)
    assert window.seconds >= WINDOW_S
    assert window.joules / window.updates == pytest.approx(0.3 * WATTS)
    assert device.synchronized == 1 + 4


def test_nothing_runs_where_nothing_counts(clock):
    training = FakeTraining(clock)
    assert energy_window(training, FakeDevice(clock, reading_1=None), None, lambda: None) is None
    assert training.micro_steps == 0


@pytest.mark.parametrize("second", [None, 1e6, 17.0])
def test_a_counter_that_is_refused_stands_still_or_begins_anew_says_nothing(clock, second):
    device = FakeDevice(clock, reading_1=1e6, reading_2=second)
    assert energy_window(FakeTraining(clock), device, None, lambda: None) is None


@pytest.mark.gpu
def test_a_real_board_takes_a_plausible_power():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    device = open_device("cuda")
    if device.energy_j() is None:
        pytest.skip("this board counts no energy")
    spec = WorkloadSpec(model="gpt-tiny")
    training = build_training(spec, resolve(spec), device.torch_device)
    window = energy_window(training, device, training.make_batch(32), lambda: None)
    assert window.updates > 1
    assert 10 < window.joules / window.seconds < 3000
