"""A current folder of its own, and `run(*words)`: one command line in this process."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bsprof.cli import main
from bsprof.measure.events import SweepEvent
from bsprof.records import Profile, SweepPlan, WorkloadSpec
from bsprof.store import profile_path, save


@dataclasses.dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """What `-v` sets up in this process writes to the stderr of one test."""
    log = logging.getLogger("bsprof")
    handlers, level = log.handlers[:], log.level
    yield
    log.handlers[:] = handlers
    log.setLevel(level)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:  # noqa: ARG001
    def command(*words: str) -> Outcome:
        capfd.readouterr()
        status = main([str(word) for word in words])
        captured = capfd.readouterr()
        return Outcome(status, captured.out, captured.err)

    return command


@pytest.fixture
def stored(folder: Path, make_profile: Callable[..., Profile]) -> Path:
    """A store in the current folder with one profile; its path."""
    profile = make_profile()
    path = profile_path(profile, Path("profiles"))
    save(profile, path)
    return folder / path


class FakeSweep:
    """Stands in for `run_sweep`: remembers its arguments, saves and returns a made profile."""

    def __init__(self, make_profile: Callable[..., Profile]) -> None:
        self.make_profile = make_profile
        self.changes: dict[str, Any] = {}
        self.failure: BaseException | None = None
        self.saves = True
        self.calls: list[dict[str, Any]] = []

    def __call__(
        self,
        spec: WorkloadSpec | str,
        *,
        device: str = "auto",
        plan: SweepPlan | None = None,
        output: Path | None = None,
        resume: Profile | None = None,
        store: Path | None = None,
        on_event: Callable[[SweepEvent], None] | None = None,
        limits: object = None,
    ) -> Profile:
        assert limits is None
        assert isinstance(spec, WorkloadSpec)
        assert on_event is not None
        self.calls.append(
            {"spec": spec, "device": device, "plan": plan, "output": output, "resume": resume}
        )
        profile = self.make_profile(
            **{"workload": spec, "complete": self.failure is None} | self.changes
        )
        assert store is not None
        if self.saves:
            save(profile, output or profile_path(profile, store))
        on_event(SweepEvent(kind="start", text="measuring on a made device"))
        on_event(SweepEvent(kind="phase", text="step"))
        for done, point in enumerate(profile.points, start=1):
            text = f"size {point.micro_batch_size}: {point.status}"
            on_event(SweepEvent(kind="point", text=text, point=point, done=done))
        on_event(SweepEvent(kind="note", text="the made device is fine"))
        if self.failure is not None:
            raise self.failure
        return profile


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch, make_profile: Callable[..., Profile]) -> FakeSweep:
    fake = FakeSweep(make_profile)
    monkeypatch.setattr("bsprof.measure.sweep.run_sweep", fake)
    return fake
