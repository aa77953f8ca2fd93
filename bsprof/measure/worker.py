"""The worker process: serves the requests of its parent, to measure or to trace.

Run as `python -m bsprof.measure.worker REQUEST_FD REPLY_FD PARENT_PID SESSION`, where SESSION is
the module whose `Session` answers (`bsprof.measure.session`). Answers travel on their own
close-on-exec descriptor, so what the user's code prints, or a grandchild holds, cannot touch
them. The worker ends itself, and its process group, when its parent is gone.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from typing import Any

from bsprof.measure import wire

ORPHAN_CHECK_S = 0.5


class Connection:
    """The worker's end of the wire."""

    def __init__(self, request_descriptor: int, reply_descriptor: int) -> None:
        # pass_fds made them inheritable for this process; the user's children get neither.
        os.set_inheritable(request_descriptor, False)
        os.set_inheritable(reply_descriptor, False)
        self._requests = os.fdopen(request_descriptor, "rb")
        self._reply_descriptor = reply_descriptor
        self._last_beat = ("", 0.0)

    def receive(self) -> dict[str, Any] | None:
        """The next request; None when the parent closed its end."""
        line = self._requests.readline()
        return wire.decode(line) if line else None

    def send(self, message: dict[str, Any]) -> None:
        """One message to the parent."""
        wire.write_all(self._reply_descriptor, wire.encode(message))

    def beat(self, phase: str) -> None:
        """Say that `phase` goes on; the same phase at most ten times a second."""
        now = time.monotonic()
        if phase != self._last_beat[0] or now - self._last_beat[1] >= 0.1:
            self._last_beat = (phase, now)
            self.send({"type": "beat", "phase": phase})


def end_when_orphaned(parent: int) -> None:
    """See to it that this process, and all of its group, end once `parent` is gone.

    The kernel ends this process on Linux (also when user code never lets go of the GIL), a thread
    elsewhere; a guard ends the group, so that no process of the user's script is left behind.
    """
    _start_guard()
    _ask_kernel_to_end_with_parent()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(ORPHAN_CHECK_S)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=watch, name="orphan-watch", daemon=True).start()


def _start_guard() -> None:
    """Fork a small process of the same group that ends the group when this process is gone.

    Forked before torch is imported and before any thread exists.
    """
    worker = os.getpid()
    if os.fork():
        return
    os.closerange(3, 1024)  # no pipe is held open from here
    while os.getppid() == worker:
        time.sleep(ORPHAN_CHECK_S)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _ask_kernel_to_end_with_parent() -> None:
    """On Linux the kernel itself sends SIGKILL when the parent is gone."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    set_parent_death_signal = 1  # PR_SET_PDEATHSIG, linux/prctl.h
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


def main(arguments: list[str]) -> None:
    """Serve requests until the parent closes the wire."""
    *numbers, session_module = arguments
    request_descriptor, reply_descriptor, parent = map(int, numbers)
    connection = Connection(request_descriptor, reply_descriptor)
    end_when_orphaned(parent)
    connection.beat("start")
    connection.send(
        {"type": "hello", "pid": os.getpid(), "rank": 0, "local_rank": 0, "world_size": 1}
    )
    # Now, while nothing is timed: optimizers and the counting pass would import it later.
    importlib.import_module("torch._dynamo")

    session = importlib.import_module(session_module).Session(connection.beat)
    while (request := connection.receive()) is not None:
        connection.send(session.answer(request))


if __name__ == "__main__":
    main(sys.argv[1:])
