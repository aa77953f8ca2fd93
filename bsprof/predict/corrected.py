"""A measured profile held against its own prediction: what that says of other predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median

from bsprof.errors import UsageError
from bsprof.hardware.known import device_of
from bsprof.predict.correction import Correction
from bsprof.predict.timing import TimeModel, TimePrediction
from bsprof.predict.transfer import Observation, correction_from, elsewhere
from bsprof.records import DeviceSpec, Origin, Point, Profile, Quantity, WorkloadSpec

_Z90 = 1.645
_LEAST_SPREAD = 0.05
_MOST_OPTIMIZER = 3.0
"""An optimizer step that is off by more is another one: it says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measured profile, and the device that it was measured on as predictions know it."""

    profile: Profile
    device: DeviceSpec


def measured_on(profile: Profile) -> Measured:
    """The profile with its device.

    Raises:
        UnknownDevice: no prediction can be made for that device.
    """
    return Measured(profile=profile, device=device_of(profile.device))


def correction_of(measured: Profile, model: TimeModel, *, same_device: bool) -> Correction:
    """What a measured profile says.

    Args:
        measured: Of the workload that is predicted, with at least one timed size.
        model: Of the device that it was measured on.
        same_device: Whether that device is the one to predict for.

    Raises:
        UsageError: the profile has no time.
    """
    pairs = [
        (point, model.predict(point.micro_batch_size))
        for point in measured.ok_points()
        if point.micro_step_s is not None
    ]
    if not pairs:
        raise UsageError(
            "the profile given with --from has no time",
            next_step="name one that was measured, with a size that ran",
        )
    found = correction_from(
        [
            Observation(
                device_s=predicted.micro_step.device_s,
                host_s=predicted.micro_step.host_s,
                measured_s=point.micro_step_s.value,
            )
            for point, predicted in pairs
            if point.micro_step_s is not None
        ],
        machine_spread=max(_LEAST_SPREAD, median(_spread(p.micro_step_s) for _, p in pairs)),
        source=f"{len(pairs)} measured size{'s' * (len(pairs) > 1)} on {measured.device.name}",
    )
    found = replace(found, optimizer_scale=_optimizer_scale(pairs, found))
    return found if same_device else elsewhere(found)


def check_source(measured: Profile, spec: WorkloadSpec) -> None:
    """Refuse a profile that says nothing of a workload.

    Raises:
        UsageError: it was not measured, or is of another workload.
    """
    if measured.origin is not Origin.MEASURED:
        raise UsageError(
            "the profile given with --from was not measured",
            found=str(measured.origin),
            next_step="name one that `bsprof sweep` measured",
        )
    if measured.workload == spec:
        return
    from bsprof.records.codec import to_json

    ours, theirs = to_json(spec), to_json(measured.workload)
    differing = [name for name in ours if ours[name] != theirs[name]]
    raise UsageError(
        "the profile given with --from is of another workload",
        found=", ".join(f"{n}: {theirs[n]} there, {ours[n]} here" for n in differing),
        next_step="give the same options, or measure a size of this workload",
    )


def _spread(quantity: Quantity) -> float:
    """Standard deviation of the logarithm behind a 90 % interval."""
    return math.log(quantity.high / max(quantity.low, 1e-3 * quantity.value)) / (2 * _Z90)


def _optimizer_scale(pairs: list[tuple[Point, TimePrediction]], found: Correction) -> float:
    ratios = [
        point.optimizer_step_s.value / (found.scale * predicted.optimizer_step_s.value)
        for point, predicted in pairs
        if point.optimizer_step_s is not None
        and predicted.optimizer_step_s is not None
        and predicted.optimizer_step_s.value > 0
    ]
    ratio = median(ratios) if ratios else 1.0
    return ratio if 1 / _MOST_OPTIMIZER < ratio < _MOST_OPTIMIZER else 1.0
