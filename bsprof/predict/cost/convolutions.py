"""Convolutions as the products they are, with the copies that cuDNN makes of layouts."""

from __future__ import annotations

from math import prod

from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.cost.context import Call
from bsprof.predict.stream import Operand
from bsprof.predict.terms.convolution import (
    BACKWARD,
    Convolution,
    convolution_of,
    copied_operands,
)

_HALF = ("fp16", "bf16")


def convolution(call: Call) -> tuple[Work, ...]:
    """The forward pass, or the gradients that a backward pass is asked for, and what is beside."""
    found = convolution_of(call.operator)
    if found is None:
        return (call.work(WorkClass.CONVOLUTION_FORWARD),)
    rules = _Rules(call, found)
    if call.operator.name in BACKWARD:
        return rules.backward()
    return rules.forward()


class _Rules:
    def __init__(self, call: Call, convolution: Convolution) -> None:
        self._call = call
        self._convolution = convolution
        self._compute = call.multipliers.library(convolution.input)
        self._area = prod(convolution.weight.shape[2:])
        self._stride = (call.numbers("stride") or (1,))[0]

    def forward(self) -> tuple[Work, ...]:
        call, given = self._call, self._convolution
        data, weight, out = given.input, given.weight, given.output
        kind = WorkClass.CONVOLUTION_DATA if given.transposed else WorkClass.CONVOLUTION_FORWARD
        calls = self._calls
        works = [
            self._product(kind, (data, weight, out), call.hardware_flops, calls),
            *self._layouts((data,), (out,)),
            *self._laid_out(),
        ]
        if len(call.operator.inputs) > 2 and not given.is_depthwise:
            # `Convolution.cpp`, `_convolution`: the bias is added in place after cuDNN.
            works.append(call.part(WorkClass.ELEMENTWISE, bytes=2 * out.bytes))
        return tuple(works)

    def backward(self) -> tuple[Work, ...]:
        call, given = self._call, self._convolution
        data, weight, out = given.input, given.weight, given.output
        mask = call.numbers("output_mask") or tuple(
            int(o.shape in [made.shape for made in call.operator.outputs]) for o in (data, weight)
        )
        wanted = sum(mask[:2]) or 1
        flops, calls = call.hardware_flops // wanted, self._calls
        works: list[Work] = []
        if mask[0]:
            kind = WorkClass.CONVOLUTION_FORWARD if given.transposed else WorkClass.CONVOLUTION_DATA
            works += [self._product(kind, (out, weight, data), flops, calls)]
            works += self._layouts((out,), (data,))
            calls = 0
        if mask[1]:
            kind = WorkClass.CONVOLUTION_WEIGHT
            works += [self._product(kind, (out, data, weight), flops, calls)]
            works += self._layouts((data, out), ())
            calls = 0
        works += self._laid_out()
        if len(mask) > 2 and mask[2]:
            # `Convolution.cpp`, `convolution_backward`: a sum over samples and places.
            works.append(call.part(WorkClass.REDUCTION, bytes=out.bytes, calls=calls))
        return tuple(works)

    @property
    def _calls(self) -> int:
        return 0 if "compiled" in self._call.operator.attributes else 1

    def _product(
        self, kind: WorkClass, operands: tuple[Operand, ...], flops: int, calls: int
    ) -> Work:
        call, given = self._call, self._convolution
        m, n, k = self._shape(kind)
        return call.work(
            kind,
            compute=self._compute,
            flops=flops,
            model_flops=0 if call.recomputed else flops,
            bytes=sum(operand.bytes for operand in operands),
            launches=1,
            calls=calls,
            m=m,
            n=n,
            k=k,
            batch=given.groups,
            kernel_area=self._area,
            stride=self._stride,
            channels_last=given.channels_last or self._is_laid_out,
        )

    def _shape(self, kind: WorkClass) -> tuple[int, int, int]:
        """m, n and k of a group; see `Work`.

        In terms of the convolution that is not transposed: `inner` are channels of its output.
        """
        given = self._convolution
        small, large = given.output, given.input
        if given.transposed:
            small, large = large, small
        places = small.shape[0] * prod(small.shape[2:])
        inner = small.shape[1] // given.groups
        outer = large.shape[1] // given.groups * self._area
        if kind is WorkClass.CONVOLUTION_FORWARD:
            return places, inner, outer
        if kind is WorkClass.CONVOLUTION_DATA:
            return places, outer, inner
        return outer, inner, places

    def _layouts(self, read: tuple[Operand, ...], written: tuple[Operand, ...]) -> list[Work]:
        """Copies around one kernel that cuDNN makes: of what it reads, and what it writes.

        Tensor cores multiply channels-last tiles: cuDNN turns an NCHW operand and turns the result
        back; on Volta and Turing the kernel itself writes NCHW (`..._nhwc2nchw_...`, of which
        nvprof shows as many as convolutions, and no copy of an output: tensorflow#15897). 1 x 1
        kernels in 32 bit are plain products, which take either layout. Weights are small.
        """
        given = self._convolution
        if given.is_depthwise or given.channels_last or self._is_laid_out:
            return []
        if not self._on_tensor_cores or (self._compute == "tf32" and given.is_pointwise):
            return []
        turned = () if self._call.multipliers.turns_results else written
        return [self._copy(operand) for operand in (*read, *turned)]

    def _laid_out(self) -> list[Work]:
        """Copies that are made, once, of operands that do not lie with channels last as others do.

        Torch makes them of data. Inductor's graph has the weights in it, in every forward; casting
        them to 16 bit lays them out on the way.
        """
        given, is_backward = self._convolution, self._call.operator.name in BACKWARD
        copied = list(copied_operands(given, backward=is_backward))
        if self._is_laid_out and not (is_backward or given.is_half or given.is_pointwise):
            copied.append(given.weight)
        return [self._copy(operand) for operand in copied]

    @property
    def _is_laid_out(self) -> bool:
        """Whether a compiler lays everything out with channels last itself: Inductor does, save
        where convolutions are grouped (`torch/_inductor/graph.py`, `decide_layout_opt`)."""
        return "compiled" in self._call.operator.attributes and self._convolution.groups == 1

    @property
    def _on_tensor_cores(self) -> bool:
        half = self._compute in _HALF and self._call.multipliers.has_tensor_cores
        return half or self._compute == "tf32"

    def _copy(self, operand: Operand) -> Work:
        return self._call.part(
            WorkClass.LAYOUT,
            compute=self._compute,
            bytes=2 * operand.bytes,
            kernel_area=self._area,
        )
