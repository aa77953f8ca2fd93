"""All that libraries take from the allocator while a traced run goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bsprof.predict.cuda.scratch import kernel_scratch
from bsprof.predict.stream import Insertion, Operator, Stream
from bsprof.predict.target import Software
from bsprof.predict.targets import trace_target
from bsprof.predict.terms import cublas
from bsprof.predict.terms.convolution import (
    BACKWARD,
    FORWARD,
    Units,
    convolution_of,
    workspaces,
)
from bsprof.predict.terms.onednn import layout_copies
from bsprof.predict.terms.variant import NOMINAL, Variant
from bsprof.records import Category, DeviceSpec, Place, Precision, Quantity, Term

CONVOLUTION_NAME = "convolution workspace"
TUNING_NAME = "convolution autotuning"
SCRATCH_NAME = "kernel scratch"
LAYOUT_NAME = "copies around convolutions"

TUNING_FACTOR = 4.0
"""Bytes per byte of input and output that the largest plan of an autotuned convolution takes.
Assumed; the one published case is ResNet-50 at 6.68 GB in the first step and 2.06 GB later
(pytorch PR #124326)."""

SOURCES = {
    cublas.NAME: "aten/src/ATen/cuda/CublasHandlePool.cpp, one block per thread that multiplies",
    cublas.LT_NAME: "CUBLASLT_WORKSPACE_SIZE, pytorch #73439",
    CONVOLUTION_NAME: "factors found on public device memory of an A100, weakly identified",
    SCRATCH_NAME: "torch's kernels, read in their source: bsprof.predict.cuda.scratch",
    TUNING_NAME: "assumed, see pytorch PR #124326",
    LAYOUT_NAME: "blocked copies of oneDNN: bsprof.predict.terms.onednn",
}


def library_insertions(
    stream: Stream,
    device: DeviceSpec,
    software: Software,
    variant: Variant = NOMINAL,
    *,
    cudnn_benchmark: bool = False,
    precision: Precision = Precision.FP32,
    cublas_config: str | None = None,
) -> list[Insertion]:
    """What libraries take from the allocator at each operator, in order of position.

    Args:
        stream: The traced run.
        device: Where it would run.
        software: Whose defaults apply.
        variant: How the libraries behave.
        cudnn_benchmark: Adds what autotuning tries when it meets a convolution first. That decides
            the peak of the first step only: torch tries smaller plans when memory is short and
            empties its cache afterwards, so whether a size fits is asked without it.
        precision: Whether 32-bit convolutions may use TF32 follows from it.
        cublas_config: Value of `CUBLAS_WORKSPACE_CONFIG`; None is unset.
    """
    if device.kind == "cpu":  # MKL's own memory is not known, and is not torch's
        return list(_layout_insertions(stream))
    units = Units.of(device.compute_capability, precision)
    insertions = cublas.workspace_insertions(stream, device, software, cublas_config)
    target = trace_target(device, software)
    for operator in stream.operators:
        if operator.name in FORWARD or operator.name in BACKWARD:
            insertions += convolution_insertions(stream, operator, units, variant)
        elif scratch := round(variant.scratch * kernel_scratch(operator, target)):
            insertions.append(workspace(stream, operator, operator.position, scratch, SCRATCH_NAME))
    if cudnn_benchmark:
        insertions += tuning_insertions(stream)
    return sorted(insertions, key=lambda insertion: insertion.position)


def _layout_insertions(stream: Stream) -> Iterator[Insertion]:
    """Copies around convolutions on a processor, while they run."""
    for operator in stream.operators:
        for copies in layout_copies(operator):
            yield workspace(stream, operator, operator.position, sum(copies), LAYOUT_NAME)


def convolution_insertions(
    stream: Stream, operator: Operator, units: Units, variant: Variant
) -> Iterator[Insertion]:
    """Workspaces of one convolution, in the order its kernels run."""
    needs = workspaces(operator, units, variant)
    at = operator.position
    for amount, position in (
        (needs.forward, at),
        (needs.data, before_weight_gradient(stream, operator) if needs.weight else at),
        (needs.weight, at),
    ):
        if amount:
            yield workspace(stream, operator, position, amount, CONVOLUTION_NAME)


def tuning_insertions(stream: Stream) -> Iterator[Insertion]:
    """What autotuning allocates the first time that it meets a convolution."""
    met = set()
    for operator in stream.operators:
        convolution = convolution_of(operator)
        if convolution is None:
            continue
        shapes = tuple((operand.shape, operand.dtype) for operand in operator.inputs)
        key = (operator.name, shapes, str(operator.attributes.get("stride")))
        if key not in met:
            met.add(key)
            amount = round(TUNING_FACTOR * convolution.moved_bytes + convolution.weight.bytes)
            yield workspace(stream, operator, operator.position, amount, TUNING_NAME)


def workspace(
    stream: Stream, operator: Operator, position: int, amount: int, name: str
) -> Insertion:
    """Memory that an operator takes while it runs, on its own CUDA stream."""
    return Insertion(
        position=position,
        bytes=amount,
        until=position,
        name=name,
        category=Category.TEMPORARIES if name == SCRATCH_NAME else Category.LIBRARIES,
        stream=cublas.cuda_stream(stream, operator),
    )


def before_weight_gradient(stream: Stream, operator: Operator) -> int:
    """Position just before a convolution's gradient of the weight is allocated.

    The gradient of the input is computed first, with a workspace of its own; its allocation
    comes first as well. Falls back to the operator's position where the events say otherwise.
    """
    weight = operator.inputs[2].shape
    blocks = {operand.block for operand in operator.outputs if operand.shape == weight}
    for position in range(operator.position - 1, max(-1, operator.position - 5), -1):
        if stream.events[position] - 1 in blocks:
            return position
    return operator.position


def terms_of(
    insertions: Sequence[Insertion], others: Sequence[Sequence[Insertion]] = ()
) -> tuple[Term, ...]:
    """The largest amount of each name at one time, as a term; blocks that are kept add up.

    Args:
        insertions: Of the nominal variant.
        others: Of other variants: the ends of the intervals.
    """
    nominal = amounts_of(insertions)
    amounts = [nominal, *map(amounts_of, others)]
    return tuple(
        Term(
            name=name,
            bytes=Quantity(
                value=nominal.get(name, 0),
                low=min(found.get(name, 0) for found in amounts),
                high=max(found.get(name, 0) for found in amounts),
            ),
            place=Place.ALLOCATOR,
            source=SOURCES[name],
        )
        for name in sorted(set().union(*amounts))
    )


def amounts_of(insertions: Sequence[Insertion]) -> dict[str, int]:
    """Bytes by name: what is kept added up, of what is given back the largest."""
    kept: dict[str, int] = {}
    transient: dict[str, int] = {}
    for insertion in insertions:
        if insertion.until is None:
            kept[insertion.name] = kept.get(insertion.name, 0) + insertion.bytes
        else:
            transient[insertion.name] = max(transient.get(insertion.name, 0), insertion.bytes)
    return kept | transient
