"""timm's training benchmark on an RTX 3090: between which sizes the largest one lies.

Settings as in `benchmark.py` of huggingface/pytorch-image-models at the time: CUDA autocast to
fp16 without a gradient scaler, with loss *and backward* inside the autocast block; SGD with
Nesterov momentum and no weight decay (`create_optimizer_v2`); `cudnn.benchmark`; gradients zeroed
before the forward pass, which in torch before 2.0 keeps them; one batch for all steps. The search
starts large and steps down after each failure, emptying the cache.
"""

from __future__ import annotations

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol, ZeroGrad
from bsprof.records import Precision, WorkloadSpec
from bsprof.validate.cases import Bracket, Case, Skipped
from bsprof.validate.rows import Row
from bsprof.validate.sources.timm_names import family_of, name_today, other_network

NAME = "timm-3090"
FILE = "timm_train_rtx3090.csv"
DEVICE = "rtx-3090"
CAPACITY_BYTES = 24_268 * 2**20
"""As the source gives it for its card."""
STEPS = (512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
"""Sizes that were tried, largest first; a size of 512 has no upper end."""

ASSUMPTIONS = (
    "today's timm builds the network that was measured in 2021 and 2022",
    "attention is eager: timm had no fused attention then",
    "nothing else used the card",
)


def read(row: Row) -> Case | Skipped:
    """A row as a bracket."""
    model = row.text("model")
    problem = other_network(model)
    fits, size = row.count("micro_batch"), row.count("image_size")
    if fits not in STEPS or size is None:
        problem = f"no size of the search: {fits}"
    if problem is not None or fits is None:
        return Skipped(row=row.name, source=NAME, model=model, reason=str(problem))
    larger = [step for step in STEPS if step > fits]
    version = row.text("framework_version").split()[0]
    return Case(
        row=row.name,
        source=NAME,
        family=family_of(name_today(model)),
        model=model,
        spec=WorkloadSpec(
            model=f"timm:{name_today(model)}",
            image_size=size,
            precision=Precision.AMP_FP16,
            optimizer="sgd",
            optimizer_options={"momentum": 0.9, "nesterov": True},
            channels_last="NHWC" in row.text("framework"),
            cudnn_benchmark=True,
            attention="eager",
        ),
        device=DEVICE,
        micro_batch=fits,
        software=software_of(torch=version, cuda="11.3", cudnn="8"),
        protocol=Protocol(windows=(1, 1), zero_grad=ZeroGrad.BEFORE_FORWARD, set_to_none=False),
        bracket=Bracket(fits=fits, fails=min(larger, default=None), capacity_bytes=CAPACITY_BYTES),
        assumptions=ASSUMPTIONS,
    )
