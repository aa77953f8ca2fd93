"""Output files: checked before any work, written whole, never over another without `--force`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bsprof.cli.terminal import Terminal
from bsprof.errors import OutputError, UsageError
from bsprof.store import atomic_write, is_special

STDOUT = "-"


def check_output(output: str | None, *, force: bool) -> None:
    """Find out now, not after minutes of measuring, whether that file can be written.

    Raises:
        UsageError: `--force` without a file to force.
        OutputError: the file exists, or its folder does not, or cannot be written.
    """
    if output is None or output == STDOUT:
        if force:
            raise UsageError(
                "--force has nothing to overwrite", next_step="name a file with -o, or drop it"
            )
        return
    path = Path(output)
    if path.is_dir():
        raise OutputError(
            f"cannot write {path}", found="a folder of that name", next_step="name a file with -o"
        )
    if is_special(path):
        return  # a device or a pipe: nothing is overwritten, and no file is made beside it
    if path.exists() and not force:
        raise OutputError(
            f"cannot write {path}",
            found="the file exists",
            next_step="add --force to overwrite it, or choose another name",
        )
    if not path.parent.is_dir():
        raise OutputError(
            f"cannot write {path}",
            found=f"no folder {path.parent}",
            next_step=f"make it with `mkdir -p {path.parent}`",
        )
    check_folder(Path(os.path.realpath(path)).parent, f"cannot write {path}")


def check_folder(folder: Path, doing: str) -> None:
    """Find out whether files can be made in that folder, or in the one it would be made in.

    Raises:
        OutputError: they cannot.
    """
    import tempfile

    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        # An attempt, because permission bits say nothing about read-only mounts, nor to root.
        descriptor, name = tempfile.mkstemp(prefix=".bsprof-", dir=folder)
    except OSError as error:
        raise OutputError(
            doing,
            found=f"{folder}: {error.strerror or type(error).__name__}",
            next_step="choose another place with -o or BSPROF_STORE",
        ) from error
    os.close(descriptor)
    Path(name).unlink()


def write_output(output: str, content: bytes, terminal: Terminal) -> None:
    """Write the file (`-`: stdout) and say so on stderr.

    Raises:
        OutputError: the file cannot be written.
    """
    if output == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    atomic_write(Path(output), content)
    terminal.status(f"wrote {output}")
