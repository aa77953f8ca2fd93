"""A transformer layer against micro-batch: one public notebook that others ran on their GPUs.

mli/transformers-benchmarks: a layer of transformers in fp16 and training mode, with gradients on,
by the median of torch's timer. Half of the sizes are bound by the host, whose time for a kernel is
that of the smallest forward pass of the same notebook. Its square products tell how fast that very
device multiplies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bsprof.predict.software import software_of
from bsprof.records import Precision, WorkloadSpec
from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.time.cases import Calibrates, TimeCase, TimeQuantity

NAME = "layers"
FILE = "mli_layer_batch_sweeps.csv"
ASSUMPTIONS = (
    "the layers are those of the transformers of early 2023, in training mode: dropout is on",
    "the host's time for a kernel is that of the machine's smallest forward pass",
)

_MODEL = "bsprof.validate.models.layers:workload"
_DEVICES = {
    "V100-SXM2-16GB": "v100-16gb-sxm",
    "RTX3090Ti": "rtx-3090-ti",
    "T4": "t4",
    "H100-SXM5-80GB": "h100-80gb-sxm",
    "RTX4090": "rtx-4090",
    "RTX3060": "rtx-3060-12gb",
    "RTX4070SUPER": "rtx-4070-super",
    "MI250X (1 GCD)": "mi250x-die",
}
_LAYERS = {
    "layer_bert_large": "bert-large",
    "layer_gpt2_medium": "gpt2-medium",
    "layer_t5_large": "t5-large-encoder",
    "layer_t5_large_encoder": "t5-large-encoder",
}
_SCORED = {"rtx-4090": "layers-rtx-4090", "h100-80gb-sxm": "layers-h100"}
"""The scored sets, by device; those of other devices are shown."""


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every layer as a forward pass, or as forward and backward."""
    smallest: dict[str, tuple[int, str]] = {}
    for row in rows:
        batch, length = row.count("batch"), row.count("seq_len")
        if row.text("pass") == "fwd" and batch and length:
            tokens = (batch * length, row.name)
            smallest[_machine(row)] = min(smallest.get(_machine(row), tokens), tokens)
    calibrating = {name for _, name in smallest.values()}
    ceilings = _ceilings(rows)
    return [
        _case(row, ceilings.get(_machine(row), {}), calibrates=row.name in calibrating)
        for row in rows
    ]


def _ceilings(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """FLOP/s of each machine's fastest square product in the layers' precision."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        teraflops = row.number("tflops")
        if row.text("op") == "matmul_square" and row.text("dtype") == "float16" and teraflops:
            known = found.setdefault(_machine(row), {"fp16": 0.0})
            known["fp16"] = max(known["fp16"], teraflops * 1e12)
    return found


def _machine(row: Row) -> str:
    return f"{row.text('gpu')} {row.text('env')}, {row.text('source').split()[0]}"


def _case(row: Row, ceilings: Mapping[str, float], *, calibrates: bool) -> TimeCase | Skipped:
    op, gpu, passes = row.text("op"), row.text("gpu"), row.text("pass")
    batch, length = row.count("batch"), row.count("seq_len")
    microseconds = row.number("latency_us")

    def skipped(reason: str, *, counts: bool = True) -> Skipped:
        return Skipped(row=row.name, source=NAME, model=op, reason=reason, counts=counts)

    if not op.startswith("layer_"):
        return skipped("an operator alone, which is for fitting", counts=False)
    if op not in _LAYERS:
        return skipped("no such layer is written down")
    if gpu not in _DEVICES:
        return skipped(f"no device {gpu!r} in the catalogue")
    torch = re.search(r"torch(\d+\.\d+)", row.text("env"))
    if microseconds is None or batch is None or length is None or torch is None:
        return skipped("no time published", counts=False)
    device, layer = _DEVICES[gpu], _LAYERS[op]
    backward = "bwd" in passes
    machine = _machine(row)
    flops = row.number("flops")
    return TimeCase(
        row=row.name,
        source=NAME,
        family=layer,
        model=f"{layer} {'forward and backward' if backward else 'forward'} at {length}",
        spec=WorkloadSpec(
            model=_MODEL,
            model_options={"layer": layer, "summed": backward},
            seq_len=length,
            precision=Precision.FP16,
        ),
        device=device,
        micro_batch=batch,
        seconds=microseconds / 1e6,
        quantity=TimeQuantity.MICRO_STEP if backward else TimeQuantity.FORWARD,
        software=software_of(torch=torch[1]),
        machine=machine,
        ceilings=ceilings,
        set_name=_SCORED.get(device, ""),
        sweep=f"{machine} {layer} {passes} {length}",
        published_gmacs=(flops / 2e9 / batch,) if flops and not backward else (),
        calibrates=Calibrates.HOST if calibrates else Calibrates.NOTHING,
        assumptions=ASSUMPTIONS,
    )
