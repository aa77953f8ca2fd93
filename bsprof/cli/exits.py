"""Exit statuses: one table, from the class of an error to the number the shell sees."""

from __future__ import annotations

from enum import IntEnum

from bsprof import errors


class Exit(IntEnum):
    """What the shell sees.

    `OK`: answered, possibly with notes; out of memory at some size is a normal end of a sweep.
    `INTERNAL`: a bug. `USAGE`: a bad option, argument or configuration. `INPUT`: a profile,
    device, workload or output place is missing or unusable. `MEASUREMENT`: not one usable point.
    `NO_ANSWER`: measured, but nothing feasible. `INTERRUPTED`: Ctrl-C, finished points are kept.
    """

    OK = 0
    INTERNAL = 1
    USAGE = 2
    INPUT = 3
    MEASUREMENT = 4
    NO_ANSWER = 5
    INTERRUPTED = 130


_BY_CLASS: dict[type[errors.BsprofError], Exit] = {
    errors.UsageError: Exit.USAGE,
    errors.WorkloadError: Exit.INPUT,
    errors.ProfileNotFound: Exit.INPUT,
    errors.ProfileFormatError: Exit.INPUT,
    errors.ProfileTooNew: Exit.INPUT,
    errors.PlanFormatError: Exit.INPUT,
    errors.UnknownDevice: Exit.INPUT,
    errors.DeviceUnavailable: Exit.INPUT,
    errors.CalibrationError: Exit.INPUT,
    errors.OutputError: Exit.INPUT,
    errors.MeasurementError: Exit.MEASUREMENT,
    errors.FitError: Exit.NO_ANSWER,
    errors.NoFeasibleBatch: Exit.NO_ANSWER,
}


def exit_status(error: errors.BsprofError) -> Exit:
    """The exit status of an expected failure; a class that is not in the table is a bug."""
    for kind in type(error).__mro__:
        if kind in _BY_CLASS:
            return _BY_CLASS[kind]
    return Exit.INTERNAL
