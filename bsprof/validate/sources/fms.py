"""Hugging Face's Trainer on one A100 of 80 GB (foundation-model-stack/fms-acceleration).

Settings as in `scripts/benchmarks` there: packed samples, flash attention, all blocks checkpointed,
AdamW of torch, weights in bf16 (also where the row says amp: the model is loaded in bf16), LoRA by
peft with dropout 0.1 and adapters in fp32. What torch allocated at most.
"""

from __future__ import annotations

import re

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol
from bsprof.records import Precision, Scalar, WorkloadSpec
from bsprof.validate.cases import Case, Kind, Measured, Skipped
from bsprof.validate.rows import Row

NAME = "fms-acceleration"
FILE = "fms_acceleration_a100.csv"
MODEL = "bsprof.validate.models.huggingface:workload"
DEVICE = "a100-80gb-sxm"

ASSUMPTIONS = (
    "transformers from 4.45 on: a function converts the logits to fp32 and shifts them by a copy",
    "table with liger kernels: an older transformers, whose models do so themselves",
    "which table ran which transformers is not stated, and inferred from its peaks",
    "foak rows: RMS norms keep their input alone, the loss writes its gradient over the logits",
    "torch not stated: 2.4",
)

_ADAPTERS = re.compile(r"lora r=([\d.]+) targets=(.*)")
_MODELS = {"Mistral-7B-v0.1": "mistral-7b", "gpt_bigcode-santacoder": "santacoder"}


def read(row: Row) -> Case | Skipped:
    """A row as a peak, or as a size that does not fit."""
    published = row.text("model").rpartition("/")[2]

    def skipped(reason: str, *, counts: bool = True) -> Skipped:
        return Skipped(row=row.name, source=NAME, model=published, reason=reason, counts=counts)

    problem = _out_of_scope(row)
    if problem is not None:
        return skipped(problem, counts=False)
    peak, size = row.peak_bytes, row.count("micro_batch")
    if peak is None:
        # How long the samples of a failed run were is not in its row.
        return skipped("no peak: what failed, and at which length, is not stated", counts=False)
    name, seq_len = _MODELS.get(published), row.count("seq_len")
    if name is None or size is None or seq_len is None:
        return skipped(f"no model {published!r} here")
    framework = row.note("framework_config")
    options: dict[str, Scalar] = {
        "name": name,
        "fused": "foak" in framework,
        "old_loss": "liger" in row.text("source"),
    }
    if "lora" in row.text("kind"):
        adapters = _ADAPTERS.match(row.note("peft"))
        if adapters is None:
            return skipped("adapters that are not stated")
        options |= {"rank": int(float(adapters[1])), "targets": adapters[2].strip()}
    return Case(
        row=row.name,
        source=NAME,
        family=row.text("kind").removeprefix("train_"),
        model=f"{published} {row.text('kind')} {framework} {row.text('precision')}",
        spec=WorkloadSpec(
            model=MODEL,
            model_options=options,
            seq_len=seq_len,
            precision=Precision.FP32,  # the factory makes bf16 weights, and adapters in fp32
            optimizer="adamw",
            activation_checkpointing="full",
            clip_norm=1.0,
        ),
        device=DEVICE,
        micro_batch=size,
        software=software_of(torch="2.4"),
        protocol=Protocol(windows=(1, 1), fresh_batch=True),
        measured=Measured(kind=Kind.ALLOCATED, bytes=peak),
        assumptions=ASSUMPTIONS,
    )


def _out_of_scope(row: Row) -> str | None:
    if row.count("n_gpus") != 1:
        return "several GPUs"
    if row.has("precision", "bnb", "gptq") or "bnb" in row.note("framework_config"):
        return "quantized weights"
    return None
