"""The profile of a prediction: device, software, notes and points put together (pure)."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bsprof import __version__
from bsprof.predict.room import Conditions
from bsprof.predict.target import Software
from bsprof.records import (
    Change,
    DevicePeaks,
    DeviceSnapshot,
    Environment,
    Note,
    Origin,
    Point,
    Prediction,
    Profile,
    Quantity,
    Scalar,
    SweepPlan,
    Term,
    WorkloadFacts,
    WorkloadKey,
    WorkloadSpec,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a prediction found for one device.

    Attributes:
        notes: Of the traces.
        allocator_notes: Of the allocator's settings.
        largest: Largest size that fits without a cache flush; None where none does or it was not
            looked for.
        after_flush: Largest size that runs, if need be after a cache flush.
        outside: What lies outside the allocator.
        peaks: Of the catalogue.
        timing: Where times come from.
        changes: What would make a size fit.
        duration_s: Seconds it took, worker and replays.
    """

    spec: WorkloadSpec
    plan: SweepPlan
    created_at: str
    facts: WorkloadFacts
    key: WorkloadKey
    notes: tuple[Note, ...]
    allocator_notes: tuple[str, ...]
    points: tuple[Point, ...]
    largest: Quantity | None
    after_flush: int | None
    outside: tuple[Term, ...]
    peaks: DevicePeaks
    timing: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    duration_s: float


def predicted_profile(answer: Answer, conditions: Conditions) -> Profile:
    """The profile, complete."""
    return Profile(
        origin=Origin.PREDICTED,
        created_at=answer.created_at,
        workload=answer.spec,
        key=answer.key,
        facts=answer.facts,
        device=_snapshot(conditions),
        peaks=answer.peaks,
        environment=_environment(answer.spec, conditions),
        ranks=conditions.world_size,
        parallel=conditions.parallel,
        plan=answer.plan,
        complete=True,
        notes=tuple(_notes(answer, conditions)),
        points=answer.points,
        max_micro_batch_size=answer.largest,
        duration_s=answer.duration_s,
        prediction=Prediction(
            device=conditions.device.name,
            software=_software(conditions.software, conditions.allocator_conf),
            terms=answer.outside,
            changes=answer.changes,
            timing=answer.timing,
        ),
    )


def _snapshot(conditions: Conditions) -> DeviceSnapshot:
    device = conditions.device
    details: dict[str, Scalar] = {"catalogue": device.name, "architecture": device.architecture}
    if device.compute_capability is not None:
        major, minor = device.compute_capability
        details["compute_capability"] = f"{major}.{minor}"
    return DeviceSnapshot(
        # torch calls AMD's devices cuda as well.
        kind="cpu" if device.kind == "cpu" else "cuda",
        name=device.title,
        capacity_bytes=round(device.capacity_bytes.value),
        usable_bytes=conditions.usable_bytes(),
        other_bytes=conditions.other_bytes,
        limit_source="option" if conditions.is_limited else "catalogue",
        threads=device.compute_units if device.kind == "cpu" else None,
        compute_units=device.compute_units,
        details=details,
    )


def _environment(spec: WorkloadSpec, conditions: Conditions) -> Environment:
    software = conditions.software
    return Environment(
        bsprof=__version__,
        python=".".join(map(str, sys.version_info[:3])),
        torch=_version(software.torch),
        platform=f"predicted on {platform.system()} {platform.machine()}",
        libraries={"cuda": _version(software.cuda), "cudnn": str(software.cudnn)},
        settings={
            "cudnn_benchmark": spec.cudnn_benchmark,
            "allocator_conf": conditions.allocator_conf,
        },
    )


def _software(software: Software, allocator_conf: str | None) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {
        "torch": _version(software.torch),
        "cudnn": str(software.cudnn),
        "cuda": _version(software.cuda),
    }
    if allocator_conf:
        found["allocator"] = allocator_conf
    return found


def _notes(answer: Answer, conditions: Conditions) -> Iterator[Note]:
    yield from answer.notes
    for text in answer.allocator_notes:
        yield Note(code="allocator-setting", message=text)
    if conditions.device.kind == "rocm":
        yield Note(
            code="rocm",
            message="AMD's libraries are not modelled: this is how CUDA's would behave",
        )
    if conditions.device.kind == "cpu":
        yield Note(
            code="heap",
            message="the C heap is taken to hand out memory as torch's caching allocator does: "
            "what is used of the device is a rough figure, live bytes are exact",
            hint="measure a sweep on this machine to learn how large a micro-batch fits",
        )
    if answer.largest is not None and (answer.after_flush or 0) > answer.largest.value:
        yield Note(
            code="flush-size",
            message=f"up to micro-batch {answer.after_flush} runs once the allocator has flushed "
            "its cache, slower each time that it does",
        )
    if _has_display(conditions) and conditions.other_bytes == 0:
        yield Note(
            code="desktop",
            message="all of the card's memory is taken as free: a desktop on it would use some",
            hint="say how much with --other-memory",
        )
    for text in conditions.device.notes:
        yield Note(code="device", message=text)


def _has_display(conditions: Conditions) -> bool:
    return "geforce" in conditions.device.title.lower()


def _version(pair: tuple[int, int]) -> str:
    return f"{pair[0]}.{pair[1]}"
