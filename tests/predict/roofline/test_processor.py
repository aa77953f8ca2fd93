"""The laws of a processor: everything adds up, and what was not timed follows what is like it."""

from __future__ import annotations

import dataclasses

import pytest

from bsprof.accounting.work import Work, WorkClass
from bsprof.hardware.calibration import packaged_calibration, with_device
from bsprof.predict.roofline import Roofline
from bsprof.predict.roofline.processor import OPTIMIZER_CALL, ProcessorRoofline
from bsprof.predict.roofline.processor_laws import (
    CALL,
    MEMORY,
    PAGES,
    SPREAD,
    counts_of,
    is_free,
    law_names,
)
from bsprof.records import DeviceSpec, Quantity, Regime
from bsprof.records.calibration import Ceiling, Coefficient, DeviceCalibration, LawTerms

CPU = DeviceSpec(
    name="cpu-test-2-threads",
    title="Test",
    kind="cpu",
    architecture="cpu",
    compute_units=2,
    nominal_memory_bytes=2**34,
    capacity_bytes=Quantity.exact(2**34),
    flops_per_s={"fp32": 1e11},
    bandwidth_bytes_per_s=2e10,
    l2_bytes=2**23,
)


def law(spread: float = 0.1, **prices: float) -> LawTerms:
    terms = {name: Coefficient(value=price) for name, price in prices.items()}
    return LawTerms(terms={**terms, SPREAD: Coefficient(value=spread)}, rows=9)


LAWS = {
    "matmul": law(multiplications=2e-11, results=1e-10, call=5e-6),
    "convolution_forward/dense": law(multiplications=3e-11, images=1e-10, call=2e-5),
    "elementwise": law(bytes=3e-11, memory_bytes=5e-11),
    "elementwise/gelu": law(0.3, bytes=2e-10, memory_bytes=0.0, call=1e-6),
    "copy": law(bytes=5e-11, memory_bytes=6e-11),
    PAGES: law(memory_bytes=6e-10),
    OPTIMIZER_CALL: law(call=4e-6),
}


@pytest.fixture
def roofline():
    own = DeviceCalibration(
        device=CPU.name,
        spec=CPU,
        flops_per_s={"fp32": Ceiling(value=9e10, spread=0.05)},
        bandwidth_bytes_per_s=Ceiling(value=2e10, spread=0.05),
        host_call_s=Coefficient(value=1e-5),
        host_backward_call_s=Coefficient(value=8e-6),
        launch_s=Coefficient(value=0.0),
        step_s=Coefficient(value=0.0),
        laws=LAWS,
        machine_spread=0.06,
        sources=("560 benchmarks",),
    )
    return Roofline.of(CPU, with_device(packaged_calibration(), own))


def elementwise(name: str, size: int = 1_000_000, **changes) -> Work:
    values = {"bytes": size, "name": f"aten.{name}"} | changes
    return Work(work_class=WorkClass.ELEMENTWISE, compute="fp32", **values)


def product(**changes) -> Work:
    values = {"m": 100, "n": 200, "k": 300, "flops": 12_000_000, "bytes": 560_000}
    return Work(work_class=WorkClass.MATMUL, compute="fp32", name="aten.mm", **(values | changes))


def test_a_processor_has_a_roofline_of_its_own(roofline):
    assert isinstance(roofline, ProcessorRoofline)
    assert roofline.provenance == ("560 benchmarks",)
    assert roofline.machine_spread == 0.06


def test_a_product_is_the_sum_of_its_prices_and_its_dispatch(roofline):
    expected = 6e6 * 2e-11 + 20_000 * 1e-10 + 5e-6 + 1e-5
    assert roofline.seconds(product()) == pytest.approx(expected)
    assert roofline.seconds(product(backward=True)) == pytest.approx(expected - 2e-6)
    assert roofline.seconds(product(calls=0)) == pytest.approx(expected - 1e-5)


def test_the_host_has_nothing_to_do_beside(roofline):
    assert roofline.host_seconds([product(), elementwise("add")]) == 0
    assert roofline.step_seconds == 0


def test_what_the_cache_does_not_hold_costs_on_top(roofline):
    hot, cold = elementwise("add"), elementwise("add", memory_bytes=400_000)
    more = roofline.seconds(cold) - roofline.seconds(hot)
    assert more == pytest.approx(400_000 * 5e-11)


@pytest.mark.parametrize(
    ("name", "law_of"),
    [("gelu", "gelu"), ("gelu_", "gelu"), ("gelu_tanh", "gelu"), ("cos", ""), ("unheard_of", "")],
)
def test_operators_follow_what_is_most_like_them(roofline, name, law_of):
    price = 2e-10 if law_of else 3e-11
    call = 1e-6 if law_of else 0.0
    found = roofline.seconds(elementwise(name)) - 1e-5
    assert found == pytest.approx(1e6 * price + call)


def test_what_no_law_covers_is_priced_by_the_ceilings(roofline):
    own = dataclasses.replace(roofline._own, laws={})
    bare = Roofline.of(CPU, with_device(packaged_calibration(), own))
    expected = 12e6 / 9e10 + 560_000 / 2e10 + 1e-5
    assert bare.seconds(product()) == pytest.approx(expected)


def test_an_optimizers_calls_are_cheaper(roofline):
    assert roofline.seconds(elementwise("add_", 0)) == pytest.approx(4e-6)
    assert roofline.seconds(elementwise("add_", 0, backward=True)) == pytest.approx(8e-6)


def test_copies_around_convolutions_are_in_their_law(roofline):
    layout = Work(work_class=WorkClass.LAYOUT, compute="bf16", bytes=10**9, calls=0)
    bias = elementwise("convolution", calls=0)
    assert is_free(layout)
    assert is_free(bias)
    assert roofline.seconds(layout) == roofline.seconds(bias) == 0


def test_pages_have_a_price_and_no_dispatch(roofline):
    pages = Work(
        work_class=WorkClass.OTHER, compute="fp32", name=PAGES, calls=0, memory_bytes=10**8
    )
    assert roofline.seconds(pages) == pytest.approx(0.06)
    assert roofline.bound(pages) is Regime.BANDWIDTH


def test_what_binds(roofline):
    large = product(m=3000, flops=360_000_000)
    assert roofline.bound(large) is Regime.COMPUTE
    assert roofline.bound(elementwise("add", 10**8)) is Regime.BANDWIDTH
    assert roofline.bound(elementwise("add", 64)) is Regime.LAUNCH


def test_time_never_falls_as_work_grows(roofline):
    for field in ("m", "n", "k", "flops", "memory_bytes"):
        previous = 0.0
        for size in (1, 10, 100, 1000, 10_000):
            seconds = roofline.seconds(product(**{field: size}))
            assert seconds >= previous, field
            previous = seconds


def test_a_class_errs_less_than_its_single_shapes(roofline):
    assert roofline.spread(WorkClass.MATMUL) == pytest.approx(0.04)
    assert 0.04 <= roofline.spread(WorkClass.ELEMENTWISE) < 0.2
    assert roofline.spread(WorkClass.FFT) == 0.2  # nothing is known


def test_convolutions_by_kind():
    def names(**changes):
        values = {"kernel_area": 9, "m": 100, "n": 32, "k": 9 * 16} | changes
        return law_names(Work(work_class=WorkClass.CONVOLUTION_FORWARD, compute="fp32", **values))

    assert names()[0] == "convolution_forward/dense"
    assert names(kernel_area=1, k=16)[0] == "convolution_forward/pointwise"
    assert names(batch=16, n=1, k=9)[0] == "convolution_forward/depthwise"
    assert names(batch=4, n=8, k=9 * 4)[0] == "convolution_forward/grouped"
    assert names(channels_last=True)[0] == "convolution_forward/dense/last"
    assert names(batch=4)[-1] == "convolution_forward/dense"


def test_sixteen_bits_have_laws_of_their_own_and_fall_back():
    work = Work(work_class=WorkClass.SOFTMAX, compute="bf16", name="aten._softmax")
    names = law_names(work)
    assert names[0] == "softmax/_softmax/half"
    assert "softmax/_softmax" in names


def test_every_law_prices_calls_and_memory():
    for kind in WorkClass:
        counts = counts_of(Work(work_class=kind, compute="fp32", flops=2, bytes=8))
        assert counts[CALL] == 1
        assert MEMORY in counts
        assert all(count >= 0 for count in counts.values())
