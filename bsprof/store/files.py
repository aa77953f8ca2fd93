"""Files that are either whole or not there: written beside the target, then renamed onto it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from bsprof.errors import OutputError


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash at any moment, sees the old or the new content.

    Missing parent folders are made. The content is on disk before the name changes. A symbolic
    link stays one: the file that it names is replaced. What is no regular file (a device, a pipe)
    is written into, as nothing can be renamed onto it without destroying it.

    Raises:
        OutputError: the file or its folder cannot be written.
    """
    try:
        if is_special(path):
            with path.open("wb") as file:
                file.write(content)
        else:
            _replace(Path(os.path.realpath(path)), content)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}",
            found=error.strerror or type(error).__name__,
            next_step="choose another place, or make room there",
        ) from error


def is_special(path: Path) -> bool:
    """Whether something is there that is neither a regular file nor a folder: `/dev/null`."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
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


def _sync_folder(folder: Path) -> None:
    # The rename itself must survive a power cut; some file systems refuse to sync a folder.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
