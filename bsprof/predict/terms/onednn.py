"""Copies that oneDNN makes around a convolution on a processor, in a layout of its own.

A convolution of plain NCHW tensors reads copies of its operands in blocks of channels and copies
its result back (`aten/src/ATen/native/mkldnn/Conv.cpp` by way of ideep). They are allocated by
torch and freed before the operator ends.
"""

from __future__ import annotations

from bsprof.predict.stream import Operator
from bsprof.predict.terms.convolution import BACKWARD, FORWARD, convolution_of


def layout_copies(operator: Operator) -> tuple[tuple[int, ...], ...]:
    """Bytes of the copies that live together around each kernel; none where none are made."""
    if operator.name not in FORWARD and operator.name not in BACKWARD:
        return ()
    convolution = convolution_of(operator)
    if convolution is None or convolution.channels_last:
        return ()
    image, result = convolution.input.bytes, convolution.output.bytes
    weight = convolution.weight.bytes
    if operator.name in BACKWARD:
        return (result, weight, image), (image, result, weight)
    return ((image, weight, result),)
