"""The parent's side of one worker process: starts it, asks it, and sees how it ends.

Loads no torch and holds no device context. A worker's death is seen by its exit, never by the end
of a pipe (a grandchild can hold that open); its whole process group is ended with it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsprof.measure import wire
from bsprof.measure.host import oom_kill_count

TAIL_LINES = 12
"""Last lines of what the worker and the user's script wrote that are kept for a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer to a request: `payload` as the worker sent it."""

    payload: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The worker ended, or was ended, without an answer.

    Attributes:
        phase: The last phase it had entered.
        exit_status: As `subprocess` gives it, negative for a signal.
        timed_out_s: The limit that the phase overran; None when the worker ended by itself.
        oom_kills: How far the cgroup's out-of-memory counter rose meanwhile.
        tail: Last lines that the worker wrote.
        began: Whether it had begun with the request, or was gone before.
    """

    began: bool
    phase: str
    exit_status: int
    timed_out_s: float | None
    oom_kills: int
    tail: tuple[str, ...]


MEASURING = "bsprof.measure.session"
"""The module whose `Session` answers in a worker that measures."""


class Worker:
    """One worker process. Use as a context manager; leaving it ends the process group.

    Args:
        session: The module whose `Session` answers requests in the worker.
        limits: Seconds that each phase may last.
        on_phase: Called with the name of each phase that the worker enters.
    """

    def __init__(
        self,
        *,
        session: str = MEASURING,
        limits: wire.PhaseLimits | None = None,
        on_phase: Callable[[str], None] | None = None,
    ) -> None:
        self.limits = limits or wire.PhaseLimits()
        self.phase = "start"
        self._on_phase = on_phase
        self._oom_kills_before = oom_kill_count()
        # Appending: reading the end of it moves no write. Closed by `end`.
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        request_read, self._request_write = os.pipe()
        self._reply_read, reply_write = os.pipe()
        os.set_blocking(self._reply_read, False)
        environment = dict(os.environ)
        # The package may be a checkout that is only on this process's own path.
        package_root = str(Path(__file__).resolve().parents[2])
        paths = [package_root, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "bsprof.measure.worker",
                    str(request_read),
                    str(reply_write),
                    str(os.getpid()),
                    session,
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(request_read, reply_write),
                start_new_session=True,
                env=environment,
            )
        finally:
            os.close(request_read)
            os.close(reply_write)
        self._exit_descriptor = _exit_descriptor(self._process.pid)
        self._reader = wire.LineReader(self._reply_read)
        self._pending: list[bytes] = []
        self._beats = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Process (and process group) number."""
        return self._process.pid

    def ask(self, request: dict[str, Any]) -> Reply | Death:
        """Send a request and wait for its answer, the worker's death, or a phase's limit.

        The worker's last words count: an answer that was sent before a crash is an answer.
        """
        with contextlib.suppress(BrokenPipeError):  # already dead: the wait below finds out how
            wire.write_all(self._request_write, wire.encode(request))
        deadline = self._deadline()
        self._beats = 0
        while True:
            for line in self._lines():
                message = wire.decode(line)
                if message["type"] == "beat":
                    self._beats += 1
                    self._enter(str(message["phase"]))
                elif message["type"] != "hello":  # one says that the worker has started
                    return Reply(payload=message)
                deadline = self._deadline()
            if self._process.poll() is not None:
                if self._reader_has_more():
                    continue
                return self._died(None)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                limit = self.limits.of(self.phase)
                self._kill()
                return self._died(limit)
            self._wait(remaining)

    def end(self) -> None:
        """End the worker and everything in its process group; safe to call twice."""
        if self._request_write >= 0:
            self._kill()
            for descriptor in (self._request_write, self._reply_read, self._exit_descriptor):
                if descriptor is not None:
                    os.close(descriptor)
            self._request_write = -1
            self._log.close()

    def _lines(self) -> list[bytes]:
        lines = self._pending + self._reader.lines()
        # One answer at a time: what follows it belongs to the next request.
        self._pending = lines[1:]
        return lines[:1]

    def _reader_has_more(self) -> bool:
        if not self._pending:
            self._pending = self._reader.lines()
        return bool(self._pending)

    def _enter(self, phase: str) -> None:
        if phase != self.phase:
            self.phase = phase
            if self._on_phase is not None:
                self._on_phase(phase)

    def _deadline(self) -> float:
        return time.monotonic() + self.limits.of(self.phase)

    def _wait(self, seconds: float) -> None:
        if self._pending:
            return
        watched = select.poll()  # unlike select, it takes descriptors above 1023
        if not self._reader.at_end:
            watched.register(self._reply_read, select.POLLIN)
        if self._exit_descriptor is not None:
            watched.register(self._exit_descriptor, select.POLLIN)
        else:  # no pidfd on this system: look at the exit status every so often
            seconds = min(seconds, 0.05)
        watched.poll(1000 * seconds)

    def _kill(self) -> None:
        """SIGKILL to the process group: also to grandchildren that outlived the worker."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _died(self, timed_out_s: float | None) -> Death:
        exit_status = self._process.wait()
        self._kill()
        return Death(
            began=self._beats > 0 or timed_out_s is not None,
            phase=self.phase,
            exit_status=exit_status,
            timed_out_s=timed_out_s,
            oom_kills=oom_kill_count() - self._oom_kills_before,
            tail=self.tail(),
        )

    def tail(self) -> tuple[str, ...]:
        """Last lines that the worker and the user's script wrote to stdout and stderr."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 16384))
        text = self._log.read().decode(errors="replace")
        return tuple(line.rstrip() for line in text.splitlines() if line.strip())[-TAIL_LINES:]


def _exit_descriptor(pid: int) -> int | None:
    """A descriptor that becomes readable when the process exits; None where there is no such."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
