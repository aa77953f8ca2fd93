"""Runs a sweep: one workload, one device, as few sizes as answer the question.

The parent's side: supervises workers, follows the schedule, saves after every point. Loads no
torch and never touches the device.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bsprof.errors import (
    OutputError,
    UsageError,
)
from bsprof.hardware.peaks import device_key, load_peaks, save_peaks
from bsprof.measure import schedule
from bsprof.measure.choose import (
    HEAP_SCATTER,
    best_size,
    contenders,
    expected_seconds,
    largest_size,
)
from bsprof.measure.crew import Crew, Trouble
from bsprof.measure.events import EventKind, Listener, SweepEvent
from bsprof.measure.ledger import Ledger
from bsprof.measure.loading import add_loader
from bsprof.measure.raw import Effort, RawPoint
from bsprof.measure.telling import build_error, point_line, step_error
from bsprof.measure.wire import PhaseLimits
from bsprof.records import (
    DevicePeaks,
    Failure,
    Point,
    PointStatus,
    Profile,
    SweepPlan,
    Timing,
    WorkloadSpec,
)
from bsprof.records.codec import from_json
from bsprof.store import profile_path, save, store_folder
from bsprof.units import format_bytes, format_count, format_seconds
from bsprof.workloads.key import key_differences
from bsprof.workloads.loaders import parse_loader
from bsprof.workloads.names import check_model

COUNTED_SIZES = 2
"""Counts are affine in the size: two give all others."""
SAMPLING_S = 1.0
"""Seconds of timed sampling at one size, beyond which a wide interval is accepted and raced; more
where a smaller error than the default is asked for."""
DEFAULT_ERROR = SweepPlan().relative_error
MOST_PATIENCE = 64


def run_sweep(
    spec: WorkloadSpec | str,
    *,
    device: str = "auto",
    plan: SweepPlan | None = None,
    output: Path | None = None,
    resume: Profile | None = None,
    store: Path | None = None,
    on_event: Listener | None = None,
    limits: PhaseLimits | None = None,
    loader: str | None = None,
) -> Profile:
    """Measure a workload on a device and return its profile, saved after every point.

    Args:
        spec: The workload, or just its name or `file.py:factory`.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`, `xpu`.
        plan: What to try; None is the adaptive schedule without limits.
        output: The profile's file; None puts it into the store.
        resume: An interrupted profile of the same workload: its points are kept, not repeated.
        store: Folder of profiles and of this device's peaks; None is `BSPROF_STORE` or `profiles`.
        on_event: Called as the sweep goes on.
        limits: Seconds that a worker may stay silent, by phase.
        loader: The user's own data loader, `file.py:function`, measured after the sizes: see
            `bsprof.workloads.loaders`. Short for the plan's.

    Raises:
        UsageError: an option that cannot be, or one that would have no effect here; or `resume`
            is of another workload or device.
        WorkloadError: the user's model, factory, batch or loss is at fault at every size.
        DeviceUnavailable: there is no such device here.
        MeasurementError: the model itself does not fit.
        OutputError: the profile cannot be written.
        KeyboardInterrupt: passed on after the points so far were saved.
    """
    if isinstance(spec, str):
        spec = WorkloadSpec(model=spec)
    check_model(spec.model)
    plan = plan or SweepPlan()
    if loader is not None:
        plan = replace(plan, loader=loader)
    if plan.loader is not None:
        parse_loader(plan.loader)
    sweep = _Sweep(
        spec,
        plan,
        device,
        output=output,
        store=store if store is not None else store_folder(),
        listener=on_event or (lambda _event: None),
        limits=limits,
    )
    return sweep.run(resume)


def _now() -> str:
    # Microseconds: two sweeps begun in the same second are two files.
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class _Sweep:
    """One run of `run_sweep`."""

    def __init__(
        self,
        spec: WorkloadSpec,
        plan: SweepPlan,
        device: str,
        *,
        output: Path | None,
        store: Path,
        listener: Listener,
        limits: PhaseLimits | None,
    ) -> None:
        self._started = time.monotonic()
        self._device = device
        self._output = output
        self._store = store
        self._listener = listener
        self._limits = limits
        self._can_count = True
        self._fails_at_one = False
        self._ledger = Ledger(spec=spec, plan=plan, created_at=_now())
        self._crew = Crew(
            spec,
            device,
            plan.memory_limit_bytes,
            limits=limits,
            on_phase=lambda phase: self._say("phase", phase),
        )

    def run(self, resume: Profile | None) -> Profile:
        """The whole sweep; see `run_sweep`."""
        with self._crew:
            self._begin(resume)  # nothing is saved before: a refused --resume changes no file
            try:
                finished = self._follow_schedule()
                self._race()
                self._confirm()
                self._load()
                self._ledger.complete = finished
                self._note_late_release()
            finally:
                profile = self._save()
        self._say("end", f"{len(profile.points)} sizes in {format_seconds(profile.duration_s)}")
        return profile

    # -- beginning ---------------------------------------------------------------------------

    def _begin(self, resume: Profile | None) -> None:
        trouble = self._crew.build()
        if trouble is not None:
            raise build_error(self._ledger.spec, trouble)
        built = self._crew.built
        assert built is not None
        self._ledger.built = built
        self._ledger.key = built.key
        if self._device == "auto" and built.device.kind == "cpu":
            self._say(
                "note",
                "no accelerator here: this measures the CPU; to predict for a GPU name it, as in "
                "--device rtx-4090 (`bsprof devices` lists them)",
            )
        usable = format_bytes(built.device.usable_bytes)
        parameters = format_count(built.facts.parameter_count)
        self._say(
            "start",
            f"{self._ledger.spec.model} ({parameters} parameters) on {built.device.name}, "
            f"{usable} usable",
        )
        if resume is not None:
            self._check_same(resume)
            self._ledger.resume(resume, built)
        self._ledger.peaks = self._ledger.peaks or self._peaks(built.device_key)

    def _check_same(self, resume: Profile) -> None:
        """Go on only on the same device with the same workload: an edited script is not mixed
        with its past, nor one machine's times with another's."""
        built = self._crew.built
        assert built is not None
        before = device_key(resume.device, resume.environment.torch)
        if before != built.device_key:
            raise UsageError(
                "cannot resume the sweep: it measured on another device",
                found=f"{before} then, {built.device_key} now",
                next_step="sweep anew without --resume, or on that device",
            )
        if resume.key is None:
            return
        key = built.key
        if resume.key.operators != key.operators:  # equal only if none were ever counted
            self._count(self._key_size(resume.plan))
            key = self._ledger.key or key
        changed = key_differences(resume.key, key)
        if changed:
            raise UsageError(
                "cannot resume the sweep: it measured another workload",
                found="; ".join(changed),
                next_step="sweep anew without --resume, or undo the change",
            )

    def _peaks(self, device_key: str) -> DevicePeaks | None:
        known = load_peaks(self._store, device_key)
        if known is not None:
            return known
        self._say("probe", "measuring this device's peaks, once")
        answer = self._crew.request("probe")
        if isinstance(answer, Trouble):
            self._ledger.note(
                "no-peaks",
                f"the probe of this device's peaks ended {answer.status}: {answer.failure.reason}",
                "MFU and the regime are unknown in this profile",
            )
            return None
        peaks = from_json(DevicePeaks, answer["peaks"])
        try:
            save_peaks(self._store, peaks)
        except OutputError as error:
            self._ledger.note("peaks-not-kept", str(error.doing), "they are probed again next time")
        return peaks

    # -- points ------------------------------------------------------------------------------

    def _follow_schedule(self) -> bool:
        """Measure size by size; whether the schedule, not the time budget, ended it."""
        while True:
            step = schedule.next_step(self._view())
            if step is None:
                return True
            size = step.micro_batch_size
            if self._over_budget(size):
                self._ledger.note(
                    "time-budget",
                    f"the time budget of {format_seconds(self._ledger.plan.time_budget_s or 0)} "
                    f"ended the sweep before micro-batch {size}",
                    "go on with --resume and a larger --time-budget",
                )
                return False
            if step.stage is schedule.Stage.BRACKET:
                # A heap that ran other sizes is shaped by them: the limit is a fresh process's.
                self._crew.dismiss()
            if not self._known_not_to_fit(size):
                self._measure(size, full=step.full)
            self._save()

    def _view(self) -> schedule.View:
        return schedule.View(
            points=self._ledger.points(),
            smallest=self._smallest(),
            cap=self._cap(),
            largest=self._ledger.largest,
            find_max=self._ledger.plan.find_max,
            explicit=self._ledger.plan.micro_batch_sizes,
        )

    def _smallest(self) -> int:
        """Where to start: batch normalisation fails on one sample in training."""
        built = self._crew.built
        assert built is not None
        smallest = 2 if built.facts.batch_norm_modules or self._fails_at_one else 1
        cap = self._cap()
        return smallest if cap is None else min(smallest, cap)

    def _key_size(self, plan: SweepPlan) -> int:
        """The size whose operators are part of the key: the smallest that the plan tries."""
        return min(plan.micro_batch_sizes, default=self._smallest())

    def _cap(self) -> int | None:
        built = self._crew.built
        assert built is not None
        plan = self._ledger.plan
        sizes = (plan.max_micro_batch_size, plan.dataset_size, built.facts.dataset_size)
        return min((b for b in sizes if b is not None), default=None)

    def _known_not_to_fit(self, size: int) -> bool:
        """Explicit sizes above the data set or above one that was too big are not run."""
        if not self._ledger.plan.micro_batch_sizes:
            return False
        cap = self._cap()
        too_big = min((p.micro_batch_size for p in self._ledger.failed_for_memory()), default=None)
        if cap is not None and size > cap:
            reason = f"larger than the data set or the cap, {cap}"
        elif too_big is not None and size > too_big:
            reason = f"micro-batch {too_big} did not fit already"
        else:
            return False
        self._ledger.add_skipped(
            size,
            Point(
                micro_batch_size=size,
                status=PointStatus.SKIPPED,
                failure=Failure(reason=reason, phase="start"),
            ),
        )
        return True

    def _measure(self, size: int, *, full: bool) -> None:
        self._leave_larger_heap(size)
        effort = Effort(
            relative_error=self._ledger.plan.relative_error,
            seconds=self._sampling_s() if full else 0.0,
        )
        outcome = self._crew.measure(size, effort)
        if isinstance(outcome, Trouble):
            self._trouble(size, outcome)
        else:
            self._ledger.add_raw(outcome)
            self._count(self._key_size(self._ledger.plan))
            self._count(size)
        built = self._ledger.built
        assert built is not None
        points = self._ledger.points()
        self._ledger.largest = largest_size(
            points,
            built.device.usable_bytes,
            self._cap(),
            self._ledger.largest_by_heap(),
            scatter=HEAP_SCATTER if built.device.kind == "cpu" else 0.0,
        )
        for point in points:
            if point.micro_batch_size == size:
                self._say("point", point_line(point), point)

    def _leave_larger_heap(self, size: int) -> None:
        """On a CPU a smaller size after a larger one needs a fresh heap, or a model of it."""
        built = self._crew.built
        assert built is not None
        larger = max(self._ledger.raw, default=0) > size
        if built.device.kind == "cpu" and larger and self._ledger.heap_model() is None:
            self._crew.dismiss()

    def _count(self, size: int) -> None:
        """Count this size, if counts are still wanted; what cannot be counted gets a note."""
        counted = {c.micro_batch_size for c in self._ledger.counts}
        if len(counted) >= COUNTED_SIZES or size in counted or not self._can_count:
            return
        answer = self._crew.count(size)
        if isinstance(answer, Trouble):
            self._can_count = False
            self._ledger.note(
                "not-counted",
                f"operators could not be counted: {answer.failure.reason}",
                "FLOPs, MFU and the regime are unknown in this profile",
            )
            return
        counts, key = answer
        if not counted:
            self._ledger.key = key
        self._ledger.counts.append(counts)

    def _sampling_s(self) -> float:
        """Error falls with the root of the samples: half the error is worth four times as long."""
        wanted = self._ledger.plan.relative_error
        return SAMPLING_S * min(MOST_PATIENCE, max(1.0, (DEFAULT_ERROR / wanted) ** 2))

    def _trouble(self, size: int, trouble: Trouble) -> None:
        """Record it; let a smaller size decide what is ambiguous; raise what no size can mend."""
        if trouble.ambiguous:
            trouble = self._decided(size, trouble)
        explicit = self._ledger.plan.micro_batch_sizes
        others_left = any(b != size and not self._ledger.has(b) for b in explicit)
        hopeless = trouble.status is PointStatus.FAILED and not self._ledger.ran_any()
        if hopeless and size == 1 and not explicit and trouble.error is None and self._cap() != 1:
            # Some layers and losses need two samples; what is wrong otherwise fails at two as well.
            self._fails_at_one = True
            self._ledger.note(
                "fails-at-one", f"micro-batch 1 fails: {trouble.failure.reason}", size=1
            )
            return
        if hopeless and not others_left:
            raise trouble.error or step_error(self._ledger.spec, size, trouble.failure)
        self._ledger.add_trouble(size, trouble)

    def _decided(self, size: int, trouble: Trouble) -> Trouble:
        """An ambiguous sign means memory only if a smaller size passes in a fresh worker."""
        ran = schedule.largest_ok(self._ledger.points())
        smaller = ran if ran is not None and ran < size else max(self._smallest(), size // 2)
        passed: RawPoint | Trouble | None = None
        if smaller < size:
            self._crew.dismiss()
            passed = self._crew.measure(smaller, Effort(seconds=0.0))
            wanted = not self._ledger.plan.micro_batch_sizes  # an explicit size gets a full turn
            if isinstance(passed, RawPoint) and wanted and not self._ledger.has(smaller):
                self._ledger.add_raw(passed)
        if isinstance(passed, RawPoint):
            return trouble
        failure = replace(
            trouble.failure,
            reason=f"{trouble.failure.reason}; a smaller size did not pass either",
        )
        return replace(trouble, status=PointStatus.FAILED, failure=failure)

    def _over_budget(self, size: int) -> bool:
        budget = self._ledger.plan.time_budget_s
        if budget is None or not self._ledger.ran_any():
            return False
        return self._elapsed() + expected_seconds(self._ledger.points(), size) > budget

    # -- ending ------------------------------------------------------------------------------

    def _race(self) -> None:
        """Near-equal sizes run in turn, so that a slow moment cannot decide between them."""
        raced = [p for p in self._ledger.points() if p.micro_batch_size in self._ledger.raw]
        sizes, rounds = contenders(raced, self._elapsed())
        budget = self._ledger.plan.time_budget_s
        if not sizes or self._ledger.spec.compile or (budget and self._elapsed() > 0.7 * budget):
            return
        self._say("race", "comparing in turn: " + ", ".join(map(str, sizes)))
        answer = self._crew.request(
            "race",
            micro_batch_sizes=list(sizes),
            block_steps=[self._ledger.raw[b].timing.block_steps for b in sizes],
            rounds=rounds,
        )
        if isinstance(answer, Trouble):
            self._ledger.note("no-race", f"the comparison in turn failed: {answer.failure.reason}")
            return
        self._ledger.add_race(
            {t["micro_batch_size"]: from_json(Timing, t["timing"]) for t in answer["timings"]}
        )
        self._save()

    def _confirm(self) -> None:
        """Run the size it would choose without a target again, in a fresh process."""
        built = self._crew.built
        assert built is not None
        while True:
            best = best_size(self._ledger.points(), built.device.usable_bytes)
            if best is None or best in self._ledger.confirmed:
                return
            self._crew.dismiss()
            self._say("confirm", f"micro-batch {best} again, in a fresh process")
            outcome = self._crew.measure(best, Effort(seconds=0.0))
            if isinstance(outcome, RawPoint) and not outcome.alloc_retries:
                self._ledger.confirmed.add(best)
                return
            if isinstance(outcome, RawPoint):
                reason = "fits only after a cache flush"
                self._ledger.add_raw(outcome)
            else:
                reason = f"ended {outcome.status}: {outcome.failure.reason}"
            self._ledger.note(
                "not-confirmed",
                f"micro-batch {best} ran in the sweep, but in a fresh process {reason}",
                size=best,
            )
            if isinstance(outcome, Trouble):
                if not outcome.status.is_too_big:
                    return  # says nothing about its memory
                self._ledger.add_trouble(best, outcome)

    def _load(self) -> None:
        """Measure the user's data loader, if one was given, while nothing else runs."""
        if self._ledger.plan.loader is not None:
            self._crew.dismiss()
            add_loader(self._ledger, limits=self._limits, say=self._say)

    def _note_late_release(self) -> None:
        if not self._crew.released:
            self._ledger.note(
                "late-release",
                "the device had not freed a dead worker's memory when the next one began",
                "sizes near the limit may have failed for that; sweep again",
            )

    def _save(self) -> Profile:
        """The profile as of now; on disk once it has a point."""
        profile = self._ledger.profile(self._elapsed())
        if profile.points:
            if self._output is None:
                self._output = profile_path(profile, self._store)
            save(profile, self._output)
        return profile

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _say(self, kind: EventKind, text: str, point: Point | None = None) -> None:
        done = len(self._ledger.raw) + len(self._ledger.failed)
        self._listener(SweepEvent(kind=kind, text=text, point=point, done=done))
