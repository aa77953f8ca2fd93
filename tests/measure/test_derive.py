"""Points from raw measurements, by hand-made numbers."""

import pytest

from bsprof.measure.derive import derive_point, paced_timing, with_race
from bsprof.measure.raw import Counts, EnergyWindow, RawPoint
from bsprof.records import (
    Category,
    DevicePeaks,
    MemoryPeaks,
    Phase,
    Precision,
    Regime,
    Timing,
    WorkloadSpec,
)

SPEC = WorkloadSpec(model="mlp")
PEAKS = DevicePeaks(
    flops_per_s={"fp32": 1e12, "bf16": 4e12},
    bandwidth_bytes_per_s=1e11,
    launch_s=1e-5,
    source="probe",
    device_key="k",
)


def raw(size=8, **more):
    fields = {
        "micro_batch_size": size,
        "observed_micro_batch_size": size,
        "micro_steps_run": 5,
        "memory": MemoryPeaks(
            resident_bytes=300,
            allocated_by_phase_bytes={
                Phase.FORWARD_BACKWARD: 900,
                Phase.ACCUMULATION: 1000,
                Phase.OPTIMIZER_STEP: 500,
            },
            device_used_by_phase_bytes={
                Phase.FORWARD_BACKWARD: 1900,
                Phase.ACCUMULATION: 2000,
                Phase.OPTIMIZER_STEP: 1500,
            },
        ),
        "reserved_bytes": None,
        "first_step_reserved_bytes": None,
        "alloc_retries": 0,
        "timing": Timing(
            micro_step_samples_s=(0.10, 0.10, 0.11, 0.10, 0.10),
            optimizer_step_samples_s=(0.02, 0.02, 0.02, 0.02, 0.02),
        ),
        "resident_by_category_bytes": {Category.WEIGHTS: 100, Category.OPTIMIZER_STATE: 200},
        "gradient_bytes": 100,
    }
    return RawPoint(**{**fields, **more})


def counts(size, flops=10**9):
    return Counts(
        micro_batch_size=size,
        model_flops=flops * size + 7,
        hardware_flops=2 * (flops * size + 7),
        bytes_moved=10**7 * size,
        kernels=100,
        peak_by_category_bytes={Category.ACTIVATIONS: 60 * size, Category.GRADIENTS: 0},
    )


def test_counts_of_two_sizes_give_every_other():
    point = derive_point(raw(8), SPEC, [counts(1), counts(2)], PEAKS)
    assert point.flops.value == 8 * 10**9 + 7
    assert point.bytes_moved.value == 8 * 10**7
    assert point.arithmetic_intensity.value == pytest.approx((8e9 + 7) / 8e7)


def test_one_count_says_nothing_about_another_size():
    point = derive_point(raw(8), SPEC, [counts(1)], PEAKS)
    assert point.flops is None
    assert point.mfu is None
    assert point.regime is Regime.UNKNOWN


def test_utilization_is_against_the_ceiling_of_the_precision():
    both = [counts(1), counts(2)]
    point = derive_point(raw(8), SPEC, both, PEAKS)
    assert point.mfu.value == pytest.approx(8e9 / 0.1 / 1e12, rel=1e-6)
    assert point.hfu.value == pytest.approx(2 * point.mfu.value, rel=1e-6)
    amp = derive_point(raw(8), WorkloadSpec(model="mlp", precision=Precision.AMP_BF16), both, PEAKS)
    assert amp.mfu.value == pytest.approx(point.mfu.value / 4)


def test_throughput_is_with_accumulation_one():
    point = derive_point(raw(8), SPEC, [], None)
    assert point.samples_per_s.value == pytest.approx(8 / 0.12)
    assert point.samples_per_s.low <= point.samples_per_s.value <= point.samples_per_s.high


@pytest.mark.parametrize(
    ("launch_s", "bandwidth", "flops", "regime"),
    [
        (1e-2, 1e11, 1e12, Regime.LAUNCH),
        (1e-6, 1e9, 1e13, Regime.BANDWIDTH),
        (1e-6, 1e12, 1e11, Regime.COMPUTE),
    ],
)
def test_the_regime_is_the_longest_lower_bound(launch_s, bandwidth, flops, regime):
    peaks = DevicePeaks(
        flops_per_s={"fp32": flops},
        bandwidth_bytes_per_s=bandwidth,
        launch_s=launch_s,
        source="probe",
        device_key="k",
    )
    assert derive_point(raw(8), SPEC, [counts(1), counts(2)], peaks).regime is regime


def test_without_peaks_the_regime_is_unknown():
    point = derive_point(raw(8), SPEC, [counts(1), counts(2)], None)
    assert point.regime is Regime.UNKNOWN
    assert point.mfu is None
    assert point.flops is not None


def test_the_parts_of_the_peak_add_up():
    point = derive_point(raw(8), SPEC, [counts(1), counts(2)], PEAKS)
    assert point.peak_phase is Phase.ACCUMULATION
    assert point.peak_by_category_bytes == {
        Category.WEIGHTS: 100,
        Category.OPTIMIZER_STATE: 200,
        Category.GRADIENTS: 100,
        Category.ACTIVATIONS: 480,
        Category.TEMPORARIES: 120,
    }
    assert sum(point.peak_by_category_bytes.values()) == point.peak_allocated_bytes.value


def test_a_size_without_timed_samples_has_no_time():
    point = derive_point(raw(8, timing=Timing(micro_step_samples_s=())), SPEC, [], PEAKS)
    assert point.micro_step_s is None
    assert point.samples_per_s is None
    assert point.device_used_bytes.value == 2000


def test_energy_is_per_update_and_as_uncertain_as_its_window_is_short():
    long = EnergyWindow(joules=600.0, seconds=2.0, updates=30)
    point = derive_point(raw(8, energy=long), SPEC, [], None)
    assert point.energy_j.value == pytest.approx(20.0)
    assert (point.energy_j.low, point.energy_j.high) == (pytest.approx(19.0), pytest.approx(21.0))
    assert derive_point(raw(8), SPEC, [], None).energy_j is None


def test_race_samples_count_and_stand_apart():
    both = with_race(raw(8), Timing(micro_step_samples_s=(0.2, 0.3)))
    assert both.timing.race_samples_s == (0.2, 0.3)
    assert both.timing.micro_step_samples_s[-2:] == (0.2, 0.3)


def test_a_slow_moment_of_the_machine_is_taken_out():
    slow = Timing(micro_step_samples_s=(0.2, 0.2, 0.3), pace_samples_s=(0.004, 0.004, 0.006))
    point = derive_point(raw(8, timing=slow), SPEC, [], None, usual_pace_s=0.002)
    assert point.micro_step_s.value == pytest.approx(0.1)
    assert point.timing.clocked_samples_s == (0.2, 0.2, 0.3)
    again = paced_timing(point.timing, 0.004)  # as when a stored point meets a new usual pace
    assert again.micro_step_samples_s == pytest.approx((0.2, 0.2, 0.2))


def test_paced_race_samples_are_the_last_ones():
    race = Timing(micro_step_samples_s=(0.4, 0.2), pace_samples_s=(0.004, 0.002))
    own = Timing(micro_step_samples_s=(0.1,), pace_samples_s=(0.001,))
    both = with_race(raw(8, timing=own), race)
    point = derive_point(both, SPEC, [], None, usual_pace_s=0.001)
    assert point.timing.race_samples_s == pytest.approx((0.1, 0.1))
    assert point.timing.micro_step_samples_s == pytest.approx((0.1, 0.1, 0.1))
