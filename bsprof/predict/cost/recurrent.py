"""Recurrent layers in cuDNN, and transforms."""

from __future__ import annotations

from math import prod

from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.cost.context import Call


def recurrent(call: Call) -> tuple[Work, ...]:
    """All steps of all layers. A step is a product with what the step before gave.

    Launches: cuDNN's products of the input are one for each layer and direction, and each step is
    one more kernel; backward the same, and one product for the gradients of the weights.
    """
    operator = call.operator
    # Of `_cudnn_rnn_backward` too the first operand is the input.
    given = operator.inputs[0]
    weights = [o for o in operator.inputs[1:] if len(o.shape) == 2 and o.dtype == given.dtype]
    layers = max(1, call.number("num_layers", 1))
    directions = 2 if operator.attributes.get("bidirectional") else 1
    units = call.number("hidden_size") or (weights[1].shape[1] if len(weights) > 1 else 1)
    gates = weights[0].shape[0] // units if weights else 1
    # oneDNN's operator is one layer in one direction, and always has steps first.
    is_layer = "mkldnn" in operator.name
    batch_first = bool(operator.attributes.get("batch_first")) and not is_layer
    is_packed = len(given.shape) == 2
    samples = 1 if is_packed else given.shape[0 if batch_first else 1]
    steps = max(1, prod(given.shape[:-1]) // samples)
    sequences = 1 if is_layer else layers * directions
    return (
        call.work(
            WorkClass.RNN,
            compute=call.multipliers.library(given),
            m=samples,
            n=gates * units,
            k=units,
            batch=steps * sequences,
            launches=sequences * (steps + (2 if operator.backward else 1)),
        ),
    )


def transform(call: Call) -> tuple[Work, ...]:
    """A Fourier transform: `rows` transforms of `columns` points."""
    operator = call.operator
    tensors = (*operator.inputs, *operator.outputs)
    columns = max((t.shape[-1] for t in tensors if t.shape), default=0)
    points = max((prod(t.shape) for t in tensors), default=0)
    return (call.work(WorkClass.FFT, rows=points // columns if columns else 0, columns=columns),)
