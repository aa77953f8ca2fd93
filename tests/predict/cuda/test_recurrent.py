"""Recurrent layers run as cuDNN's operator, and its reserve space has the size it was seen with."""

import pytest
import torch

from bsprof.predict.cuda.recurrent import MODES, reserve_elements
from bsprof.predict.cuda.semantics import cuda_semantics
from bsprof.predict.target import TraceTarget

STEPS, SAMPLES, WIDTH, HIDDEN = 20, 8, 32, 64


@pytest.mark.parametrize(("kind", "size"), [("lstm", 736_000_000), ("gru", 864_000_000)])
def test_reserve_sizes_that_cudnn_returned(kind, size):
    """pytorch/pytorch#2895: 320 units, four layers, fp32; 25,000 steps times samples."""
    assert 4 * reserve_elements(MODES[kind], 250, 100, 320, 4, 1) == size


def test_both_directions_keep_twice_as_much():
    one, both = (reserve_elements(MODES["lstm"], 7, 3, 5, 2, directions) for directions in (1, 2))
    assert both == 2 * one


LAYERS = [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN]


@pytest.mark.usefixtures("live")
@pytest.mark.parametrize("layer", LAYERS)
def test_output_and_reserve_are_held_until_backward(held, layer):
    net = layer(WIDTH, HIDDEN)
    tensor = torch.ones(STEPS, SAMPLES, WIDTH, requires_grad=True)
    kind = "rnn_tanh" if layer is torch.nn.RNN else layer.__name__.lower()
    with cuda_semantics(TraceTarget()):
        size = held(lambda: net(tensor)[0], tensor, *net.parameters())
    output = STEPS * SAMPLES * HIDDEN
    states = (2 if layer is torch.nn.LSTM else 1) * SAMPLES * HIDDEN
    kept = reserve_elements(MODES[kind], STEPS, SAMPLES, HIDDEN, 1, 1)
    assert size == 4 * (output + states + kept)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_forward_and_backward_are_one_operator_each(live, layer, batch_first, autocast):
    net = layer(WIDTH, HIDDEN, num_layers=2, bidirectional=True, batch_first=batch_first)
    shape = (SAMPLES, STEPS, WIDTH) if batch_first else (STEPS, SAMPLES, WIDTH)
    tensor = torch.ones(shape, requires_grad=True)
    with cuda_semantics(TraceTarget()):
        with torch.autocast("cuda", dtype=torch.float16, enabled=autocast):
            out = net(tensor)[0]
        out.sum().backward()
    assert out.shape == (*shape[:2], 2 * HIDDEN)
    assert out.dtype == (torch.float16 if autocast else torch.float32)
    assert tensor.grad.shape == shape
    assert {p.grad.dtype for p in net.parameters()} == {torch.float32}
    assert live.names.count("_cudnn_rnn") == live.names.count("_cudnn_rnn_backward") == 1


def test_projections_shorten_the_output(live):
    net = torch.nn.LSTM(WIDTH, HIDDEN, proj_size=16)
    with cuda_semantics(TraceTarget()):
        out, (state, cell) = net(torch.ones(STEPS, SAMPLES, WIDTH))
        out.sum().backward()
    assert (out.shape[2], state.shape[2], cell.shape[2]) == (16, 16, HIDDEN)
    assert "_cudnn_rnn" in live.names


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_evaluation_keeps_no_reserve(live, mode):
    net = torch.nn.LSTM(WIDTH, HIDDEN).eval()
    tensor = torch.ones(STEPS, SAMPLES, WIDTH)
    with cuda_semantics(TraceTarget()), mode():
        before = live.now
        live.restart()
        net(tensor)
        extra = live.peak - before
    assert extra == pytest.approx(4 * STEPS * SAMPLES * HIDDEN, abs=6 * 4 * SAMPLES * HIDDEN)


@pytest.mark.parametrize(
    ("cell", "gates", "kept", "states"),
    [(torch.nn.LSTMCell, 4, 4, 3), (torch.nn.GRUCell, 3, 5, 2)],
    ids=["lstm", "gru"],
)
def test_cells_keep_both_products_and_the_workspace_of_the_fused_kernel(
    live, cell, gates, kept, states
):
    net = cell(WIDTH, HIDDEN)
    with cuda_semantics(TraceTarget()):
        before = live.now
        tensor = torch.ones(SAMPLES, WIDTH)
        state = net(tensor)
        state = state[0] if isinstance(state, tuple) else state
        values = WIDTH + HIDDEN * (2 * gates + kept + states)
        assert live.now - before == 4 * SAMPLES * values
        state.sum().backward()
    assert net.weight_hh.grad.shape == (gates * HIDDEN, HIDDEN)
    name = "_thnn_fused_lstm_cell" if kept == 4 else "_thnn_fused_gru_cell"
    assert name in live.names
