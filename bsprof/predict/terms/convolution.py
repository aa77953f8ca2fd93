"""What cuDNN's convolutions take from the allocator while they run.

cuDNN does not publish which plan its heuristic picks, so the amounts are factors on the bytes
that a convolution reads and writes:

- 32-bit, larger than 1 x 1, multiplied as TF32: nothing forward, 1.5 (in + out) + w for the
  gradient of the input and as much for that of the weight. Found on half of the timm models with
  public device memory of an A100; the factors are weakly identified (1 to 2 do nearly as well,
  so does a forward pass with up to 0.5) and stand for no algorithm.
- The same without TF32 (before Ampere, or switched off): nothing, and half of that as the upper
  end. Of four networks in SchedTune's table the memory per sample on a V100, a T4 and a K80 is
  what the tensors alone reserve, or less.
- 16-bit in NCHW on tensor cores, which multiply channels-last tiles only: copies of input,
  output and weight with the layout changed, in every direction and for every kernel size.
- Channels last needs no copies, but for operands that do not lie so. Depthwise convolutions run by
  torch's own kernels, and 1 x 1 ones in 32 bit are matrix products, which work in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from bsprof.predict.stream import Operand, Operator
from bsprof.predict.terms.variant import Variant
from bsprof.records import Precision

HALF = frozenset({"float16", "bfloat16"})

FIRST_TENSOR_CORES = (7, 0)
FIRST_TF32 = (8, 0)

FORWARD = frozenset(
    {
        "aten.convolution",
        "aten._convolution",
        "aten.cudnn_convolution",
        "aten.cudnn_convolution_transpose",
        "aten.conv1d",
        "aten.conv2d",
        "aten.conv3d",
        "aten.conv_transpose2d",
    }
)
BACKWARD = frozenset({"aten.convolution_backward"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution as cuDNN sees it.

    Attributes:
        input, output, weight: Of the forward pass, also when this is a backward pass.
        groups: As given.
        transposed: Whether its forward pass is another one's gradient of the input.
    """

    input: Operand
    output: Operand
    weight: Operand
    groups: int
    transposed: bool

    @property
    def is_pointwise(self) -> bool:
        """Whether each output position sees one input position."""
        return all(side == 1 for side in self.weight.shape[2:])

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel has a filter of its own."""
        channels = self.input.shape[1]
        return self.groups == channels and self.groups > 1

    @property
    def is_half(self) -> bool:
        """Whether it multiplies 16-bit numbers."""
        return self.input.dtype in HALF

    @property
    def channels_last(self) -> bool:
        """Whether torch hands it to cuDNN with channels last: one such operand suffices."""
        return self.input.channels_last or self.weight.channels_last

    @property
    def moved_bytes(self) -> int:
        """Input and output."""
        return self.input.bytes + self.output.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspaces:
    """Bytes that each kernel of an operator takes while it runs, in the order they run."""

    forward: int = 0
    data: int = 0
    weight: int = 0


def convolution_of(operator: Operator) -> Convolution | None:
    """What an operator convolves; None for other operators."""
    if operator.name in FORWARD:
        if len(operator.inputs) < 2 or not operator.outputs:
            return None
        given, weight, output = operator.inputs[0], operator.inputs[1], operator.outputs[0]
    elif operator.name in BACKWARD:
        if len(operator.inputs) < 3:
            return None
        output, given, weight = operator.inputs[:3]
    else:
        return None
    if len(given.shape) < 3 or len(weight.shape) != len(given.shape):
        return None
    transposed = bool(operator.attributes.get("transposed")) or "transpose" in operator.name
    channels = given.shape[1]
    inferred = 1 if transposed else max(1, channels // max(1, weight.shape[1]))
    groups = int(operator.attributes.get("groups") or inferred)
    return Convolution(
        input=given, output=output, weight=weight, groups=groups, transposed=transposed
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Which multipliers convolutions run on.

    Attributes:
        half: Whether 16-bit convolutions run on tensor cores.
        tf32: Whether 32-bit ones do.
    """

    half: bool
    tf32: bool

    @classmethod
    def of(cls, compute_capability: tuple[int, int] | None, precision: Precision) -> Units:
        """The multipliers of a device; `fp32-strict` keeps 32-bit convolutions off them."""
        if compute_capability is None:
            return cls(half=False, tf32=False)
        return cls(
            half=compute_capability >= FIRST_TENSOR_CORES,
            tf32=compute_capability >= FIRST_TF32 and precision is not Precision.FP32_STRICT,
        )


def workspaces(operator: Operator, units: Units, variant: Variant) -> Workspaces:
    """What an operator's kernels take; all zero for one that does not convolve."""
    convolution = convolution_of(operator)
    if convolution is None:
        return Workspaces()
    forward = data = weight = layout_copies(convolution, backward=operator.name in BACKWARD)
    if not variant.smallest_plans:
        plans = kernel_bytes(convolution, units, variant)
        forward, data, weight = forward + plans[0], data + plans[1], weight + plans[2]
    if operator.name in FORWARD:
        return Workspaces(forward=forward)
    shapes = [operand.shape for operand in operator.outputs]
    return Workspaces(
        data=data if convolution.input.shape in shapes else 0,
        weight=weight if convolution.weight.shape in shapes else 0,
    )


def layout_copies(convolution: Convolution, *, backward: bool) -> int:
    """Copies with channels last that torch makes of what is not laid out like the weight.

    One operand with channels last decides for all (`cudnn_conv_suggest_memory_format`); then the
    input, and in a backward pass the gradient of the output, are made contiguous that way and
    dropped with the operator (`aten/src/ATen/native/Convolution.cpp`, `cudnn/ConvShared.cpp`). A
    group norm hands on its result with channels first, for one.
    """
    return sum(operand.bytes for operand in copied_operands(convolution, backward=backward))


def copied_operands(convolution: Convolution, *, backward: bool) -> tuple[Operand, ...]:
    """Those that torch copies; see `layout_copies`."""
    if convolution.is_depthwise or not convolution.channels_last:
        return ()
    operands = (convolution.input, convolution.output) if backward else (convolution.input,)
    return tuple(operand for operand in operands if _differs(operand))


def _differs(operand: Operand) -> bool:
    """Whether a tensor lies otherwise than with channels last; with one channel, or one pixel, both
    orders are the same."""
    return not operand.channels_last and operand.shape[1] > 1 and prod(operand.shape[2:]) > 1


def kernel_bytes(convolution: Convolution, units: Units, variant: Variant) -> tuple[int, int, int]:
    """Workspace of the forward pass, of the gradient of the input and of that of the weight."""
    if convolution.is_depthwise:
        return 0, 0, 0
    moved, weight = convolution.moved_bytes, convolution.weight.bytes
    if convolution.is_half and units.half:
        copies = 0 if convolution.channels_last else moved + weight
        return copies, copies, copies
    if convolution.is_pointwise or convolution.channels_last:
        return 0, 0, 0
    share = 1.0 if units.tf32 else variant.plain_share

    def amount(factor: float) -> int:
        return round(share * (factor * moved + weight)) if factor else 0

    forward, data = amount(variant.forward_factor), amount(variant.data_factor)
    if convolution.transposed:
        forward, data = data, forward
    return forward, data, amount(variant.weight_factor)
