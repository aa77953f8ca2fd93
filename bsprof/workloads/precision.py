"""How numbers are held and multiplied: global switches, autocast, weight types."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from bsprof.records import Note, Precision

WEIGHT_TYPES = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
AUTOCAST_TYPES = {Precision.AMP_BF16: torch.bfloat16, Precision.AMP_FP16: torch.float16}


def set_switches(precision: Precision) -> tuple[Note, ...]:
    """Set TF32 for matrix products and convolutions as the precision says.

    `fp32` and everything that does not speak of TF32 is PyTorch's default: products in fp32,
    convolutions may use TF32. PyTorch's old and new switches exclude each other, so each field is
    set on its own, and one that cannot be is told in a note.
    """
    matmul = "high" if precision is Precision.TF32 else "highest"
    convolution = precision is not Precision.FP32_STRICT
    notes = []
    try:
        torch.set_float32_matmul_precision(matmul)
    except RuntimeError as error:
        notes.append(_not_set("matrix products", error))
    try:
        torch.backends.cudnn.allow_tf32 = convolution
    except RuntimeError as error:
        notes.append(_not_set("convolutions", error))
    return tuple(notes)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A fresh context for one forward pass."""
    dtype = AUTOCAST_TYPES.get(precision)
    if dtype is None:
        return nullcontext()
    return torch.autocast(device.type, dtype=dtype)


def _not_set(what: str, error: RuntimeError) -> Note:
    return Note(
        code="precision-switch",
        message=f"the TF32 switch for {what} could not be set: {str(error).splitlines()[0]}",
        hint="the workload sets torch's newer fp32_precision switches; let it set all of them",
    )
