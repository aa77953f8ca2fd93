"""A made training run whose bytes are known, and a made device of any capacity."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bsprof.predict.stream import Mark, Operand, Operator, Stream
from bsprof.records import Category, DeviceSpec, Phase, Quantity

MIB = 2**20
LAYERS = 4
WEIGHT = 20 * MIB
"""Of each layer; the state takes twice as much, gradients as much."""
PER_SAMPLE = 2 * MIB
"""That each layer keeps of a sample until its backward pass."""


def _run(size: int) -> Stream:
    names = ("", *(f"layers.{layer}" for layer in range(LAYERS)))
    storages: list[tuple[int, Category, int]] = []
    events: list[int] = []
    marks: list[Mark] = []
    operators: list[Operator] = []

    def allocate(amount: int, category: Category, module: int) -> int:
        storages.append((amount, category, module))
        events.append(len(storages))
        return len(storages)

    def mark(update: int, micro_step: int, phase: Phase | None) -> None:
        marks.append(Mark(position=len(events), update=update, micro_step=micro_step, phase=phase))

    def operator(name: str, phase: Phase, layer: int, output: int, *, backward: bool) -> None:
        operators.append(
            Operator(
                position=len(events),
                name=name,
                module=layer + 1,
                phase=phase,
                backward=backward,
                inputs=(),
                outputs=(Operand(shape=(size, 1024), dtype="float32", block=output - 1),),
            )
        )

    mark(-1, -1, None)
    for layer in range(LAYERS):
        allocate(WEIGHT, Category.WEIGHTS, layer + 1)
    has_state = False
    for update, window in enumerate((1, 2)):
        gradients: list[int] = []
        for micro_step in range(window):
            phase = Phase.ACCUMULATION if micro_step else Phase.FORWARD_BACKWARD
            mark(update, micro_step, phase)
            kept = []
            for layer in range(LAYERS):
                kept.append(allocate(PER_SAMPLE * size, Category.ACTIVATIONS, layer + 1))
                operator("aten.mm", phase, layer, kept[-1], backward=False)
            for layer in reversed(range(LAYERS)):
                if micro_step == 0:
                    gradients.append(allocate(WEIGHT, Category.GRADIENTS, layer + 1))
                operator("aten.mm", phase, layer, kept[layer], backward=True)
                events.append(-kept[layer])
        mark(update, -1, Phase.OPTIMIZER_STEP)
        if not has_state:
            has_state = True
            for layer in range(LAYERS):
                allocate(2 * WEIGHT, Category.OPTIMIZER_STATE, layer + 1)
        mark(update, -1, None)
        events += [-gradient for gradient in gradients]
    return Stream(
        micro_batch_size=size,
        sizes=tuple(amount for amount, _, _ in storages),
        categories=tuple(category for _, category, _ in storages),
        modules=tuple(module for _, _, module in storages),
        module_names=names,
        streams=(0,) * len(storages),
        events=tuple(events),
        marks=tuple(marks),
        operators=tuple(operators),
    )


def _card(total_bytes: float, **changes: object) -> DeviceSpec:
    values: dict[str, object] = {
        "name": "made-card",
        "title": "Made Card 1",
        "architecture": "ampere",
        "compute_capability": (8, 0),
        "compute_units": 100,
        "nominal_memory_bytes": round(total_bytes),
        "capacity_bytes": Quantity.exact(total_bytes),
        "flops_per_s": {"fp32": 1e13},
        "bandwidth_bytes_per_s": 1e12,
        "context_bytes": Quantity(value=400 * MIB, low=380 * MIB, high=450 * MIB),
    }
    return DeviceSpec(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def made_run() -> Callable[[int], Stream]:
    """`made_run(size)`: four layers, each 20 MiB of weights and 2 MiB a sample."""
    return _run


@pytest.fixture(scope="session")
def card() -> Callable[..., DeviceSpec]:
    """`card(bytes, **fields)`: a device whose context takes 400 MiB."""
    return _card
