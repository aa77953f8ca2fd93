"""What a worker does with each request: build, probe, measure, race, load (worker side).

Every exception ends here, in the outermost frame: it becomes an `error` answer with its type, its
place in the user's code and the verdict of the classification, and its traceback is dropped so
that no frame keeps memory alive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bsprof.fit.loader import by_workers
from bsprof.measure.answering import describe
from bsprof.measure.devices.protocol import Device
from bsprof.measure.devices.select import open_device
from bsprof.measure.loader_clock import loader_code, time_loader
from bsprof.measure.pacer import Pacer
from bsprof.measure.point import PointMeasurement
from bsprof.measure.raw import Effort
from bsprof.measure.timing import StepClock
from bsprof.records import WorkloadSpec
from bsprof.records.codec import from_json, to_json
from bsprof.workloads.loaders import LoaderSetting, UserLoader
from bsprof.workloads.training import Training


class Session:
    """One device and one built workload, kept between requests while clean.

    Args:
        beat: Called with a phase name as work goes on.
    """

    def __init__(self, beat: Callable[[str], None]) -> None:
        self._beat = beat
        self._device: Device | None = None
        self._training: Training | None = None
        self._pacer: Pacer | None = None
        self._loader: UserLoader | None = None
        self._largest_ran = 0
        self._baseline_marked = False

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; failures are answers too."""
        work = {
            "build": self._build,
            "probe": self._probe,
            "measure": self._measure,
            "count": self._count,
            "race": self._race,
            "load": self._load,
        }[request["type"]]
        try:
            return {"type": "reply", **work(request)}
        except Exception as error:  # noqa: BLE001 - the outermost frame: all become answers
            answer = describe(error)
        # Outside the except block: the exception and its frames are gone, memory can return.
        if self._device is not None:
            self._device.release()
        return answer

    def _build(self, request: dict[str, Any]) -> dict[str, Any]:
        import torch

        from bsprof.hardware.peaks import device_key
        from bsprof.measure.environment import environment
        from bsprof.workloads.key import workload_key
        from bsprof.workloads.resolve import resolve
        from bsprof.workloads.training import build_training

        self._beat("build")
        spec = from_json(WorkloadSpec, request["workload"])
        self._device = open_device(request["device"], request["memory_limit_bytes"])
        if request["usable_bytes"] is not None:
            # Drivers free the memory of a killed process late: what a worker had, the next waits
            # for, within reason.
            released = self._device.wait_for_release(request["usable_bytes"])
        else:
            released = True
        self._device.apply_limit()
        self._pacer = Pacer() if self._device.kind == "cpu" else None
        workload = resolve(spec)
        self._training = build_training(spec, workload, self._device.torch_device)
        self._beat("build")
        snapshot = self._device.snapshot()  # after the user's file, which may set threads
        return {
            "released": released,
            "device": to_json(snapshot),
            "facts": to_json(self._training.facts),
            "key": to_json(workload_key(spec, self._training, ())),
            "environment": to_json(environment(self._device)),
            "device_key": device_key(snapshot, str(torch.__version__)),
        }

    def _probe(self, _request: dict[str, Any]) -> dict[str, Any]:
        from bsprof.measure.probe import probe_peaks

        device, _ = self._ready()
        self._beat("probe")
        return {"peaks": to_json(probe_peaks(device))}

    def _measure(self, request: dict[str, Any]) -> dict[str, Any]:
        device, _ = self._ready()
        effort = from_json(Effort, request["effort"])
        measurement = self._measurement(request["micro_batch_size"])
        raw = measurement.run(effort)
        self._largest_ran = max(self._largest_ran, raw.micro_batch_size)
        self._beat("clean")
        measurement.close()
        if not self._baseline_marked:  # not before optimizer state exists
            device.mark_baseline()
            self._baseline_marked = True
        return {"raw": to_json(raw), "clean": device.baseline_reached()}

    def _count(self, request: dict[str, Any]) -> dict[str, Any]:
        """The counting pass, apart from measuring: what it cannot run, timing still can."""
        from bsprof.workloads.key import workload_key

        _, training = self._ready()
        measurement = self._measurement(request["micro_batch_size"])
        counts = measurement.count()
        measurement.close()
        key = workload_key(training.spec, training, counts.operators)
        return {"key": to_json(key), "counts": to_json(replace(counts, operators=()))}

    def _race(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sizes in turn, round by round, so that a slow moment touches all of them alike."""
        device, training = self._ready()
        sizes = [int(b) for b in request["micro_batch_sizes"]]
        clocks = {}
        for size, blocks in zip(sizes, request["block_steps"], strict=True):
            self._beat("step")
            batch = training.make_batch(size)
            clocks[size] = StepClock(
                training,
                device,
                batch,
                lambda: self._beat("step"),
                self._pacer,
                block_steps=int(blocks),
            )
            clocks[size].settle()
        for number in range(int(request["rounds"])):
            for size in sizes if number % 2 == 0 else reversed(sizes):
                clocks[size].update()
        timings = [
            {"micro_batch_size": b, "timing": to_json(clock.timing())}
            for b, clock in clocks.items()
        ]
        clocks.clear()
        device.release()
        return {"timings": timings, "clean": device.baseline_reached()}

    def _load(self, request: dict[str, Any]) -> dict[str, Any]:
        """One setting of the user's loader; needs no device and nothing built."""
        self._beat("build")
        if self._loader is None or self._loader.name != request["loader"]:
            self._loader = UserLoader(request["loader"])
        loader = self._loader
        setting = from_json(LoaderSetting, request["setting"])
        made = loader.make(setting)
        workers = made.loader.num_workers
        self._beat("load")
        with loader_code(f"the loader failed {by_workers(workers)}", loader.folder):
            timing = time_loader(
                made.loader,
                batch_size=made.loader.batch_size,
                on_batch=lambda: self._beat("load"),
                seconds=request["seconds"],
            )
        return {
            "num_workers": workers,
            "prefetch_factor": made.loader.prefetch_factor,
            "timing": to_json(timing),
            "settable": sorted(made.settable),
            "own_workers": loader.own_workers,
        }

    def _measurement(self, size: int) -> PointMeasurement:
        device, training = self._ready()
        return PointMeasurement(
            training,
            device,
            int(size),
            on_phase=self._beat,
            pacer=self._pacer,
            largest_in_process=self._largest_ran,
        )

    def _ready(self) -> tuple[Device, Training]:
        if self._device is None or self._training is None:
            raise RuntimeError("a worker was asked to measure before it was asked to build")
        return self._device, self._training
