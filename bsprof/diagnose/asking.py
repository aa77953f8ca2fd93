"""One request to a worker of its own, for the parents of `check` and `noise`. No torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bsprof.errors import MeasurementError, WorkloadError
from bsprof.measure.crew import Trouble, answer_of
from bsprof.measure.devices.select import parse_device_name
from bsprof.measure.supervisor import Worker
from bsprof.measure.telling import build_error
from bsprof.measure.wire import PhaseLimits
from bsprof.records import WorkloadSpec
from bsprof.records.codec import to_json
from bsprof.workloads.names import check_model

SESSION = "bsprof.diagnose.session"


def ask(
    kind: str,
    spec: WorkloadSpec,
    device: str,
    *,
    doing: str,
    limits: PhaseLimits | None,
    on_phase: Callable[[str], None] | None,
    **fields: Any,
) -> dict[str, Any]:
    """A worker's answer to `kind`.

    Args:
        doing: What could not be done if it fails, without the model's name: `cannot check`.
        limits: Seconds that the worker may stay silent, by phase.
        on_phase: Called with the name of each phase that the worker enters.

    Raises:
        UsageError: no such model, or an option that has no effect.
        UnknownDevice: no device of that name; DeviceUnavailable: it is not here.
        WorkloadError: the user's code failed.
        MeasurementError: the worker died, or memory ran out.
    """
    check_model(spec.model)
    parse_device_name(device)
    with Worker(session=SESSION, limits=limits, on_phase=on_phase) as worker:
        request = {"type": kind, "workload": to_json(spec), "device": device, **fields}
        answer = answer_of(worker, request)
    if not isinstance(answer, Trouble):
        return answer
    if answer.error is not None:
        raise answer.error
    if answer.status.is_too_big:
        raise MeasurementError(
            f"{doing} {spec.model}: memory ran out",
            found=answer.failure.reason,
            next_step="use smaller pieces or a smaller model (--model-option); several gradients "
            "are held at a time",
        )
    if answer.failure.phase in ("start", "build"):
        raise build_error(spec, answer)
    lines = [answer.failure.reason, *answer.failure.tail]
    raise WorkloadError(
        f"{doing} {spec.model}", found="\n".join(lines), next_step="mend it there, and run again"
    )
