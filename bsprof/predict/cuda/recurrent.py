"""Recurrent layers as CUDA runs them: whole ones by cuDNN, single cells by one fused kernel each.

On the CPU a layer is unrolled or runs another library, which keeps other tensors. What cuDNN keeps
for the backward pass (its reserve space) is not visible in a trace, so its size is a formula:
`reserve_elements`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bsprof.predict.cuda.overrides import Kernel

aten = torch.ops.aten

MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
"""cuDNN's numbers of its kinds of layers (`cudnnRNNMode_t`)."""

RESERVE_PER_LAYER = {0: 2, 1: 2, 2: 5, 3: 6}
"""Values kept for each step, sample and unit of a layer.

LSTM: four gates and the cell. GRU: six. Derived from two sizes that cuDNN returned for layers of
320 units, four deep (pytorch/pytorch#2895): 736,000,000 bytes for an LSTM and 864,000,000 for a
GRU, which are 23 and 27 values each for 25,000 steps times samples: 4 x 5 + 3 and 4 x 6 + 3.
The steps and samples are inferred, not printed there. Plain layers: the state before and after,
assumed. How far off it may be is `bsprof.predict.terms.variant`'s to say.
"""


def reserve_elements(
    mode: int, steps: int, samples: int, hidden: int, layers: int, directions: int
) -> int:
    """Values in cuDNN's reserve space of a layer in training.

    Args:
        mode: One of `MODES`.
        steps: Length of the sequence.
        samples: In the micro-batch.
        hidden: Units of one direction.
        layers: Stacked ones; between two of them the output is kept as well.
        directions: 2 for a bidirectional layer.
    """
    per_unit = RESERVE_PER_LAYER[mode] * layers + layers - 1
    return steps * samples * hidden * directions * per_unit


def _extent(input: torch.Tensor, batch_first: bool) -> tuple[int, int]:  # noqa: A002
    first, second = input.shape[0], input.shape[1]
    return (second, first) if batch_first else (first, second)


def cudnn_rnn(
    input: torch.Tensor,  # noqa: A002 - the operator's own names
    weight: Sequence[torch.Tensor],  # noqa: ARG001
    weight_stride0: int,  # noqa: ARG001
    weight_buf: torch.Tensor | None,
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    mode: int,
    hidden_size: int,
    proj_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,  # noqa: ARG001
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],  # noqa: ARG001
    dropout_state: torch.Tensor | None,  # noqa: ARG001
) -> tuple[torch.Tensor, ...]:
    """Shapes of `aten::_cudnn_rnn`, with the reserve space that torch's own leaves out."""
    directions = 2 if bidirectional else 1
    steps, samples = _extent(input, batch_first)
    width = (proj_size or hidden_size) * directions
    output = input.new_empty((steps, samples, width))
    if batch_first:
        output = output.transpose(0, 1)
    hy = hx.new_empty((num_layers * directions, samples, proj_size or hidden_size))
    cy = input.new_empty(0) if cx is None else cx.new_empty(cx.shape)
    kept = reserve_elements(mode, steps, samples, hidden_size, num_layers, directions)
    reserve_bytes = kept * input.element_size() if train else 0
    reserve = input.new_empty(reserve_bytes, dtype=torch.uint8)
    return output, hy, cy, reserve, input.new_empty(0) if weight_buf is None else weight_buf


def cudnn_rnn_backward(
    input: torch.Tensor,  # noqa: A002
    weight: Sequence[torch.Tensor],
    weight_stride0: int,  # noqa: ARG001
    weight_buf: torch.Tensor,  # noqa: ARG001
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    *rest: Any,
) -> tuple[Any, ...]:
    """Shapes of its backward pass; gradients of all weights are views into one buffer."""
    mask = rest[-1]
    if not mask[3]:
        gradients: list[torch.Tensor] = []
    else:
        buffer = input.new_empty(sum(tensor.numel() for tensor in weight))
        pieces = torch.split(buffer, [tensor.numel() for tensor in weight])
        gradients = [piece.view(tensor.shape) for piece, tensor in zip(pieces, weight, strict=True)]
    cell = None if cx is None or not mask[2] else cx.new_empty(cx.shape)
    return (
        input.new_empty(input.shape) if mask[0] else None,
        hx.new_empty(hx.shape) if mask[1] else None,
        cell,
        gradients,
    )


def fused_lstm_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,  # noqa: ARG001
    cx: torch.Tensor,
    input_bias: torch.Tensor | None = None,  # noqa: ARG001
    hidden_bias: torch.Tensor | None = None,  # noqa: ARG001
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Shapes of `aten::_thnn_fused_lstm_cell`: states, and its four gates kept. torch's own fail
    without biases."""
    return cx.new_empty(cx.shape), cx.new_empty(cx.shape), input_gates.new_empty(input_gates.shape)


def fused_gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,  # noqa: ARG001
    hx: torch.Tensor,
    input_bias: torch.Tensor | None = None,  # noqa: ARG001
    hidden_bias: torch.Tensor | None = None,  # noqa: ARG001
) -> tuple[torch.Tensor, torch.Tensor]:
    """Shapes of `aten::_thnn_fused_gru_cell`: the state, and five values a unit kept
    (`aten/src/ATen/native/cuda/RNN.cu`)."""
    samples, hidden = hx.shape
    return hx.new_empty(hx.shape), input_gates.new_empty((samples, 5 * hidden))


def fused_gru_cell_backward(
    grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor | None, ...]:
    """Shapes of its backward pass."""
    samples, hidden = grad_hy.shape
    gates = (samples, 3 * hidden)
    bias = [workspace.new_empty(3 * hidden) if has_bias else None for _ in range(2)]
    return (
        workspace.new_empty(gates),
        workspace.new_empty(gates),
        grad_hy.new_empty(grad_hy.shape),
        *bias,
    )


def _layer(
    mode: int,
    input: torch.Tensor,  # noqa: A002
    hidden: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    state, cell = hidden[0], hidden[1] if len(hidden) > 1 else None
    if torch.is_autocast_enabled("cpu"):
        # CUDA's autocast copies the weights into one flat 16-bit buffer (`AutocastRNN.cpp`).
        dtype = torch.get_autocast_dtype("cpu")
        input, state = input.to(dtype), state.to(dtype)  # noqa: A001
        cell = None if cell is None else cell.to(dtype)
        weights = [weight.to(dtype) for weight in weights]
    units = state.shape[2] if cell is None else cell.shape[2]
    projected = state.shape[2] if cell is not None and state.shape[2] != units else 0
    output, last, last_cell, _, _ = aten._cudnn_rnn(
        input, weights, 4 if has_biases else 2, input.new_empty(0), state, cell, mode, units,
        projected, layers, batch_first, dropout, train, bidirectional, [], None,
    )  # fmt: skip
    return (output, last) if cell is None else (output, last, last_cell)


def _lstm(input: Any, hx: Any, *rest: Any) -> tuple[torch.Tensor, ...]:  # noqa: A002
    return _layer(MODES["lstm"], input, hx, *rest)


def _plain(name: str) -> Kernel:
    def kernel(input: Any, hx: Any, *rest: Any) -> tuple[torch.Tensor, ...]:  # noqa: A002
        return _layer(MODES[name], input, [hx], *rest)

    return kernel


def _lstm_cell(
    input: torch.Tensor,  # noqa: A002
    hx: Sequence[torch.Tensor],
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    gates = torch.matmul(input, w_ih.t()), torch.matmul(hx[0], w_hh.t())
    state, cell, _ = aten._thnn_fused_lstm_cell(*gates, hx[1], b_ih, b_hh)
    return state, cell


def _gru_cell(
    input: torch.Tensor,  # noqa: A002
    hx: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> torch.Tensor:
    gates = torch.matmul(input, w_ih.t()), torch.matmul(hx, w_hh.t())
    state: torch.Tensor = aten._thnn_fused_gru_cell(*gates, hx, b_ih, b_hh)[0]
    return state


LAYERS: dict[str, Kernel] = {
    "lstm.input": _lstm,
    "gru.input": _plain("gru"),
    "rnn_tanh.input": _plain("rnn_tanh"),
    "rnn_relu.input": _plain("rnn_relu"),
    "lstm_cell": _lstm_cell,
    "gru_cell": _gru_cell,
}
"""For operators that are made of others."""

SHAPES: dict[str, Kernel] = {
    "_cudnn_rnn": cudnn_rnn,
    "_cudnn_rnn_backward": cudnn_rnn_backward,
    "_thnn_fused_lstm_cell": fused_lstm_cell,
    "_thnn_fused_gru_cell": fused_gru_cell,
    "_thnn_fused_gru_cell_backward": fused_gru_cell_backward,
}
"""For CUDA's own operators, which have no shapes without a device."""
