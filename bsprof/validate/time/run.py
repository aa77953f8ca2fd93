"""Runs a validation of times: rows, predictions, answer. Traces are kept in a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bsprof.errors import UnknownDevice
from bsprof.hardware.calibration import shipped_calibration
from bsprof.predict.roofline import Roofline
from bsprof.records import DeviceSpec
from bsprof.records.calibration import Calibration
from bsprof.validate.kept import KeptTraces
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.collect import TimeCollected
from bsprof.validate.time.groups import Group, device_of, grouped
from bsprof.validate.time.machines import of_machine
from bsprof.validate.time.outcomes import TimeOutcome, TimeUnpredicted
from bsprof.validate.time.predict import TimePredictor
from bsprof.validate.time.validation import TimeValidation


def validate(
    collected: TimeCollected,
    cache: Path,
    *,
    calibration: Calibration | None = None,
    left_out_gpu: str | None = None,
    on_group: Callable[[int, int, Group], None] = lambda _number, _count, _group: None,
) -> TimeValidation:
    """Predict all cases; what is done when it is interrupted is the answer.

    Args:
        collected: From `collect`.
        cache: Folder of kept traces.
        calibration: Coefficients; None takes the shipped ones.
        left_out_gpu: The device that these have not seen.
        on_group: Called before each group of cases, with its number from 0 and how many there are.
    """
    known, failed = _of_known_devices(collected.cases)
    groups = grouped(known)
    outcomes: list[TimeOutcome] = []
    stopped = False
    coefficients = shipped_calibration() if calibration is None else calibration

    def roofline_of(device: DeviceSpec, ceilings: Mapping[str, float]) -> Roofline:
        return Roofline.of(device, of_machine(coefficients, device.name, ceilings))

    with KeptTraces(cache) as worker:
        predictor = TimePredictor(worker, roofline_of)
        try:
            for result in predictor.predict(groups, lambda n, g: on_group(n, len(groups), g)):
                if isinstance(result, TimeOutcome):
                    outcomes.append(result)
                else:
                    failed.append(result)
        except KeyboardInterrupt:
            stopped = True
    return TimeValidation(
        collected=collected,
        outcomes=tuple(outcomes),
        failed=tuple(failed),
        left_out_gpu=left_out_gpu,
        stopped=stopped,
    )


def _of_known_devices(
    cases: Sequence[TimeCase],
) -> tuple[list[TimeCase], list[TimeUnpredicted]]:
    """Cases of devices of the catalogue, and those of others."""
    known: list[TimeCase] = []
    lost: list[TimeUnpredicted] = []
    for case in cases:
        try:
            device_of(case)
        except UnknownDevice as error:
            lost.append(TimeUnpredicted(case=case, reason=error.doing))
        else:
            known.append(case)
    return known, lost
