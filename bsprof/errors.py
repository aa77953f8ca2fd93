"""The errors that bsprof raises; nothing here prints, exits or imports anything.

    BsprofError
    |-- UsageError            an option or argument that cannot be (exit status 2)
    |-- WorkloadError         the user's model, factory or batch function is at fault (3)
    |-- ProfileNotFound       no stored profile answers the question (3)
    |-- ProfileFormatError    a profile file that cannot be understood (3)
    |   `-- ProfileTooNew     written by a later bsprof (3)
    |-- PlanFormatError       a plan file that cannot be understood, or was changed by hand (3)
    |-- UnknownDevice         a device name nobody knows (3)
    |-- DeviceUnavailable     a known kind of device that this machine does not offer (3)
    |-- CalibrationError      a device or calibration file that cannot be understood (3)
    |-- OutputError           a file that cannot be written (3)
    |-- MeasurementError      measured, but not one usable point (4)
    |-- FitError              too little or contradictory data for a curve (5)
    `-- NoFeasibleBatch       measured, and nothing fits the question (5)

Exit statuses live in `bsprof.cli`, in one table. An out-of-memory result at some size is a
status of a point, never one of these.
"""

from __future__ import annotations


class BsprofError(Exception):
    """An expected failure, told in three parts: what was being done, what was found, what next.

    Args:
        doing: One sentence without a full stop: what could not be done.
        found: What was found instead: values, paths, the last lines of a failing script.
        next_step: What the reader can do now.
    """

    def __init__(self, doing: str, *, found: str = "", next_step: str = "") -> None:
        super().__init__(doing)
        self.doing = doing
        self.found = found
        self.next_step = next_step

    def __str__(self) -> str:
        parts = [self.doing]
        if self.found:
            parts.append(f"found: {self.found}")
        if self.next_step:
            parts.append(f"next: {self.next_step}")
        return "\n".join(parts)


class UsageError(BsprofError):
    """An option or argument whose value cannot be."""


class WorkloadError(BsprofError):
    """The model, factory, batch function or loss is at fault; `found` names file and line."""


class ProfileNotFound(BsprofError):
    """No stored profile answers the question."""


class ProfileFormatError(BsprofError):
    """A profile file that cannot be understood; `found` names the field."""


class ProfileTooNew(ProfileFormatError):
    """A profile file written in a later format."""


class PlanFormatError(BsprofError):
    """A plan file that cannot be understood; `found` names the field."""


class UnknownDevice(BsprofError):
    """A device name that nothing here knows."""


class DeviceUnavailable(BsprofError):
    """A kind of device that this machine, or its torch build, does not offer."""


class CalibrationError(BsprofError):
    """A file of devices or calibration that cannot be understood; `found` names the key."""


class OutputError(BsprofError):
    """A file or folder that cannot be written."""


class MeasurementError(BsprofError):
    """The sweep ran and has not one usable point."""


class FitError(BsprofError):
    """Too little or contradictory data for a curve."""


class NoFeasibleBatch(BsprofError):
    """Measured, and no micro-batch size answers the question."""
