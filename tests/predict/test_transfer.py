import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsprof.predict.transfer import MISFIT, Observation, correction_from, elsewhere


def seen(device_s, host_s, measured_s):
    return Observation(device_s=device_s, host_s=host_s, measured_s=measured_s)


def test_one_size_that_the_device_binds_gives_its_scale_and_leaves_the_host():
    found = correction_from([seen(0.1, 0.01, 0.12)], machine_spread=0.12)
    assert found.scale == pytest.approx(1.2, rel=0.02)
    assert found.host_scale == pytest.approx(1.0, rel=0.01)
    assert found.machine_spread == MISFIT
    assert found.host_spread is None


def test_one_size_that_the_host_binds_leaves_the_device():
    found = correction_from([seen(0.005, 0.01, 0.02)], machine_spread=0.12)
    assert found.scale == pytest.approx(1.0, rel=0.01)
    assert found.host_scale == pytest.approx(2.0, rel=0.02)
    assert found.machine_spread == 0.12
    assert found.host_spread == MISFIT


def test_several_sizes_give_both():
    found = correction_from(
        [seen(0.005, 0.01, 0.02), seen(0.1, 0.01, 0.12), seen(0.2, 0.01, 0.24)],
        machine_spread=0.12,
    )
    assert found.scale == pytest.approx(1.2, rel=0.02)
    assert found.host_scale == pytest.approx(2.0, rel=0.02)


def test_a_constant_is_found_where_two_sizes_show_one_and_it_may_be_large():
    sizes = [seen(d, 0.001, 1.1 * d + 0.1) for d in (0.02, 0.08, 0.3)]
    found = correction_from(sizes, machine_spread=0.12, constant_s=0.1)
    assert found.micro_step_s == pytest.approx(0.1, rel=0.1)
    assert found.scale == pytest.approx(1.1, rel=0.05)


@settings(max_examples=10)
@given(st.floats(0.7, 1.4), st.floats(1e-4, 1.0))
def test_a_scale_is_recovered_at_any_length_of_step(scale, device_s):
    found = correction_from(
        [seen(device_s, device_s / 20, scale * device_s)], machine_spread=0.2, constant_s=1e-9
    )
    assert math.log(found.scale) == pytest.approx(math.log(scale), abs=0.02)


def test_another_device_is_given_a_part_of_the_scale_and_no_constant():
    found = elsewhere(correction_from([seen(0.1, 0.01, 0.12)], machine_spread=0.12))
    assert 1.0 < found.scale < 1.2
    assert found.micro_step_s == 0.0
    assert found.machine_spread is None


def test_nothing_measured_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        correction_from([], machine_spread=0.1)
