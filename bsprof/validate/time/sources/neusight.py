"""NeuSight's labels: forward and backward of transformers in fp32 on many GPUs.

Models of transformers, built from a configuration, without fused attention; times of the device by
CUDA events, without an optimizer step. fp32 as torch has it: products without TF32. Rows of AMD
devices are told apart from the scored sets, and so are those of the Switch Transformer: its rows
state layers, width and heads; what else it has is inferred from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bsprof.predict.software import software_of
from bsprof.records import Mode, Precision, WorkloadSpec
from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.time.cases import TimeCase, TimeQuantity

NAME = "neusight"
FILE = "neusight_labels.csv"
ASSUMPTIONS = (
    "torch is not stated: 2.1; transformers are those of 2023, with the operators of that time",
    "GPT-3 XL is GPT-2's architecture with 24 layers of width 3072",
    "training drops what the published configurations drop, inference runs without gradients",
    "no padding mask is given",
    "switchxl4 has T5 3B's dimensions, of which it states layers, width and heads",
    "every second layer of it has 4 experts, each with 64 tokens of a sample (the usual capacity)",
)

_DECODERS = "bsprof.validate.models.decoders:workload"
_MODELS = {"gpt2_large": "gpt2-large", "gpt3_xl": "gpt3-xl", "opt_13": "opt-1.3b"}
"""Names of `bsprof.validate.models.decoders` by published ones."""
_SWITCH = "bsprof.validate.models.switch:workload"

_DEVICES = {
    "A100-PCIE-40GB": "a100-40gb-pcie",
    "A100-PCIe-80GB": "a100-80gb-pcie",
    "H100-80GB-SXM": "h100-80gb-sxm",
    "L4 24GB": "l4",
    "T4 16GB": "t4",
    "V100-PCIE-32GB": "v100-32gb-pcie",
    "P100-PCIE-16GB": "p100-16gb-pcie",
    "P4 8GB": "p4",
    "MI100 32GB": "mi100",
    "MI210 64GB": "mi210",
}

_INCONSISTENT = {
    ("A100-PCIe-80GB", "gpt2_large", "train_fwd_bwd", 1): "its forward pass takes 238 ms, against "
    "140 ms a sample in a batch of 4",
    ("A100-PCIe-80GB", "opt_13", "train_fwd_bwd", 2): "2.33 times the batch of 1",
}
"""Rows that contradict their neighbours."""


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every row as a micro-step, or in inference as a forward pass."""
    return [_case(row) for row in rows]


def _case(row: Row) -> TimeCase | Skipped:
    model, variant, kind = row.text("model"), row.text("gpu_variant"), row.text("kind")
    size, length = row.count("micro_batch"), row.count("seq_len")
    milliseconds = row.number("step_ms")

    def skipped(reason: str, *, counts: bool = True) -> Skipped:
        return Skipped(row=row.name, source=NAME, model=model, reason=reason, counts=counts)

    if row.count("n_gpus") != 1 or row.has("notes", "distributed"):
        return skipped("several GPUs", counts=False)
    if row.has("source", "fusion"):
        return skipped("fused by a compiler whose version is not stated", counts=False)
    if size is None or length is None or milliseconds is None:
        return skipped("no time published", counts=False)
    contradiction = _INCONSISTENT.get((variant, model, kind, size))
    if contradiction is not None:
        return skipped(f"inconsistent: {contradiction}", counts=False)
    if variant not in _DEVICES:
        return skipped(f"no device {variant!r} in the catalogue")
    if model != "switchxl4" and model not in _MODELS:
        return skipped("its stated dimensions are those of a network five times as slow")
    trains = kind == "train_fwd_bwd"
    return TimeCase(
        row=row.name,
        source=NAME,
        family=row.text("model_family"),
        model=f"{model} {'training' if trains else 'inference'}",
        spec=WorkloadSpec(
            model=_SWITCH if model == "switchxl4" else _DECODERS,
            model_options={} if model == "switchxl4" else {"name": _MODELS[model]},
            seq_len=length,
            precision=Precision.FP32,
            mode=Mode.TRAIN if trains else Mode.INFER,
        ),
        device=_DEVICES[variant],
        micro_batch=size,
        seconds=milliseconds / 1e3,
        quantity=TimeQuantity.MICRO_STEP if trains else TimeQuantity.FORWARD,
        software=software_of(torch="2.1"),
        machine=f"neusight {variant}",
        set_name=_set_name(variant, model, trains=trains),
        published_gmacs=() if model == "switchxl4" else _gmacs(row, length),
        assumptions=ASSUMPTIONS,
    )


def _set_name(variant: str, model: str, *, trains: bool) -> str:
    """The scored set; a model of which half the dimensions are inferred is one of its own."""
    if variant.startswith("MI"):
        return ""
    if model == "switchxl4":
        return "neusight-switch"
    return "neusight-training" if trains else "neusight-inference"


def _gmacs(row: Row, length: int) -> tuple[float, ...]:
    """Multiplications of a sample's forward pass, in 10^9, from the published dimensions.

    Twelve products of the width squared a layer, the output's, and two of attention's weights.
    """
    values = dict(part.split("=") for part in row.text("notes").split(";")[0].split(","))
    layers, width, vocabulary = (int(values[key]) for key in ("L", "d", "V"))
    dense = 12 * layers * width**2 + vocabulary * width
    return ((length * dense + 2 * layers * length**2 * width) / 1e9,)
