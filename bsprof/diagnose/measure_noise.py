"""`measure_noise`: the parent's side of `bsprof noise`. No torch."""

from __future__ import annotations

from collections.abc import Callable

from bsprof.diagnose.asking import ask
from bsprof.diagnose.noise.records import Noise, Question
from bsprof.errors import UsageError
from bsprof.measure.wire import PhaseLimits
from bsprof.records import Mode, WorkloadSpec
from bsprof.records.codec import from_json, to_json

MICRO_BATCH_SIZE = 8
ACCUMULATION_STEPS = 32
UPDATES = 4


def measure_noise(
    workload: WorkloadSpec | str,
    *,
    micro_batch_size: int = MICRO_BATCH_SIZE,
    accumulation_steps: int = ACCUMULATION_STEPS,
    updates: int = UPDATES,
    device: str = "auto",
    limits: PhaseLimits | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> Noise:
    """The gradient noise scale tr(S)/|G|^2, from the pieces of accumulated updates.

    Runs the workload's model, data and loss in a worker of its own: `updates` optimizer steps, of
    `accumulation_steps` pieces each, every piece twice. Where the pieces are too few to tell the
    gradient from its noise, the answer is why, and no number.

    Args:
        workload: The model's name, or all options of the workload.
        micro_batch_size: Samples of a piece.
        accumulation_steps: Pieces of an update.
        updates: Optimizer steps.
        device: Of this machine.
        limits: Seconds that the worker may stay silent, by phase.
        on_phase: Called with the name of each phase that the worker enters.

    Raises:
        UsageError: options that cannot be.
        WorkloadError: the user's code failed.
        MeasurementError: the worker died.
    """
    spec = WorkloadSpec(model=workload) if isinstance(workload, str) else workload
    if spec.mode is not Mode.TRAIN:
        raise UsageError("there is no gradient, and so no noise in it, in inference")
    if min(micro_batch_size, updates) < 1 or accumulation_steps < 2:
        raise UsageError(
            f"{updates} updates of {accumulation_steps} pieces of {micro_batch_size} samples show "
            "no noise",
            next_step="take at least 1 update, 2 pieces and 1 sample",
        )
    question = Question(
        micro_batch_size=micro_batch_size,
        accumulation_steps=accumulation_steps,
        updates=updates,
    )
    answer = ask(
        "noise",
        spec,
        device,
        doing="cannot measure the noise of",
        limits=limits,
        on_phase=on_phase,
        question=to_json(question),
    )
    return from_json(Noise, answer["noise"])
