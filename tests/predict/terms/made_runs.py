"""Hand-made streams and devices."""

from __future__ import annotations

from bsprof.predict.stream import Mark, Operand, Operator, Stream
from bsprof.records import Category, DeviceSpec, Phase, Quantity

MIB = 2**20


def device(capability=(8, 0), **changes):
    values = {
        "name": "made",
        "title": "Made",
        "architecture": "made",
        "compute_capability": capability,
        "compute_units": 1,
        "nominal_memory_bytes": 2**34,
        "capacity_bytes": Quantity.exact(2**34),
        "flops_per_s": {"fp32": 1e13},
        "bandwidth_bytes_per_s": 1e12,
    }
    return DeviceSpec(**{**values, **changes})


def operator(name, position, *, inputs=(), outputs=(), backward=False, module=0, **attributes):
    return Operator(
        position=position,
        name=name,
        module=module,
        phase=Phase.FORWARD_BACKWARD,
        backward=backward,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        attributes=attributes,
    )


def tensor(*shape, dtype="float32", block=-1, channels_last=False):
    return Operand(shape=shape, dtype=dtype, block=block, channels_last=channels_last)


def stream(operators=(), storages=(), events=None, marks=(), names=("",), streams=None):
    """`storages`: (size, category, module) each; by default they are allocated in order."""
    count = len(storages)
    return Stream(
        micro_batch_size=1,
        sizes=tuple(size for size, _, _ in storages),
        categories=tuple(category for _, category, _ in storages),
        modules=tuple(module for _, _, module in storages),
        module_names=tuple(names),
        streams=tuple(streams or [0] * count),
        events=tuple(range(1, count + 1) if events is None else events),
        marks=tuple(marks),
        operators=tuple(operators),
    )


def training(layers=4, layer_bytes=64 * MIB, root_bytes=16 * MIB, windows=(1, 2)):
    """A model of equal blocks with Adam, no activations: what ZeRO's arithmetic counts.

    Names: `""`, `head`, `layers.N`, `layers.N.linear`. Per update and micro-step each layer runs
    forward and backward; gradients are made in backward and dropped after the step.
    """
    names = ["", "head"]
    for layer in range(layers):
        names += [f"layers.{layer}", f"layers.{layer}.linear"]
    owners = [1] + [names.index(f"layers.{layer}.linear") for layer in range(layers)]
    sizes = [root_bytes] + [layer_bytes] * layers
    storages, events, marks, operators = [], [], [], []

    def allocate(size, category, module):
        storages.append((size, category, module))
        events.append(len(storages))
        return len(storages)

    for size in sizes:
        allocate(size, Category.WEIGHTS, 0)  # nobody's forward makes them
    state: list[int] = []
    for update, window in enumerate(windows):
        gradients: list[int] = []
        for micro_step in range(window):
            phase = Phase.ACCUMULATION if micro_step else Phase.FORWARD_BACKWARD
            marks.append(
                Mark(position=len(events), update=update, micro_step=micro_step, phase=phase)
            )
            for backward in (False, True):
                order = range(layers) if not backward else reversed(range(layers))
                for layer in order:
                    output = allocate(512, Category.TEMPORARIES, owners[layer + 1])
                    if backward and not micro_step:
                        gradients.append(
                            allocate(layer_bytes, Category.GRADIENTS, owners[layer + 1])
                        )
                    operators.append(
                        operator(
                            "aten.mm",
                            len(events),
                            inputs=[tensor(8, block=layer + 1)],
                            outputs=[tensor(128, block=output - 1)],
                            backward=backward,
                            module=owners[layer + 1],
                        )
                    )
                    events.append(-output)
                if not backward:
                    operators.append(
                        operator("aten.mm", len(events), inputs=[tensor(8, block=0)], module=1)
                    )
            if not micro_step:
                gradients.append(allocate(root_bytes, Category.GRADIENTS, 1))
        marks.append(
            Mark(position=len(events), update=update, micro_step=-1, phase=Phase.OPTIMIZER_STEP)
        )
        if not state:
            for owner, size in zip(owners, sizes, strict=True):
                state += [allocate(size, Category.OPTIMIZER_STATE, owner) for _ in range(2)]
        temporaries = [
            allocate(size, Category.TEMPORARIES, owner)
            for owner, size in zip(owners, sizes, strict=True)
        ]
        events += [-number for number in temporaries]
        marks.append(Mark(position=len(events), update=update, micro_step=-1, phase=None))
        events += [-number for number in gradients]
    return stream(operators, storages, events, marks, names)
