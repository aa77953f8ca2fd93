"""Which profile a reading command means, and the question it asks of it."""

from __future__ import annotations

import logging

from bsprof.cli.terminal import Terminal
from bsprof.records import Profile
from bsprof.store import newest, read, store_folder

log = logging.getLogger(__name__)


def chosen_profile(
    terminal: Terminal,
    named: str | None,
    *,
    model: str | None = None,
    device: str | None = None,
) -> tuple[str, Profile]:
    """Name and profile: the named one, else the newest of the store, which is told on stderr.

    Raises:
        ProfileNotFound: there is none.
        ProfileFormatError: it cannot be read.
    """
    store = store_folder()
    if named is not None:
        entry = read(named, store)
    else:
        entry = newest(store, model=model, device=device)
        terminal.note(f"profile {entry.name}, the newest in {store}")
    log.info("read %s", entry.path)
    assert entry.profile is not None
    if not entry.profile.complete:
        from bsprof.recommend.commands import sweep_command

        finish = sweep_command(entry.profile, "-o", str(entry.path), "--resume")
        terminal.note(f"{entry.name} is partial; finish it with `{finish}`")
    return entry.name, entry.profile
