"""LLM Foundry's table of MPT training: one node of 8 GPUs, everything sharded by FSDP.

Settings as in `scripts/train/benchmarking` there: AdamW, clipping, learned positions as long as the
sample, attention by the Triton kernel of FlashAttention's first generation. On the A100 of 40 GB
weights are in bf16, elsewhere bf16 is autocast.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol
from bsprof.records import Precision, WorkloadSpec
from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.sources.common import seconds_of, skipped

NAME = "llm-foundry"
FILE = "llmfoundry_mpt_train.csv"
MODEL = "bsprof.validate.models.foundry:workload"
GPUS = 8
"""Of one node."""
ASSUMPTIONS = (
    "attention as FlashAttention's first generation computes it",
    "norms in the type of autocast and a fused loss, the defaults of its models",
    "AdamW; the optimizer step is shared out over the ranks",
)

_MODELS = {"mpt-7b": "mpt-7b-foundry", "mpt-30b": "mpt-30b-foundry"}
_DEVICES = {
    ("A100", 40): "a100-40gb-sxm",
    ("A100", 80): "a100-80gb-sxm",
    ("H100", 80): "h100-80gb-sxm",
}
_PRECISIONS = {"bf16": Precision.BF16, "amp_bf16": Precision.AMP_BF16}


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every row of one node as an update."""
    return [_case(row) for row in rows]


def _case(row: Row) -> TimeCase | Skipped:
    if row.count("n_gpus") != GPUS:
        return skipped(row, NAME, "several machines", counts=False)
    precision = _PRECISIONS.get(row.text("precision"))
    if precision is None:
        return skipped(row, NAME, f"no precision {row.text('precision')} here")
    published = row.text("model")
    gpu = row.text("gpu")
    device = _DEVICES.get((gpu, row.count("gpu_mem_gb") or 0))
    seconds, size = seconds_of(row), row.count("micro_batch")
    seq_len = row.count("seq_len")
    if seconds is None or size is None or seq_len is None or device is None:
        return skipped(row, NAME, "no settings that are known here")
    return TimeCase(
        row=row.name,
        source=NAME,
        family="mpt",
        model=f"{published} n={seq_len}",
        spec=WorkloadSpec(
            model=MODEL,
            model_options={"name": _MODELS.get(published, published)},
            seq_len=seq_len,
            precision=precision,
            optimizer="adamw",
            clip_norm=1.0,
            activation_checkpointing="full" if row.text("act_ckpt") == "True" else "none",
            attention="sdpa",
        ),
        device=device,
        micro_batch=size,
        seconds=seconds,
        accumulation_steps=row.count("grad_accum") or 1,
        world_size=GPUS,
        parallel="fsdp",
        software=software_of(torch="2.0"),
        protocol=Protocol(windows=(1, 1), fresh_batch=True),
        machine=f"llm-foundry {device}",
        set_name=f"llm-foundry-{gpu.lower()}",
        attention_kernel="flash1",
        assumptions=ASSUMPTIONS,
    )
