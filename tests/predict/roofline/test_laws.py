"""Laws: positive, monotone where physics is, and the same for one work and for arrays of them."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsprof.accounting.work import WorkClass
from bsprof.calibrate.fit.rows import stacked
from bsprof.calibrate.fit.works import attention, convolution, product, traffic
from bsprof.predict.roofline.groups import LAWS, law_name
from bsprof.predict.roofline.limits import Limits
from bsprof.predict.roofline.shape import shape_of

LIMITS = Limits(flops_per_s=250e12, bytes_per_s=1.7e12, l2_bytes=40 * 2**20, units=108.0)
WORKS = (
    product(1024, 512, 768, "bf16"),
    product(512, 512, 64, "fp16", batch=96),
    convolution(
        WorkClass.CONVOLUTION_FORWARD,
        "fp16",
        samples=32,
        channels_in=64,
        channels_out=128,
        pixels_in=56 * 56,
        pixels_out=28 * 28,
        area=9,
        stride=2,
    ),
    attention("flash", "bf16", samples=8, heads=12, queries=1024, head_size=64, causal=True),
    traffic(WorkClass.ELEMENTWISE, 10**8, "fp32"),
    traffic(WorkClass.SOFTMAX, 10**8, "fp32", rows=4096, columns=3000),
)


def defaults(name: str) -> dict[str, float]:
    return {key: term.default for key, term in LAWS[name].terms.items()}


def seconds(work, **changed: float) -> float:
    name = law_name(work)
    return float(LAWS[name].parts(shape_of(work), LIMITS, defaults(name) | changed).total_s)


@pytest.mark.parametrize("name", sorted(LAWS))
def test_expected_terms_lie_within_their_bounds(name):
    for term in LAWS[name].terms.values():
        assert 0 < term.low <= term.default <= term.high
        assert term.spread > 0
        assert term.transfer > 0


@pytest.mark.parametrize("name", sorted(LAWS))
def test_no_law_allows_more_than_a_tenth_above_a_ceiling(name):
    assert LAWS[name].terms["share"].high <= 1.1


@pytest.mark.parametrize("work", WORKS, ids=law_name)
def test_one_work_and_an_array_of_it_take_the_same(work):
    name = law_name(work)
    many = LAWS[name].parts(stacked([work] * 3), LIMITS, defaults(name))
    assert np.allclose(many.total_s, seconds(work), rtol=1e-12)


@pytest.mark.parametrize("work", WORKS, ids=law_name)
@pytest.mark.parametrize("factor", [1.1, 2.0, 10.0])
def test_more_to_do_never_takes_less(work, factor):
    more_bytes = dataclasses.replace(work, bytes=round(work.bytes * factor))
    assert seconds(more_bytes) >= seconds(work)
    if not work.implementation:  # attention counts from its sizes
        more_flops = dataclasses.replace(work, flops=round(work.flops * factor))
        assert seconds(more_flops) >= seconds(work)


@given(
    st.sampled_from(["m", "n", "k", "batch"]),
    st.integers(1, 4096),
    st.integers(1, 4096),
    st.integers(1, 4096),
    st.integers(1, 64),
)
def test_a_larger_product_never_takes_less(which, m, n, k, batch):
    sizes = {"m": 8 * m, "n": 8 * n, "k": 8 * k, "batch": batch}
    small = product(sizes["m"], sizes["n"], sizes["k"], "bf16", batch=sizes["batch"])
    sizes[which] *= 2
    large = product(sizes["m"], sizes["n"], sizes["k"], "bf16", batch=sizes["batch"])
    assert seconds(large) >= seconds(small) > 0


@given(st.integers(1, 10**10), st.floats(1.0, 4.0))
def test_time_grows_with_bytes_across_the_end_of_the_cache(size, factor):
    small = traffic(WorkClass.ELEMENTWISE, size, "fp32")
    large = traffic(WorkClass.ELEMENTWISE, math.ceil(size * factor), "fp32")
    gain = {"cache_gain": 6.0}
    assert seconds(large, **gain) >= seconds(small, **gain)


def test_a_small_cache_does_not_help_large_works():
    large = traffic(WorkClass.ELEMENTWISE, 10**9, "fp32")
    small = traffic(WorkClass.ELEMENTWISE, 10**6, "fp32")
    helped = [seconds(w, cache_gain=0.01) / seconds(w, cache_gain=8.0) for w in (large, small)]
    assert helped[0] == pytest.approx(1.0, abs=1e-6)
    assert helped[1] > 2.0


def test_odd_dimensions_cost_more_with_tensor_cores_than_without():
    ratios = {}
    for compute in ("bf16", "tf32", "fp32"):
        even, odd = product(4096, 4096, 4096, compute), product(4096, 4096, 4095, compute)
        ratios[compute] = seconds(odd) / seconds(even)
    assert ratios["bf16"] > 1.2
    assert ratios["tf32"] > 1.2
    assert 1.0 < ratios["fp32"] < 1.1


def test_a_causal_mask_halves_long_attention_and_hardly_short():
    def ratio(queries: int) -> float:
        full, causal = (
            attention(
                "flash",
                "bf16",
                samples=2**20 // queries,
                heads=8,
                queries=queries,
                head_size=64,
                causal=causal,
            )
            for causal in (False, True)
        )
        return seconds(causal) / seconds(full)

    assert ratio(16384) == pytest.approx(0.5, abs=0.05)
    assert ratio(128) > 0.7


def test_heads_of_72_are_computed_as_96():
    def rate(size: int) -> float:
        work = attention(
            "flash", "bf16", samples=8, heads=8, queries=8192, head_size=size, causal=False
        )
        return work.flops / seconds(work)

    assert rate(96) > rate(72) * 1.15


def test_winograd_is_for_three_by_three_moved_by_one():
    def ratio(area: int, stride: int) -> float:
        work = convolution(
            WorkClass.CONVOLUTION_FORWARD,
            "fp32",
            samples=64,
            channels_in=256,
            channels_out=256,
            pixels_in=28 * 28,
            pixels_out=28 * 28,
            area=area,
            stride=stride,
        )
        return seconds(work, winograd=2.0) / seconds(work, winograd=1.0)

    assert ratio(9, 1) < 0.7
    assert ratio(9, 2) == ratio(1, 1) == ratio(25, 1) == 1.0


def test_few_tiles_do_not_fill_the_device():
    wide = product(128, 128, 8192, "bf16")
    many = product(2048, 2048, 8192, "bf16")
    assert many.flops / seconds(many) > 5 * wide.flops / seconds(wide)


def test_unknown_rows_and_columns_have_no_effect():
    known = traffic(WorkClass.SOFTMAX, 10**9, "fp32", rows=10**7, columns=2000)
    unknown = dataclasses.replace(known, rows=0, columns=0)
    assert seconds(unknown, short_rows=0.001, long_rows=3.0) < seconds(known, long_rows=3.0)
    assert seconds(unknown, few_rows=20.0) == pytest.approx(seconds(unknown, few_rows=0.001))
