"""Device memory of timm's models in training on an A100 of 40 GB (itu-rad/GPUMemNet).

The training loop is timm's `train.py`: fp32, SGD with Nesterov momentum and weight decay 2e-5 (its
defaults), gradients dropped after the optimizer step, the next batch prefetched onto the device.
Names among the rows (`vit_mediumd_patch16_rope_reg1_gap_256`, `mobilenetv4_conv_small`) need timm
1.0.4 or later, whose loop does so; with gradients kept until backward the unexplained rest at
small batches would differ between models by their parameters' size.
"""

from __future__ import annotations

from itertools import pairwise

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol, ZeroGrad
from bsprof.records import Precision, WorkloadSpec
from bsprof.validate.cases import Case, Kind, Measured, Skipped
from bsprof.validate.rows import Row
from bsprof.validate.sources.timm_names import family_of, name_today, other_network

NAME = "gpumemnet-timm"
FILE = "gpumemnet_timm_mem_a100.csv"
DEVICE = "a100-40gb-sxm"
MOST_BYTES = 37_000 * 2**20
"""Of rows that are scored: nearer to the capacity, failed and clipped runs look alike."""
DROP_BYTES = 50 * 2**20
"""A model whose memory falls by more when the batch doubles was not measured cleanly."""

ASSUMPTIONS = (
    "optimizer not stated: SGD with Nesterov momentum and weight decay, as in timm's train.py",
    "image size not stated: the model's own",
    "torch not stated: 2.1 with CUDA 12.1",
    "monitoring, context and neighbours: one fitted offset",
)


def read(row: Row) -> Case | Skipped:
    """A row as a peak of the whole device."""
    model, peak = row.text("model"), row.peak_bytes
    size = row.count("micro_batch")
    problem, counts = other_network(model), True
    if row.text("oom") == "suspect" or peak is None or size is None:
        problem, counts = "a failed run: the source's value for one", False
    elif peak > MOST_BYTES:
        problem, counts = "within 3 GiB of the capacity", False
    if problem is not None or peak is None or size is None:
        return Skipped(row=row.name, source=NAME, model=model, reason=str(problem), counts=counts)
    return Case(
        row=row.name,
        source=NAME,
        family=family_of(name_today(model)),
        model=model,
        spec=WorkloadSpec(
            model=f"timm:{name_today(model)}",
            precision=Precision.FP32,
            optimizer="sgd",
            optimizer_options={"momentum": 0.9, "nesterov": True, "weight_decay": 2e-5},
        ),
        device=DEVICE,
        micro_batch=size,
        software=software_of(torch="2.1"),
        protocol=Protocol(windows=(1, 1), zero_grad=ZeroGrad.AFTER_STEP, fresh_batch=True),
        measured=Measured(kind=Kind.DEVICE, bytes=peak),
        assumptions=ASSUMPTIONS,
    )


def unclean(cases: list[Case]) -> dict[str, str]:
    """Models whose rows are not scored, with the reason."""
    by_model: dict[str, list[Case]] = {}
    for case in cases:
        by_model.setdefault(case.model, []).append(case)
    found = {}
    for model, rows in by_model.items():
        rows.sort(key=lambda case: case.micro_batch)
        peaks = [case.measured.bytes for case in rows if case.measured is not None]
        if any(b - a < -DROP_BYTES for a, b in pairwise(peaks)):
            found[model] = "memory falls as the batch grows: a failed run among the rows"
    return found
