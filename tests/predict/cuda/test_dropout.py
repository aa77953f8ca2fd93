"""Dropout keeps one byte an element, as CUDA's kernel does."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from bsprof.predict.cuda.semantics import cuda_semantics
from bsprof.predict.target import Semantics, TraceTarget

SIZE = 100_000


@pytest.mark.usefixtures("live")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layer", [torch.nn.Dropout(0.1), lambda x: F.dropout(x, 0.1)])
def test_the_mask_is_one_byte_an_element(held, layer, dtype):
    tensor = torch.ones(SIZE, dtype=dtype, requires_grad=True)
    with cuda_semantics(TraceTarget()):
        assert held(lambda: layer(tensor), tensor) == SIZE * (dtype.itemsize + 1)
        layer(tensor).sum().backward()
    assert tensor.grad.shape == (SIZE,)


@pytest.mark.usefixtures("live")
def test_in_place_the_mask_has_the_type_of_the_input(held):
    tensor = torch.ones(SIZE, requires_grad=True) * 1
    with cuda_semantics(TraceTarget()):
        assert held(lambda: F.dropout(tensor, 0.1, inplace=True), tensor) == SIZE * 4


@pytest.mark.usefixtures("live")
@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False)])
def test_nothing_is_kept_where_nothing_is_dropped(p, training):
    tensor = torch.ones(SIZE, requires_grad=True)
    with cuda_semantics(TraceTarget()):
        assert F.dropout(tensor, p, training) is tensor


@pytest.mark.usefixtures("live")
def test_dropping_everything_is_a_product(held):
    tensor = torch.ones(SIZE, requires_grad=True)
    with cuda_semantics(TraceTarget()):
        assert held(lambda: F.dropout(tensor, 1.0), tensor) == SIZE * 4 + 4


def test_attention_written_out_drops_by_the_same_kernel(live):
    attention = torch.nn.MultiheadAttention(64, 4, dropout=0.1)
    tensor = torch.ones(16, 2, 64)
    with cuda_semantics(TraceTarget()):
        attention(tensor, tensor, tensor, need_weights=True)[0].sum().backward()
    assert "native_dropout" in live.names
    assert "native_dropout_backward" in live.names


@pytest.mark.usefixtures("live")
def test_the_cpu_keeps_its_own(held):
    tensor = torch.ones(SIZE, requires_grad=True)
    with cuda_semantics(TraceTarget(semantics=Semantics.CPU)):
        assert held(lambda: F.dropout(tensor, 0.1), tensor) == SIZE * 8
