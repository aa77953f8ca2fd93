"""A catalogue entry's settings, with the user's over them, as the record of a family."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.catalogue.entries import Entry, Setting

Record = TypeVar("Record")


def read_settings(kind: type[Record], spec: WorkloadSpec, entry: Entry) -> Record:
    """The settings of an entry under `--model-option` and `--seq-len`.

    Args:
        kind: A dataclass with a field for every setting of the entry.
        spec: What was asked for.
        entry: The entry of the catalogue.

    Raises:
        UsageError: no such setting, a value of another kind, a size below 1 or a share that is
            not from 0 to below 1.
    """
    values: dict[str, Setting] = dict(entry.configured(spec.model_options))
    if spec.seq_len is not None and "seq_len" in values:
        values["seq_len"] = spec.seq_len
    for key, value in values.items():
        _check(entry, key, value)
    return kind(**cast(dict[str, Any], values))


def check_heads(entry: Entry, width: int, heads: int) -> None:
    """Refuse a width that the heads cannot share equally.

    Raises:
        UsageError: naming both.
    """
    if width % heads:
        raise UsageError(
            f"{entry.name} needs a width that is a multiple of its heads",
            found=f"width={width}, heads={heads}",
            next_step="change one of them with --model-option",
        )


def check_length(entry: Entry, seq_len: int, positions: int, table: int | None = None) -> None:
    """Refuse a sequence longer than the table of learned positions.

    Args:
        entry: The entry of the catalogue.
        seq_len: Tokens of a sample.
        positions: The most tokens that have a position.
        table: Rows of the table, where some are kept for other use; None is `positions`.

    Raises:
        UsageError: naming the longest that is possible, and the setting that makes it longer.
    """
    if seq_len > positions:
        longer = seq_len + (0 if table is None else table - positions)
        raise UsageError(
            f"--seq-len {seq_len} is beyond the positions of {entry.name}",
            found=f"{positions} learned positions",
            next_step=f"use at most {positions}, or --model-option positions={longer}, which "
            "adds parameters",
        )


def _check(entry: Entry, key: str, value: Setting) -> None:
    """Refuse a number that no model can be built with."""
    default = entry.config[key]
    if isinstance(value, tuple) and isinstance(default, tuple):
        if len(value) != len(default) and key == "depths":
            raise UsageError(
                f"{entry.name} needs {len(default)} numbers for the setting {key}",
                found=",".join(map(str, value)),
                next_step=f"its own: {','.join(map(str, default))}",
            )
        fine = all(part >= 1 for part in value)
        least = "whole numbers above zero"
    elif isinstance(value, float):
        fine = 0 <= value < 1
        least = "a number from 0 to below 1"
    elif isinstance(value, int) and not isinstance(value, bool):
        lowest = min(1, cast(int, default))
        fine = value >= lowest
        least = f"at least {lowest}"
    else:
        return
    if not fine:
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
        raise UsageError(
            f"{entry.name} cannot be built with {key}={shown}", next_step=f"give {least}"
        )
