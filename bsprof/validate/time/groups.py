"""Cases that share a trace: what differs is the size, the device within its kind, and the ranks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from bsprof.hardware.catalogue import find_device
from bsprof.predict.target import TraceTarget
from bsprof.predict.targets import trace_target
from bsprof.records import DeviceSpec
from bsprof.records.codec import to_json
from bsprof.validate.time.cases import TimeCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases that are traced together.

    Attributes:
        target: Of their traces.
        cases: In order.
    """

    target: TraceTarget
    cases: tuple[TimeCase, ...]

    @property
    def first(self) -> TimeCase:
        """Any of them, for what they share."""
        return self.cases[0]

    @property
    def sizes(self) -> tuple[int, ...]:
        """All sizes, in order."""
        return tuple(sorted({case.micro_batch for case in self.cases}))


def grouped(cases: Sequence[TimeCase]) -> list[Group]:
    """Cases by workload and target, in the order of their first ones."""
    groups: dict[str, list[TimeCase]] = {}
    targets: dict[str, TraceTarget] = {}
    for case in cases:
        target = trace_target(device_of(case), case.software)
        key = json.dumps(to_json((case.spec, case.protocol, target)), sort_keys=True)
        groups.setdefault(key, []).append(case)
        targets[key] = target
    return [Group(target=targets[key], cases=tuple(found)) for key, found in groups.items()]


def device_of(case: TimeCase) -> DeviceSpec:
    """The device of a case."""
    return find_device(case.device)
