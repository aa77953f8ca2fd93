"""How a worker answers when a request raised: what the parent classifies or raises again."""

from __future__ import annotations

from typing import Any

from bsprof.errors import BsprofError
from bsprof.measure.classify import classify_exception
from bsprof.workloads.faults import traceback_tail, user_location

TAIL_LINES = 12


def describe(error: Exception) -> dict[str, Any]:
    """An `error` answer: what the parent needs to classify, show, or raise again."""
    verdict = classify_exception(error)
    answer: dict[str, Any] = {
        "type": "error",
        "error_type": type(error).__name__,
        "message": str(error)[:2000],
        "tail": list(traceback_tail(error, TAIL_LINES)),
        "location": user_location(error),
        "status": verdict.status.value,
        "ambiguous": verdict.ambiguous,
        "reason": verdict.reason,
        "requested_bytes": verdict.requested_bytes,
    }
    if isinstance(error, BsprofError):
        answer["bsprof"] = {
            "doing": error.doing,
            "found": error.found,
            "next_step": error.next_step,
        }
    return answer
