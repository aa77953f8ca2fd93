"""Files that are either whole or not there: written beside the target, then renamed onto it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from bsprof.errors import OutputError


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash at any moment, sees the old or the new content.

    Missing parent folders are made. The content is on disk before the name changes.

    Raises:
        OutputError: the file or its folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:  # Ctrl-C too must not leave the half-written file behind
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}",
            found=error.strerror or type(error).__name__,
            next_step="choose another place, or make room there",
        ) from error


def _sync_folder(folder: Path) -> None:
    # The rename itself must survive a power cut; some file systems refuse to sync a folder.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
