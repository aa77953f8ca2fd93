"""Operators that take as long as their bytes: what of their shape a law may ask for."""

from __future__ import annotations

from math import prod

from bsprof.accounting.operators import OperatorClass
from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.cost.context import Call
from bsprof.predict.stream import Operand

CLASSES: dict[str, WorkClass] = {
    OperatorClass.ELEMENTWISE: WorkClass.ELEMENTWISE,
    OperatorClass.SCAN: WorkClass.SCAN_OR_SORT,
    OperatorClass.SORT: WorkClass.SCAN_OR_SORT,
    OperatorClass.INDEX: WorkClass.INDEX,
    OperatorClass.POOLING: WorkClass.POOLING,
    OperatorClass.RESAMPLE: WorkClass.RESAMPLE,
    OperatorClass.RANDOM: WorkClass.RANDOM,
    OperatorClass.COPY: WorkClass.COPY,
    OperatorClass.OPTIMIZER: WorkClass.OPTIMIZER_FUSED,
    OperatorClass.COMMUNICATION: WorkClass.COLLECTIVE,
    OperatorClass.UNCOUNTED: WorkClass.OTHER,
}
"""Those that need no more than their class."""


def plain(call: Call, work_class: WorkClass) -> tuple[Work, ...]:
    """Bytes, and no more."""
    if "lists" in call.operator.attributes and work_class is not WorkClass.OPTIMIZER_FUSED:
        work_class = WorkClass.OPTIMIZER_FOREACH
    variant = call.operator.attributes.get("approximate")
    name = call.operator.name if variant in (None, "none") else f"{call.operator.name}_{variant}"
    return (call.work(work_class, name=name),)


def reduction(call: Call) -> tuple[Work, ...]:
    """`rows` results, of `columns` elements each."""
    if "lists" in call.operator.attributes:
        return plain(call, WorkClass.OPTIMIZER_FOREACH)
    read = max((prod(o.shape) for o in call.operator.inputs), default=0)
    rows = max((prod(o.shape) for o in call.operator.outputs), default=0)
    columns = read // rows if rows else 0
    return (call.work(WorkClass.REDUCTION, rows=rows, columns=columns),)


def normalisation(call: Call) -> tuple[Work, ...]:
    """Layer norms: `rows` of `columns`. Batch norms: a row is a channel, of all samples."""
    name = call.operator.name.rpartition(".")[2]
    backward = name.endswith(("_backward", "_backward_elemt", "_backward_reduce"))
    kind = WorkClass.NORMALISATION_BACKWARD if backward else WorkClass.NORMALISATION
    data = _largest(call.operator.inputs)
    elements = prod(data.shape)
    columns = prod(call.numbers("normalized_shape"))
    if "batch_norm" in name and len(data.shape) > 1:
        columns = elements // max(1, data.shape[1])
    elif "group_norm" in name:
        rows = call.number("N") * call.number("group")
        columns = elements // rows if rows else data.shape[-1]
    elif not call.numbers("normalized_shape"):
        columns = data.shape[-1] if data.shape else 1
    return (
        call.work(
            kind,
            compute=_of_data(call, data),
            rows=elements // max(1, columns),
            columns=columns,
            channels_last=data.channels_last,
        ),
    )


def softmax(call: Call) -> tuple[Work, ...]:
    """`rows` of `columns`: along the dimension it sums over."""
    data = _largest(call.operator.inputs)
    dimension = call.operator.attributes.get("dim")
    columns = data.shape[int(dimension)] if data.shape and dimension is not None else 1
    return (
        call.work(WorkClass.SOFTMAX, rows=prod(data.shape) // max(1, columns), columns=columns),
    )


def loss(call: Call) -> tuple[Work, ...]:
    """`rows` of `columns`: samples or tokens, and classes."""
    data = _largest((*call.operator.inputs, *call.operator.outputs))
    columns = data.shape[1] if len(data.shape) > 1 else 1
    return (call.work(WorkClass.LOSS, rows=prod(data.shape) // max(1, columns), columns=columns),)


def embedding(call: Call) -> tuple[Work, ...]:
    """Rows of a table; backward a gradient of the whole table.

    Backward on CUDA (`EmbeddingBackwardKernel.cu`) the table's gradient is filled with zeros, and
    the rows that were looked up are added to it: they are written on top of what the rule counts.
    """
    operator = call.operator
    if not operator.name.endswith("_backward"):
        table = operator.outputs[0] if operator.outputs else operator.inputs[0]
        return (call.work(WorkClass.EMBEDDING, **_rows(table)),)
    grad = operator.inputs[0]
    return (call.work(WorkClass.EMBEDDING_BACKWARD, bytes=call.moved + grad.bytes, **_rows(grad)),)


def _rows(operand: Operand) -> dict[str, int]:
    columns = operand.shape[-1] if operand.shape else 1
    return {"rows": prod(operand.shape) // max(1, columns), "columns": columns}


def _largest(operands: tuple[Operand, ...]) -> Operand:
    return max(operands, key=lambda o: prod(o.shape))


def _of_data(call: Call, data: Operand) -> str:
    """Type of what is normalised; weights may be wider."""
    return call.multipliers.stored(data)
