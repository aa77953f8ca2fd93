import pytest

from bsprof.hardware.catalogue import find_device
from bsprof.predict.communication import (
    LATENCY_S,
    NVLINK_SHARE,
    Link,
    Traffic,
    link_of,
    traffic,
)
from bsprof.predict.stream import Mark, Stream
from bsprof.records import Category, Phase, Precision

GIB = 2**30
LINK = Link(bus_bytes_per_s=100e9, spread=0.1, source="given")


def stream_of(weight_bytes, gradient_bytes):
    """One weight, one gradient that is alive when the optimizer steps."""
    return Stream(
        micro_batch_size=1,
        sizes=(weight_bytes, gradient_bytes),
        categories=(Category.WEIGHTS, Category.GRADIENTS),
        modules=(0, 0),
        module_names=("",),
        streams=(0, 0),
        events=(1, 2, -2),
        marks=(
            Mark(position=0, update=-1, micro_step=-1, phase=None),
            Mark(position=1, update=0, micro_step=0, phase=Phase.FORWARD_BACKWARD),
            Mark(position=2, update=0, micro_step=-1, phase=Phase.OPTIMIZER_STEP),
        ),
        operators=(),
    )


def test_the_fastest_link_of_a_device_is_taken_and_a_given_one_wins():
    h100 = find_device("h100-80gb-sxm")
    found = link_of(h100)
    assert found.bus_bytes_per_s == pytest.approx(NVLINK_SHARE * h100.links_bytes_per_s["nvlink"])
    assert "nvlink" in found.source
    assert link_of(h100, 5e9) == Link(bus_bytes_per_s=5e9, spread=0.05, source="given")
    assert "pcie" in link_of(find_device("rtx-4090")).source


def test_an_all_reduce_moves_its_bytes_twice_less_a_ranks_share():
    found = traffic(stream_of(GIB, GIB), "ddp", 8, LINK, Precision.FP32)
    assert found.reduce_s == pytest.approx(2 * 7 / 8 * GIB / 100e9, abs=2 * LATENCY_S)
    assert found.gather_s == 0.0
    assert found.optimizer_share == 1.0


def test_sharding_gathers_parameters_and_divides_the_optimizer():
    fsdp = traffic(stream_of(GIB, GIB), "fsdp", 4, LINK, Precision.FP32)
    assert fsdp.gather_s == pytest.approx(2 * 3 / 4 * GIB / 100e9, abs=4 * LATENCY_S)
    assert fsdp.optimizer_share == 0.25
    halves = traffic(stream_of(GIB, GIB), "fsdp", 4, LINK, Precision.AMP_BF16)
    assert halves.gather_s == pytest.approx(fsdp.gather_s / 2, rel=0.01)
    zero1 = traffic(stream_of(GIB, GIB), "zero1", 4, LINK, Precision.FP32)
    assert zero1.gather_s == 0.0
    assert zero1.update_s == pytest.approx(3 / 4 * GIB / 100e9, abs=2 * LATENCY_S)


def test_a_reduction_hides_behind_the_backward_pass_but_for_its_end():
    found = Traffic(reduce_s=0.05, last_s=0.01)
    assert found.synchronising_s(0.3, 0.2) == pytest.approx(0.31)
    assert found.micro_step_s(0.3) == 0.3
    slow = Traffic(reduce_s=1.0, last_s=0.01)
    assert slow.synchronising_s(0.3, 0.2) == pytest.approx(0.1 + 0.99 + 0.01)
    assert slow.synchronising_s(0.3, 0.2, slower=2.0) > slow.synchronising_s(0.3, 0.2)


def test_what_is_reduced_in_every_micro_step_costs_in_every_one():
    assert Traffic(reduce_s=0.5, last_s=0.01, reduces_always=True).micro_step_s(0.3) > 0.5
    assert Traffic(gather_s=0.5).micro_step_s(0.3) == 0.5
