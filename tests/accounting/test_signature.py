"""One call counted from its arguments, on real and on fake tensors alike."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from bsprof.accounting.signature import Counts, Signature

aten = torch.ops.aten


def count(func, args, kwargs=None, share=None):
    kwargs = kwargs or {}
    return Signature(func).count(args, kwargs, func(*args, **kwargs), lambda: share)


def test_a_product_has_flops_and_moves_its_border():
    a, b = torch.randn(4, 8), torch.randn(8, 16)
    assert count(aten.mm.default, (a, b)) == Counts(1024, 1024, 4 * (32 + 128 + 64))


def test_a_share_of_a_product_is_of_the_mathematics():
    a, b = torch.randn(2, 4, 8), torch.randn(2, 8, 4)
    found = count(aten.bmm.default, (a, b), share=(10, 16))
    assert (found.flops, found.hardware_flops) == (512 * 10 // 16, 512)


def test_scores_computed_again_are_of_the_hardware():
    query = torch.randn(2, 3, 4, 8)
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    out, log_sum = forward(query, query, query)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    found = count(backward, (out, query, query, query, out, log_sum, 0.0, False))
    pairs = 2 * 3 * 4 * 4
    assert found.flops == 4 * 2 * pairs * 8
    assert found.hardware_flops - found.flops == 2 * pairs * 8


def test_what_is_changed_in_place_is_read_and_written():
    x, y = torch.ones(8), torch.ones(8)
    assert count(aten.add_.Tensor, (x, y)).moved == 3 * 32
    assert count(aten.add.Tensor, (x, y)).moved == 3 * 32
    assert count(aten.copy_.default, (x, y)).moved == 2 * 32
    assert count(aten._foreach_add_.List, ([x, x], [y, y])).moved == 2 * 3 * 32


def test_an_out_tensor_is_written_and_not_read():
    x, out = torch.ones(8), torch.empty(8)
    assert count(aten.exp.out, (x,), {"out": out}).moved == 2 * 32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fake_tensors_count_like_real_ones(dtype):
    calls = {
        aten.convolution.default: (
            torch.randn(2, 4, 9, 9, dtype=dtype),
            torch.randn(8, 2, 3, 3, dtype=dtype),
            None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2,
        ),
        aten.embedding.default: (torch.randn(50, 4, dtype=dtype), torch.arange(6)),
        aten._softmax.default: (torch.randn(3, 4, dtype=dtype), -1, False),
    }  # fmt: skip
    mode = FakeTensorMode()
    for func, args in calls.items():
        fakes = tuple(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args)
        real = count(func, args)
        with mode:
            assert count(func, fakes) == real


def test_many_transforms_are_a_multiple_of_one():
    one = count(aten._fft_r2c.default, (torch.randn(1, 100), [1], 0, True)).flops
    many = count(aten._fft_r2c.default, (torch.randn(7, 100), [1], 0, True)).flops
    assert many == 7 * one == 7 * round(2.5 * 100 * 6.643856)


def test_what_an_operator_is():
    assert Signature(aten.view.default).is_silent
    assert not Signature(aten.mm.default).is_silent
    assert Signature(aten.reshape.default).decomposes
    assert Signature(torch.ops.prim.device.default).is_remark
    assert Signature(aten.mm.default).name == "aten.mm.default"
