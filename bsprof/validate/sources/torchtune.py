"""torchtune's table of what each of its savings brings, Llama 3.2 3B on one A100 of 80 GB.

Everything in bf16, AdamW, two packed samples of 4096 tokens. The source reads torch's peak of
active bytes, which the allocator's allocated bytes are up to blocks that wait for another stream.
"""

from __future__ import annotations

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol
from bsprof.records import Precision, WorkloadSpec
from bsprof.validate.cases import Case, Kind, Measured, Skipped
from bsprof.validate.rows import Row

NAME = "torchtune"
FILE = "torchtune_readme.csv"
MODEL = "bsprof.validate.models.torchtune:workload"

ASSUMPTIONS = (
    "AdamW is the fused one, as in torchtune's recipes",
    "compiled layers: norms keep their input, the gate's activation is recomputed",
    "attention over packed samples needs what causal flash attention needs",
    "torch not stated: 2.5",
)


def read(row: Row) -> Case | Skipped:
    """A row as a peak of allocated bytes."""
    model, notes = row.text("model"), row.text("notes").lower()

    def skipped(reason: str, *, counts: bool = True) -> Skipped:
        return Skipped(row=row.name, source=NAME, model=model, reason=reason, counts=counts)

    if row.count("n_gpus") != 1:
        return skipped("several GPUs", counts=False)
    if row.text("kind") == "train_qlora":
        return skipped("quantized weights", counts=False)
    peak, size, seq_len = row.peak_bytes, row.count("micro_batch"), row.count("seq_len")
    if "unpacked" in notes or seq_len is None:
        return skipped("the length of the samples is not stated")
    if "offload" in notes:
        return skipped("activations are offloaded to the host")
    if row.text("kind") != "train_full" or peak is None or size is None:
        return skipped(f"no way to train here: {row.text('kind')}")
    in_backward = "into backward" in notes
    return Case(
        row=row.name,
        source=NAME,
        family="full",
        model=f"{model} {notes.rpartition(',')[2].strip()}",
        spec=WorkloadSpec(
            model=MODEL,
            model_options={
                "compiled": "compile" in notes,
                "chunked": "chunked" in notes,
                "in_backward": in_backward,
            },
            seq_len=seq_len,
            precision=Precision.BF16,
            optimizer="adamw",
            optimizer_options={} if in_backward else {"fused": True},
            activation_checkpointing="full" if "checkpointing" in notes else "none",
        ),
        device="a100-80gb-sxm",
        micro_batch=size,
        software=software_of(torch="2.5"),
        protocol=Protocol(windows=(1, 1), fresh_batch=True),
        measured=Measured(kind=Kind.ALLOCATED, bytes=peak),
        assumptions=ASSUMPTIONS,
    )
