"""Fine-tuning with litgpt on one A100 of 40 GB or one A10G: what torch allocated at most.

Settings as in its `finetune/lora.py`, `finetune/full.py` and the files of `config_hub/finetune`:
everything in bf16, AdamW of torch, samples padded to the longest of a batch, logits in chunks.
The tables of the tutorials use rank 8 on queries and values, and name the longest sample; those of
the hub cut samples at 512 tokens, which Alpaca reaches.
"""

from __future__ import annotations

from dataclasses import dataclass

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol
from bsprof.records import Precision, Scalar, WorkloadSpec
from bsprof.validate.cases import Bracket, Case, Kind, Measured, Skipped
from bsprof.validate.rows import Row

NAME = "litgpt"
FILE = "litgpt_memory_time.csv"
MODEL = "bsprof.validate.models.litgpt:workload"
ADAMW_BYTES = 8
"""Of weight, gradient and two moments in bf16, per parameter."""

ASSUMPTIONS = (
    "tutorials: rank 8 on queries and values, as the counts of trainable parameters say",
    "hub: some batch has a sample of 512 tokens; ranks and targets as in the hub's files",
    "hub: torch 2.4, the release of its time",
)

_MODELS = {
    "phi-1.5 1.3B": "phi-1.5",
    "Llama 2 7B": "llama-2-7b",
    "Llama 2 13B": "llama-2-13b",
    "llama-2-7b": "llama-2-7b",
    "llama-3.2-1b": "llama-3.2-1b",
    "llama-3.2-3b": "llama-3.2-3b",
    "mistral-7b": "mistral-7b",
    "mistral-7b-v0.2": "mistral-7b-v0.2",
    "tiny-llama": "tiny-llama",
    "TinyLlama-1.1B": "tiny-llama",
    "falcon-7b": "falcon-7b",
    "gemma-2b": "gemma-2b",
    "phi-2": "phi-2",
    "Phi-3-mini-4k-instruct": "phi-3-mini",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Ranks and targets of a file of the hub."""

    rank: int
    everywhere: bool = False

    def options(self) -> dict[str, Scalar]:
        """As options of the model."""
        on = self.everywhere
        return {"rank": self.rank, "key": on, "out": on, "feed": on, "head": on}


_QUERY_AND_VALUE = Adapters(rank=32)
_HUB = {
    "gemma-2b": Adapters(rank=8, everywhere=True),
    "gemma-2-2b": Adapters(rank=8, everywhere=True),
    "phi-2": Adapters(rank=8, everywhere=True),
    "phi-3-mini": Adapters(rank=8, everywhere=True),
    "tiny-llama": Adapters(rank=32, everywhere=True),
}
"""Where the hub's file says more than rank 32 on queries and values."""

_MILLIONS = {"llama-3.2-1b": 1236, "llama-3.2-3b": 3213, "phi-2": 2780, "phi-3-mini": 3821}


def read(row: Row) -> Case | Skipped:
    """A row as a peak, or as a size that does not fit."""
    published, kind = row.text("model"), row.text("kind")

    def skipped(reason: str, *, counts: bool = True) -> Skipped:
        return Skipped(row=row.name, source=NAME, model=published, reason=reason, counts=counts)

    problem = _out_of_scope(row)
    if problem is not None:
        return skipped(problem, counts=False)
    name = _MODELS.get(published)
    if "config gemma2-2b" in row.text(
        "notes"
    ):  # the file's own name of that row's model is coarser
        name = "gemma-2-2b"
    if name is None:
        return skipped(f"no model {published!r} here")
    of_hub = row.text("gpu") == "A10G"
    peak, size, seq_len = row.peak_bytes, row.count("micro_batch"), row.count("seq_len")
    failed = row.text("oom") == "1"
    if size is None or seq_len is None or (peak is None and not failed):
        return skipped("no size, length or peak", counts=False)
    if kind not in ("train_lora", "train_full", "train"):
        return skipped(f"{kind.removeprefix('train_')} is no way to train here")
    if kind == "train" and not row.text("compile").startswith("Eager"):
        return skipped("compiled with Thunder")
    full = kind != "train_lora"
    if full and "listed 4x" in row.text("parallelism"):
        return skipped("full training listed on four GPUs: how it was shared is not stated")
    if full and peak is not None and peak < ADAMW_BYTES * 1e6 * _MILLIONS.get(name, 0):
        return skipped("the peak is below weights, gradients and moments: not as its file says")
    options: dict[str, Scalar] = {"name": name}
    if not full:
        adapters = _HUB.get(name, _QUERY_AND_VALUE) if of_hub else Adapters(rank=8)
        options |= adapters.options()
    return Case(
        row=row.name,
        source=NAME,
        family="lora" if not full else "full",
        model=f"{published} {kind}",
        spec=WorkloadSpec(
            model=MODEL,
            model_options=options,
            seq_len=seq_len,
            precision=Precision.BF16,
            optimizer="adamw",
        ),
        device="a10g" if of_hub else "a100-40gb-sxm",
        micro_batch=size,
        software=software_of(torch="2.4" if of_hub or kind == "train" else "2.1"),
        protocol=Protocol(windows=(1, 2), fresh_batch=True),
        measured=None if peak is None else Measured(kind=Kind.ALLOCATED, bytes=peak),
        bracket=Bracket(fits=0, fails=size) if peak is None else None,
        assumptions=ASSUMPTIONS,
    )


def _out_of_scope(row: Row) -> str | None:
    if row.text("kind").startswith("infer"):
        return "no training"
    if row.count("n_gpus") != 1:
        return "several GPUs"
    return "quantized weights" if row.has("precision", "bnb") else None
