"""Copies of inputs that are not contiguous live as long as the kernel, forward and backward."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from bsprof.predict.cuda.semantics import cuda_semantics
from bsprof.predict.target import TraceTarget

SHAPE = (4, 64, 16, 16)
BYTES = 4 * 4 * 64 * 16 * 16


def peak_of(live, call):
    before = live.now
    live.restart()
    with cuda_semantics(TraceTarget()):
        out = call()
    return out, live.peak - before


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("function", [lambda x: F.layer_norm(x, (64,)), lambda x: x.softmax(-1)])
def test_forward_copies_once(live, function, contiguous):
    tensor = torch.ones(SHAPE).permute(0, 2, 3, 1).requires_grad_()
    if contiguous:
        tensor = tensor.detach().contiguous().requires_grad_()
    out, peak = peak_of(live, lambda: function(tensor))
    assert peak == pytest.approx(BYTES * (1 if contiguous else 2), rel=0.04)
    assert out.grad_fn is not None
    assert live.names.count("clone") == (0 if contiguous else 1) + contiguous


def test_backward_of_layer_norm_copies_input_and_gradient(live):
    tensor = torch.ones(SHAPE, requires_grad=True)
    with cuda_semantics(TraceTarget()):
        out = F.layer_norm(tensor.permute(0, 2, 3, 1), (64,)).permute(0, 3, 1, 2)
        grad = torch.ones(SHAPE)
        before = live.now
        live.restart()
        out.backward(grad)
    # Both copies, the gradient of the input, and that gradient in the layout of the parameter.
    assert live.peak - before == pytest.approx(3 * BYTES, rel=0.04)
    assert tensor.grad.shape == SHAPE


def attention_clones(live, positions_first, grad_positions_first):
    def made(first):
        if first:
            return torch.ones(2, 32, 4, 16, dtype=torch.bfloat16).transpose(1, 2)
        return torch.ones(2, 4, 32, 16, dtype=torch.bfloat16)

    qkv = [made(positions_first).requires_grad_() for _ in range(3)]
    with cuda_semantics(TraceTarget()):
        out = F.scaled_dot_product_attention(*qkv)
        grad = made(grad_positions_first)
        live.names.clear()
        out.backward(grad)
    return live.names.count("clone")


def test_attention_takes_output_and_gradient_with_heads_after_positions(live):
    assert attention_clones(live, True, True) == 0
    assert attention_clones(live, True, False) == 1
    assert attention_clones(live, False, True) == 1
    assert attention_clones(live, False, False) == 2
