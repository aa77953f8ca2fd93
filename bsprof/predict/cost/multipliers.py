"""Which type of numbers multipliers take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bsprof.predict.stream import Operand
from bsprof.predict.terms.convolution import FIRST_TENSOR_CORES, FIRST_TF32
from bsprof.records import Precision

_TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
_WIDTH = {"fp16": 0, "bf16": 0, "fp32": 1, "fp64": 2}
PLAIN = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Multipliers:
    """Switches of a run, as far as they decide how 32-bit numbers are multiplied.

    Attributes:
        compute_capability: Of the device; None where it is not one of NVIDIA's.
        precision: Of the workload. PyTorch's default is TF32 for convolutions and recurrent layers
            (`torch.backends.cudnn.allow_tf32`) and not for products
            (`torch.backends.cuda.matmul.allow_tf32`).
    """

    compute_capability: tuple[int, int] | None
    precision: Precision

    @property
    def has_tf32(self) -> bool:
        """Whether the device can."""
        return self.compute_capability is not None and self.compute_capability >= FIRST_TF32

    @property
    def has_tensor_cores(self) -> bool:
        """Whether 16-bit products run on them."""
        return self.compute_capability is not None and self.compute_capability >= FIRST_TENSOR_CORES

    @property
    def turns_results(self) -> bool:
        """Whether cuDNN's kernels on tensor cores write NCHW themselves: Volta's and Turing's."""
        return self.has_tensor_cores and not self.has_tf32

    @staticmethod
    def stored(operand: Operand) -> str:
        """Of work that multiplies nothing."""
        return _TYPES.get(operand.dtype, PLAIN)

    def product(self, operand: Operand) -> str:
        """Of matrix products and attention on operands like this one."""
        found = _TYPES.get(operand.dtype, operand.dtype)
        is_tf32 = found == PLAIN and self.has_tf32 and self.precision is Precision.TF32
        return "tf32" if is_tf32 else found

    def library(self, operand: Operand) -> str:
        """Of cuDNN's convolutions and recurrent layers."""
        found = _TYPES.get(operand.dtype, operand.dtype)
        allowed = self.has_tf32 and self.precision is not Precision.FP32_STRICT
        return "tf32" if found == PLAIN and allowed else found


def widest(operands: Iterable[Operand]) -> str:
    """Type of the widest floating operand; of none, `fp32`."""
    found = [_TYPES[o.dtype] for o in operands if o.dtype in _TYPES]
    return max(found, key=_WIDTH.__getitem__) if found else PLAIN
