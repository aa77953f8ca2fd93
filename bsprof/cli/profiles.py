"""`bsprof profiles`: what the store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from bsprof.cli.options import DOCUMENT_SCHEMA, Color, Debug, Json, Quiet, Verbose, terminal_of

if TYPE_CHECKING:
    from bsprof.records import Profile
    from bsprof.store import StoredProfile

EXAMPLE = "bsprof profiles"

COLUMNS = ("profile", "model", "device", "precision", "points", "confirmed", "largest", "state")
_NUMERIC = frozenset({COLUMNS.index("points"), COLUMNS.index("largest")})


def command(
    ctx: typer.Context,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    color: Color = "auto",
) -> None:
    """List what the store holds.

    Newest first, then the reference profiles that come with bsprof.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.store import listing, store_folder

    store = store_folder()
    entries = listing(store)
    if as_json:
        import json

        document = {
            "schema": DOCUMENT_SCHEMA,
            "profiles": [_document(entry) for entry in entries],
            "store": str(store),
        }
        terminal.answer(json.dumps(document, indent=1, sort_keys=True))
        return
    terminal.table(COLUMNS, [_row(entry) for entry in entries], numeric=_NUMERIC)
    for entry in entries:
        if entry.problem is not None:
            terminal.note(f"{entry.path} cannot be read: {entry.problem.found}", label="warning")
    if not any(not entry.name.startswith("reference/") for entry in entries):
        terminal.note(f"the store {store} is empty; fill it with `bsprof sweep --model MODEL`")


def _document(entry: StoredProfile) -> dict[str, object]:
    from bsprof.records.codec import to_json

    profile = entry.profile
    document: dict[str, object] = {
        "name": entry.name,
        "path": str(entry.path),
        "problem": None if entry.problem is None else entry.problem.found,
    }
    if profile is None:
        return document
    return document | {
        "schema": profile.schema,
        "origin": profile.origin.value,
        "created_at": profile.created_at,
        "model": profile.workload.model,
        "precision": profile.workload.precision.value,
        "mode": profile.workload.mode.value,
        "device": profile.device.name,
        "device_kind": profile.device.kind,
        "complete": profile.complete,
        "tried": [point.micro_batch_size for point in profile.points],
        "confirmed": [point.micro_batch_size for point in profile.points if point.confirmed],
        "max_micro_batch_size": to_json(profile.max_micro_batch_size),
    }


def _row(entry: StoredProfile) -> list[str]:
    profile = entry.profile
    if profile is None:
        return [entry.name, *["-"] * (len(COLUMNS) - 2), "unreadable"]
    confirmed = [str(point.micro_batch_size) for point in profile.points if point.confirmed]
    largest = profile.max_micro_batch_size
    return [
        entry.name,
        profile.workload.model,
        profile.device.name,
        profile.workload.precision.value,
        str(len(profile.points)),
        ",".join(confirmed) or "-",
        "-" if largest is None else f"{largest.value:.0f}",
        _state(profile),
    ]


def _state(profile: Profile) -> str:
    """`complete`, `partial`, `predicted`, ..."""
    from bsprof.records import Origin

    if profile.origin is Origin.MEASURED:
        return "complete" if profile.complete else "partial"
    return str(profile.origin)
