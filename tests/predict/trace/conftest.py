"""What the tests of traces share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsprof.predict.stream import Stream
from bsprof.predict.target import Protocol, Semantics, TraceTarget
from bsprof.records import WorkloadSpec

sys.path.insert(0, str(Path(__file__).parent))

STEADY = Protocol()


@pytest.fixture
def traced() -> Callable[..., Stream]:
    """`traced(model, size, semantics=..., protocol=..., **fields of the spec)`: its stream."""

    def run(
        model: str,
        size: int,
        *,
        semantics: Semantics = Semantics.CPU,
        protocol: Protocol = STEADY,
        **fields: Any,
    ) -> Stream:
        from bsprof.predict.trace.run import trace_stream

        spec = WorkloadSpec(model=model, **fields)
        return trace_stream(spec, size, TraceTarget(semantics=semantics), protocol).stream

    return run
