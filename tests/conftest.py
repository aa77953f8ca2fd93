"""Fixtures for the whole suite: a clean environment, hand-made profiles, strategies for records."""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from bsprof.records import (
    Category,
    DeviceSnapshot,
    Environment,
    Phase,
    Point,
    PointStatus,
    Profile,
    Quantity,
    Stage,
    Timeline,
    Timing,
    WorkloadFacts,
    WorkloadSpec,
)
from bsprof.records.profile import SCHEMA_VERSION, Origin

settings.register_profile(
    "bsprof", max_examples=50, deadline=None, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("bsprof")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on the caller's settings of bsprof or of the terminal."""
    for name in [*os.environ]:
        if name.startswith("BSPROF_") and name != "BSPROF_SHARED_DATA":
            monkeypatch.delenv(name)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONWARNINGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


GIB = 2**30


def _made_point(size: int, seconds: float, used: int, **changes: Any) -> Point:
    samples = tuple(seconds * factor for factor in (0.99, 1.0, 1.01, 1.0, 0.995, 1.005, 1.0, 1.0))
    values: dict[str, Any] = {
        "micro_batch_size": size,
        "observed_micro_batch_size": size,
        "micro_steps_run": 12,
        "status": PointStatus.OK,
        "micro_step_s": Quantity(value=seconds, low=seconds * 0.99, high=seconds * 1.01),
        "optimizer_step_s": Quantity(value=0.01, low=0.0099, high=0.0101),
        "peak_allocated_bytes": Quantity.exact(used * 0.8),
        "device_used_bytes": Quantity.exact(used),
        "alloc_retries": 0,
        "samples_per_s": Quantity.ordered(
            size / (seconds + 0.01),
            size / (seconds * 1.01 + 0.0101),
            size / (seconds * 0.99 + 0.0099),
        ),
        "timing": Timing(
            micro_step_samples_s=samples,
            optimizer_step_samples_s=(0.0099, 0.01, 0.01, 0.0101, 0.01, 0.01),
            block_steps=1,
            warmup_steps=2,
        ),
    }
    return Point(**(values | changes))


def _made_profile(**changes: Any) -> Profile:
    sizes = (1, 2, 4, 8, 16, 32, 64)
    points = [_made_point(b, 0.02 + 0.002 * b, int(0.3 * GIB + b * 0.02 * GIB)) for b in sizes]
    points.append(Point(micro_batch_size=128, status=PointStatus.OOM))
    values: dict[str, Any] = {
        "origin": Origin.MEASURED,
        "created_at": "2026-01-14T09:00:00+00:00",
        "workload": WorkloadSpec(model="gpt-tiny", seq_len=128),
        "facts": WorkloadFacts(
            parameter_count=3_500_000,
            trainable_parameter_count=3_500_000,
            parameter_bytes=14_000_000,
            tokens_per_sample=128,
            optimizer="AdamW",
        ),
        "device": DeviceSnapshot(
            kind="cpu",
            name="Test Processor 3000",
            capacity_bytes=8 * GIB,
            usable_bytes=2 * GIB,
            threads=2,
        ),
        "environment": Environment(
            bsprof="0.1.0", python="3.11.7", torch="2.13.0", platform="Linux"
        ),
        "complete": True,
        "points": tuple(points),
        "max_micro_batch_size": Quantity(value=84, low=80, high=90),
        "duration_s": 12.5,
    }
    return Profile(**(values | changes))


@pytest.fixture(scope="session")
def make_point() -> Callable[..., Point]:
    """`make_point(size, seconds, used_bytes, **fields)`: a measured point."""
    return _made_point


@pytest.fixture(scope="session")
def make_profile() -> Callable[..., Profile]:
    """`make_profile(**fields)`: a complete CPU profile, 1 to 64 fit in 2 GiB, 128 does not."""
    return _made_profile


_FINITE = st.floats(allow_nan=False, allow_infinity=False)


def _strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a record's type hint."""
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*(_strategy(choice) for choice in typing.get_args(hint)))
    if origin is tuple:
        return st.lists(_strategy(typing.get_args(hint)[0]), max_size=3).map(tuple)
    if origin is not None and issubclass(origin, Mapping):
        key, value = typing.get_args(hint)
        return st.dictionaries(_strategy(key), _strategy(value), max_size=3)
    if hint is Quantity:
        return (
            st.lists(_FINITE, min_size=3, max_size=3)
            .map(sorted)
            .map(lambda ends: Quantity(low=ends[0], value=ends[1], high=ends[2]))
        )
    if dataclasses.is_dataclass(hint):
        return _record_strategy(typing.cast(type, hint))
    if issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    simple: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-(2**63), 2**63),
        float: _FINITE,
        str: st.text(max_size=20),
        bool: st.booleans(),
        type(None): st.none(),
    }
    return simple[hint]


def _record_strategy(record: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(record)
    names = [f.name for f in dataclasses.fields(record)]
    values = {name: _strategy(hints[name]) for name in names}
    if record is Timeline:  # rows as long as there are positions
        return st.integers(0, 3).flatmap(_timeline_strategy)
    if record is Point:  # the one record that refuses a number for its sign
        values["micro_batch_size"] = st.integers(1, 2**63)
    return st.builds(record, **values)


def _timeline_strategy(count: int) -> st.SearchStrategy[Timeline]:
    row = st.lists(st.integers(0, 2**63), min_size=count, max_size=count).map(tuple)
    inside = st.integers(0, max(0, count - 1))
    stage = st.builds(
        Stage,
        sample=inside,
        phase=_strategy(Phase | None),
        micro_step=st.integers(-1, 3),
        backward=st.booleans(),
    )
    return st.builds(
        Timeline,
        positions=row,
        bytes_by_category=st.dictionaries(_strategy(Category), row, max_size=3),
        reserved_bytes=st.one_of(st.just(()), row),
        stages=st.lists(stage, max_size=3).map(tuple),
        peak=inside,
    )


def _ordered(profile: Profile) -> Profile:
    by_size = {p.micro_batch_size: p for p in profile.points}
    points = tuple(by_size[size] for size in sorted(by_size))
    return dataclasses.replace(profile, schema=SCHEMA_VERSION, points=points)


@pytest.fixture(scope="session")
def record_strategy() -> Callable[[type], st.SearchStrategy[Any]]:
    """`record_strategy(Record)`: a hypothesis strategy for any record."""
    return lambda record: (
        _record_strategy(Profile).map(_ordered) if record is Profile else _strategy(record)
    )
