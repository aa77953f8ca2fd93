"""What an exception, or a worker's death, says about a micro-batch size.

One job: exception -> `Verdict`, exit status -> `Verdict`. Types come first, then the table of
messages (`bsprof.measure.messages`). Works on type names and texts only, so it needs neither
torch nor a device.
"""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bsprof.errors import BsprofError
from bsprof.measure.messages import RULES
from bsprof.records import PointStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What happened to a size, and how far to trust that.

    Attributes:
        status: `oom`, `killed`, `not_memory_limit`, `crashed` or `failed`.
        ambiguous: The same sign also comes from a fault that has nothing to do with the size:
            `status` holds only if a smaller size passes in a fresh worker, otherwise the point
            `failed`.
        reason: One sentence in plain words.
        requested_bytes: Bytes of the request that was refused; None when unknown.
    """

    status: PointStatus
    ambiguous: bool
    reason: str
    requested_bytes: int | None = None


# Programming errors: their texts may quote anything, so the table is not asked about them.
_PROGRAMMING_ERRORS = frozenset(
    {
        "ArithmeticError",
        "AssertionError",
        "AttributeError",
        "ImportError",
        "LookupError",
        "NameError",
        "SyntaxError",
        "TypeError",
    }
)
_UNIT_BYTES = {"bytes": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_UNIT_BYTES |= {"kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}  # MPS prints MB for MiB
_REQUEST = re.compile(
    r"(?:tried to allocate|Unable to allocate|Failed to CUDA [mc]alloc(?: async)?) "
    r"([\d.]+) ?(bytes|[KMGT]i?B|B)\b",
    re.IGNORECASE,
)


def requested_bytes(text: str) -> int | None:
    """Bytes of the refused request that an allocator's message names; None when it names none."""
    match = _REQUEST.search(text)
    if match is None:
        return None
    return int(float(match[1]) * _UNIT_BYTES[match[2].lower()])


def match_message(text: str) -> Verdict | None:
    """The verdict of the first line of the table that the text matches; None when none does."""
    for rule in RULES:
        if rule.pattern.search(text):
            return Verdict(
                status=rule.status,
                ambiguous=rule.ambiguous,
                reason=rule.reason,
                requested_bytes=requested_bytes(text),
            )
    return None


def classify_exception(error: BaseException) -> Verdict:
    """What an exception raised in a worker says about the size.

    Looks at the whole chain of causes and contexts (compiled code and user code wrap the first
    cause), types before messages. An unknown exception is `failed`: the workload's own fault.
    """
    chain = list(_chain(error))
    for link in chain:
        verdict = _by_type(link)
        if verdict is not None:
            return verdict
    for link in chain:
        if _type_names(link) & _PROGRAMMING_ERRORS:
            continue
        if isinstance(link, BsprofError) and link.__cause__ is not None:
            continue  # our own wrapper quotes the cause, which is looked at by itself
        verdict = match_message(_text(link))
        if verdict is not None:
            return verdict
    poisoned = any("AcceleratorError" in _type_names(link) for link in chain)
    name = type(chain[-1]).__name__
    return Verdict(
        status=PointStatus.FAILED,
        # An asynchronous device error of an unknown kind may well come from the size.
        ambiguous=poisoned,
        reason=f"the training step raised {name}",
    )


def classify_exit(exit_status: int, oom_kills: int, tail: Sequence[str] = ()) -> Verdict:
    """What a worker's death without a report says about the size.

    Args:
        exit_status: As `subprocess.Popen.returncode`: negative for a signal. A shell's 128 + n
            is understood as well.
        oom_kills: How far the kernel's out-of-memory counter of our cgroup moved meanwhile.
        tail: Last lines of what the worker wrote.
    """
    number = -exit_status if exit_status < 0 else exit_status - 128
    killed_by = number if exit_status < 0 or exit_status > 128 else 0
    if killed_by == signal.SIGKILL:
        if oom_kills > 0:
            reason = "the kernel's out-of-memory killer ended the worker"
        else:
            reason = (
                "the worker was killed (SIGKILL); the kernel's out-of-memory killer does that,"
                " but its counter did not move"
            )
        return _died(PointStatus.KILLED, reason, ambiguous=oom_kills == 0)
    verdict = match_message("\n".join(tail)) if exit_status != 0 and tail else None
    if verdict is not None and verdict.status is not PointStatus.FAILED:
        return verdict
    if killed_by:
        name = _signal_name(killed_by)
        # A null or wild pointer after a failed allocation, or an index that overflowed.
        ambiguous = name in ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE")
        return _died(PointStatus.CRASHED, f"the worker died of {name}", ambiguous=ambiguous)
    if exit_status == 0:
        return _died(PointStatus.CRASHED, "the worker ended without reporting a result")
    return _died(PointStatus.CRASHED, f"the worker ended with exit status {exit_status}")


def _died(status: PointStatus, reason: str, *, ambiguous: bool = False) -> Verdict:
    return Verdict(status=status, ambiguous=ambiguous, reason=reason)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _by_type(error: BaseException) -> Verdict | None:
    names = _type_names(error)
    text = _text(error)
    if "OutOfResources" in names:  # triton.runtime.errors
        return match_message(f"OutOfResources: {text}")
    if "OutOfMemoryError" in names:  # torch.OutOfMemoryError, torch.cuda.OutOfMemoryError
        return Verdict(
            status=PointStatus.OOM,
            ambiguous=False,
            reason="the device's allocator refused memory",
            requested_bytes=requested_bytes(text),
        )
    if isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    ):
        return Verdict(
            status=PointStatus.OOM,
            ambiguous=False,
            reason="the host refused memory",
            requested_bytes=requested_bytes(text),
        )
    return None


def _type_names(error: BaseException) -> set[str]:
    return {cls.__name__ for cls in type(error).__mro__}


def _text(error: BaseException) -> str:
    notes = getattr(error, "__notes__", ())
    return "\n".join([f"{type(error).__name__}: {error}", *map(str, notes)])


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, then what it wraps, was caused by or arose beside, each once, outermost first."""
    todo: list[BaseException] = [error]
    seen: set[int] = set()
    while todo:
        link = todo.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        inner = getattr(link, "inner_exception", None)  # torch._dynamo.exc.BackendCompilerFailed
        if isinstance(inner, BaseException):
            todo.append(inner)
        if isinstance(link, BaseExceptionGroup):
            todo.extend(link.exceptions)
        if link.__cause__ is not None:
            todo.append(link.__cause__)
        elif link.__context__ is not None and not link.__suppress_context__:
            todo.append(link.__context__)
