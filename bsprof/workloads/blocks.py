"""What `--activation-checkpointing` may say, read without importing torch."""

from __future__ import annotations

from bsprof.errors import UsageError


def parse_checkpointing(text: str) -> int:
    """Every how many blocks one is recomputed; 0 for `none`, 1 for `full`.

    Raises:
        UsageError: neither `none`, `full` nor a whole number above zero.
    """
    if text in ("none", "full"):
        return 0 if text == "none" else 1
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(
            f"cannot read the activation checkpointing {text!r}",
            next_step="write none, full, or a whole number N for every Nth block",
        )
    return int(text)
