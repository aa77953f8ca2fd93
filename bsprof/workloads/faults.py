"""Errors out of the user's code: which of them are the workload's fault, and where they arose.

Memory and device errors are no fault of the user's: they pass through untouched, for whoever
measures to classify.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bsprof.errors import BsprofError, WorkloadError

TAIL_LINES = 6
"""Traceback lines shown to the user. Heuristic: the raising line with its caller and the error."""

_PACKAGE = Path(__file__).resolve().parents[1]
_NOT_THE_USERS = tuple(
    Path(path).resolve()
    for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
)

_ADVICE = {
    r"stack expects each tensor to be equal size": (
        "samples of different lengths: pad them in a collate function, the DataLoader's "
        "collate_fn or collate= of Workload.from_batches"
    ),
    r"\bforward\(\) missing \d+ required (?:positional|keyword-only) arguments?: (.+)": (
        "the model's forward needs {0}: make it in batch(), and pass it in loss(model, batch)"
    ),
    r"Expected all tensors to be on the same device": (
        "make every tensor on the device that batch() is given; in a model, on that of its input"
    ),
}
"""Error texts of PyTorch and Python, and what to do; groups of the pattern are filled in."""

_CALLS = ("_wrapped_call_impl", "_call_impl")
"""How a `torch.nn.Module` calls its forward: frames that say nothing about the user's code."""

_DEVICE_WORDS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "could not create a memory",
    "alloc_failed",
    "allocation failed",
    "cublas_status",
    "cudnn_status",
    "cusolver_status",
    "cuda error",
    "hip error",
    "hiperror",
    "level_zero",
    "ur_result_error",
    "nccl",
    "unable to find an engine",
)
"""Fragments (lower case) of RuntimeErrors that speak of memory or of the device."""


def is_device_error(error: BaseException) -> bool:
    """Whether an error speaks of memory or of the device rather than of the user's code."""
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    text = str(error).lower()
    return any(words in text for words in _DEVICE_WORDS)


def user_location(error: BaseException) -> str | None:
    """`file.py:12` where the user's own code was when `error` arose, or None.

    The deepest frame that is neither bsprof's, nor Python's, nor of an installed package. For a
    syntax error the place that Python names.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if _is_the_users(frame.filename):
            return f"{frame.filename}:{frame.lineno}"
    return None


def traceback_tail(error: BaseException, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """The last lines of the traceback, the error itself last.

    Without bsprof's own frames, and without those by which Python imports and PyTorch calls.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not _is_inside(Path(frame.filename), _PACKAGE)
        and not frame.filename.startswith("<frozen ")
        and frame.name not in _CALLS
    ]
    text = "".join(traceback.format_list(frames))
    text += "".join(traceback.format_exception_only(error))
    return tuple(line.rstrip() for line in text.splitlines() if line.strip())[-lines:]


def advice(message: str) -> str | None:
    """What to do about an error of PyTorch's or Python's that users often meet; None for others."""
    for pattern, text in _ADVICE.items():
        found = re.search(pattern, message)
        if found:
            return text.format(*found.groups())
    return None


@contextmanager
def user_code(doing: str) -> Iterator[None]:
    """Turn what the user's code raises inside the block into a `WorkloadError`.

    Args:
        doing: What could not be done, as `BsprofError` wants it.

    Raises:
        WorkloadError: naming file and line, with the last lines of the traceback. Errors of
            bsprof, of memory and of the device pass through untouched.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, BsprofError) or is_device_error(error):
            raise
        location = user_location(error)
        tail = "\n".join(traceback_tail(error))
        found = f"{location}: {_one_line(error)}" if location else _one_line(error)
        raise WorkloadError(doing, found=f"{found}\n{tail}", next_step=_hint(error)) from error


def _one_line(error: BaseException) -> str:
    """Type and first line of an error's message."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def _hint(error: BaseException) -> str:
    if isinstance(error, ImportError) and "relative import" in str(error):
        return "name the file as a module of its package, pkg.mod:factory"
    if isinstance(error, ModuleNotFoundError):
        return f"install {error.name!r} where bsprof runs, or run bsprof from the folder it is in"
    return advice(str(error)) or "correct it there and run again"


def _is_the_users(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    path = Path(filename)
    if {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(_is_inside(path, folder) for folder in (_PACKAGE, *_NOT_THE_USERS))


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder)
