"""Predicts a sweep: one workload on devices that need not be here; nothing is run on them.

The parent's side, without torch: a worker traces the workload's own step, and the streams are
replayed here under each device's capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bsprof.errors import UsageError
from bsprof.measure.events import Listener
from bsprof.measure.wire import PhaseLimits
from bsprof.predict.allocator import AllocatorRules
from bsprof.predict.corrected import check_source, measured_on
from bsprof.predict.predictor import Predictor
from bsprof.predict.room import Conditions
from bsprof.predict.software import software_of
from bsprof.predict.target import Software
from bsprof.predict.terms import Strategy
from bsprof.predict.worker import TraceWorker
from bsprof.records import DeviceSpec, Profile, SweepPlan, WorkloadSpec
from bsprof.store import profile_path, save, store_folder
from bsprof.workloads.names import check_model

ALONE = "none"
"""How one rank shares the work: not at all."""


def predict_sweep(
    spec: WorkloadSpec | str,
    device: DeviceSpec,
    *,
    plan: SweepPlan | None = None,
    software: Software | None = None,
    world_size: int = 1,
    parallel: str | None = None,
    allocator_conf: str | None = None,
    other_bytes: int = 0,
    measured: Profile | None = None,
    bus_bytes_per_s: float | None = None,
    output: Path | None = None,
    store: Path | None = None,
    on_event: Listener | None = None,
    limits: PhaseLimits | None = None,
) -> Profile:
    """The predicted profile of a workload on one device; see `predict_sweeps`.

    Args:
        device: Where; `bsprof.find_device("rtx-4090")` looks one up.
        output: The profile's file; None puts it into the store.
    """
    [profile] = predict_sweeps(
        spec,
        [device],
        plan=plan,
        software=software,
        world_size=world_size,
        parallel=parallel,
        allocator_conf=allocator_conf,
        other_bytes=other_bytes,
        measured=measured,
        bus_bytes_per_s=bus_bytes_per_s,
        output=output,
        store=store,
        on_event=on_event,
        limits=limits,
    )
    return profile


def predict_sweeps(
    spec: WorkloadSpec | str,
    devices: Sequence[DeviceSpec],
    *,
    plan: SweepPlan | None = None,
    software: Software | None = None,
    world_size: int = 1,
    parallel: str | None = None,
    allocator_conf: str | None = None,
    other_bytes: int = 0,
    measured: Profile | None = None,
    bus_bytes_per_s: float | None = None,
    output: Path | None = None,
    store: Path | None = None,
    on_event: Listener | None = None,
    limits: PhaseLimits | None = None,
) -> tuple[Profile, ...]:
    """Predict time and memory of a workload on several devices, tracing it as rarely as is exact.

    Args:
        spec: The workload, or just its name or `file.py:factory`.
        devices: Where.
        plan: What to try; None looks for the largest size and shows the curve up to it.
        software: Whose rules apply; None is the installed torch with its usual libraries.
        world_size: Data-parallel ranks.
        parallel: `none`, `ddp`, `fsdp`, `zero1`, `zero2` or `zero3`; None is `ddp` where there are
            several ranks.
        allocator_conf: As in `PYTORCH_CUDA_ALLOC_CONF`; None is unset.
        other_bytes: What a desktop or other processes use of each device.
        measured: A profile of the same workload, of this device or another: even one measured
            size corrects the scale of the times and what a step takes besides.
        bus_bytes_per_s: That collectives between ranks reach (`busbw` of nccl-tests); None takes
            what others reached with the device's link.
        output: The profile's file, for one device; None puts profiles into the store.
        store: Folder of profiles; None is `BSPROF_STORE` or `profiles`.
        on_event: Called as the prediction goes on.
        limits: Seconds that a worker may stay silent, by phase.

    Returns:
        A profile for each device, in their order.

    Raises:
        UsageError: an option that cannot be.
        WorkloadError: the user's model, factory, batch or loss is at fault.
        MeasurementError: this machine's memory does not suffice to trace it.
        OutputError: a profile cannot be written.
    """
    if isinstance(spec, str):
        spec = WorkloadSpec(model=spec)
    check_model(spec.model)
    plan = plan or SweepPlan()
    software = software or software_of()
    strategy = _strategy(world_size, parallel)
    AllocatorRules.of(software, allocator_conf)  # what it refuses is told before anything is run
    conditions = [
        Conditions(
            device=device,
            software=software,
            world_size=world_size,
            parallel=strategy,
            allocator_conf=allocator_conf,
            memory_limit_bytes=plan.memory_limit_bytes,
            other_bytes=other_bytes,
            cudnn_benchmark=spec.cudnn_benchmark,
            precision=spec.precision,
        )
        for device in devices
    ]
    known = None
    if measured is not None:
        check_source(measured, spec)
        known = measured_on(measured)
    store = store if store is not None else store_folder()
    with TraceWorker(limits=limits) as worker:
        predictor = Predictor(
            worker,
            spec,
            plan,
            conditions,
            on_event,
            measured=known,
            bus_bytes_per_s=bus_bytes_per_s,
        )
        profiles = []
        for given in conditions:
            profile = predictor.profile(given)
            save(profile, output or profile_path(profile, store))
            profiles.append(profile)
    predictor.end()
    return tuple(profiles)


def _strategy(world_size: int, parallel: str | None) -> str:
    """How the ranks share the work.

    Raises:
        UsageError: an unknown strategy, one for a single rank, or none for several.
    """
    if parallel is None:
        return ALONE if world_size == 1 else Strategy.DDP.value
    known = (ALONE, *(strategy.value for strategy in Strategy))
    if parallel not in known:
        raise UsageError(
            f"unknown way to share work {parallel!r}", next_step=f"use one of {', '.join(known)}"
        )
    if parallel != ALONE and world_size == 1:
        raise UsageError(
            f"--parallel {parallel} has no effect with one rank",
            next_step="add --world-size, or leave it out",
        )
    if parallel == ALONE and world_size > 1:
        raise UsageError(
            f"{world_size} ranks that share nothing are not data parallel",
            next_step="use --parallel ddp, or leave --world-size out",
        )
    return parallel
