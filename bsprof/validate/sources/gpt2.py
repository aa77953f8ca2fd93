"""GPT-2 124M on many GPUs: two public trainers in the manner of nanoGPT.

One is a single file of which 20 GPUs ran two sizes (vocabulary 50,304, tied, no dropout, bf16
autocast, fused AdamW, clipping, torch.compile; the whole device by nvidia-smi). The other is
Jjschwartz/gollem (peak allocated after the model was loaded; logits are not returned; each block
keeps a mask of 1024 x 1024 in fp32; `F.cross_entropy` inside autocast; clipping).
"""

from __future__ import annotations

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol, ZeroGrad
from bsprof.records import Precision, WorkloadSpec
from bsprof.validate.cases import Case, Kind, Measured, Skipped
from bsprof.validate.rows import Row

NAME = "gpt2-sweeps"
FILE = "gpt2_single_gpu_sweeps.csv"
MODEL = "bsprof.validate.models.gpt2:workload"

_DEVICES = {
    "RTX PRO 6000": "rtx-pro-6000-workstation",
    "H100 NVL": "h100-nvl",
    "H100 SXM": "h100-80gb-sxm",
    "H100 80GB HBM3": "h100-80gb-sxm",
    "H100 PCIe": "h100-80gb-pcie",
    "L40": "l40",
    "RTX 6000 Ada": "rtx-6000-ada",
    "RTX 5090": "rtx-5090",
    "RTX 4000 Ada": "rtx-4000-ada",
    "RTX 2000 Ada": "rtx-2000-ada",
    "A100 PCIe": "a100-80gb-pcie",
    "A100 SXM": "a100-80gb-sxm",
    "A40": "a40",
    "RTX A6000": "rtx-a6000",
    "RTX A5000": "rtx-a5000",
    "RTX A4500": "rtx-a4500",
    "RTX A4000": "rtx-a4000",
    "RTX 3090": "rtx-3090",
}

ASSUMPTIONS = (
    "compiled rows are predicted with what the compiler fuses written out by hand",
    "gollem's torch is not stated: 2.6 with CUDA 12.4",
    "rows on a card that is not named are predicted for an RTX 3090: only allocated bytes count",
)


def read(row: Row) -> Case | Skipped:
    """A row as a peak: of the device, or of what torch allocated."""
    peak, size = row.peak_bytes, row.count("micro_batch")
    model = row.text("model")

    def skipped(reason: str, *, counts: bool = True) -> Skipped:
        return Skipped(row=row.name, source=NAME, model=model, reason=reason, counts=counts)

    if row.count("n_gpus") != 1:
        return skipped("several GPUs", counts=False)
    if peak is None or size is None:
        return skipped("no memory published", counts=False)
    variant = row.text("gpu_variant")
    unnamed = variant.startswith("GPU not named")
    device = "rtx-3090" if unnamed else _DEVICES.get(variant)
    if device is None:
        return skipped(f"no device {variant!r} in the catalogue")
    of_gollem = "gollem" in row.text("source")
    precision = Precision.AMP_BF16
    if row.has("precision", "fp32"):
        precision = Precision.FP32
    elif row.has("precision", "fp16"):
        precision = Precision.AMP_FP16
    fused = row.has("optimizer", "fused")
    compiled = row.text("compile") == "True"
    attention = "eager" if row.has("attention", "eager") else "sdpa"
    windows = (1, 1) if row.count("grad_accum") == 1 else (1, 2)
    return Case(
        row=row.name,
        source=NAME,
        family="gpt2 gollem" if of_gollem else "gpt2",
        model=f"{model} {precision.value} {attention}{' compiled' if compiled else ''}",
        spec=WorkloadSpec(
            model=MODEL,
            model_options={
                "keeps_mask": of_gollem,
                "compiled": compiled,
                "holds_logits": not of_gollem,
            },
            seq_len=row.count("seq_len"),
            attention=attention,
            precision=precision,
            optimizer="adamw",
            optimizer_options={"fused": True} if fused else {},
            clip_norm=1.0,
        ),
        device=device,
        micro_batch=size,
        software=software_of(torch="2.6" if of_gollem else "2.8"),
        protocol=Protocol(
            windows=windows,
            zero_grad=ZeroGrad.AFTER_STEP if of_gollem else ZeroGrad.BEFORE_FORWARD,
            fresh_batch=True,
        ),
        measured=Measured(
            kind=Kind.DEVICE if row.has("mem_method", "nvidia-smi") else Kind.ALLOCATED,
            bytes=peak,
        ),
        assumptions=ASSUMPTIONS,
    )
