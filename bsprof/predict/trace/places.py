"""Which line of a workload's code something comes from: outside of torch and of bsprof."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import FrameType

import bsprof
from bsprof.errors import BsprofError
from bsprof.workloads.faults import user_location

_OURS = f"{Path(bsprof.__file__).parent}/"
_STDLIB = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))


def place_of(error: BaseException) -> str:
    """`file.py:12` where an error arose: the user's own line, else a package's; `?` for none."""
    cause = error.__cause__ if isinstance(error, BsprofError) else None
    if cause is not None:
        return place_of(cause)
    found = "?"
    trace = error.__traceback__
    while trace is not None:
        if _is_theirs(trace.tb_frame.f_code.co_filename):
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return user_location(error) or found


def told(error: BaseException) -> str:
    """An error's kind and the first line of what it says."""
    cause = error.__cause__ if isinstance(error, BsprofError) else None
    if cause is not None:
        return told(cause)
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def running_place() -> str:
    """`file.py:12` of the innermost line that runs now; `?` for none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_theirs(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


def _is_theirs(file: str) -> bool:
    """Whether a file is a user's or a model package's."""
    if file.startswith(("<", _OURS)) or "/site-packages/torch/" in file:
        return False
    return "/site-packages/" in file or not file.startswith(_STDLIB)
