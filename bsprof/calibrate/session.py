"""What a worker that calibrates does with each request: open, describe, time. Worker side.

Every exception ends here and becomes an `error` answer, as in `bsprof.measure.session`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from bsprof.calibrate.benchmark import Benchmark
from bsprof.calibrate.clock import Clock, clock_of
from bsprof.calibrate.describe import DTYPES, described
from bsprof.calibrate.programs import PROGRAMS, Maker
from bsprof.calibrate.programs.program import SEED
from bsprof.calibrate.timing import time_call
from bsprof.measure.answering import describe
from bsprof.measure.devices.protocol import Device
from bsprof.measure.devices.select import open_device
from bsprof.measure.pacer import Pacer
from bsprof.measure.probe import is_refused_type
from bsprof.predict.target import TraceTarget
from bsprof.predict.trace.serial import stream_to_json
from bsprof.records.codec import from_json, to_json

PHASE = "probe"


class Session:
    """One open device.

    Args:
        beat: Called with a phase name as work goes on.
    """

    def __init__(self, beat: Callable[[str], None]) -> None:
        self._beat = beat
        self._device: Device | None = None
        self._clock: Clock | None = None
        self._pacer: Pacer | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; failures are answers too."""
        work = {"open": self._open, "describe": self._describe, "time": self._time}
        try:
            return {"type": "reply", **work[request["type"]](request)}
        except Exception as error:  # noqa: BLE001 - the outermost frame: all become answers
            answer = describe(error)
        if self._device is not None:
            self._device.release()
        return answer

    def _open(self, request: dict[str, Any]) -> dict[str, Any]:
        from bsprof.measure.environment import environment

        self._beat("build")
        self._device = open_device(request["device"])
        self._clock = clock_of(self._device)
        self._pacer = Pacer() if self._device.kind == "cpu" else None
        torch.manual_seed(SEED)
        return {
            "device": to_json(self._device.snapshot()),
            "environment": to_json(environment(self._device)),
        }

    def _describe(self, request: dict[str, Any]) -> dict[str, Any]:
        self._beat(PHASE)
        benchmarks = [from_json(Benchmark, b) for b in request["benchmarks"]]
        target = from_json(TraceTarget, request["target"])
        streams = described(benchmarks, target, lambda: self._beat(PHASE))
        return {"streams": [stream_to_json(stream) for stream in streams]}

    def _time(self, request: dict[str, Any]) -> dict[str, Any]:
        """One benchmark; what this device or torch has no kernel for is refused, not an error."""
        assert self._device is not None
        assert self._clock is not None
        self._beat(PHASE)
        benchmark = from_json(Benchmark, request["benchmark"])
        maker = Maker(self._device.torch_device, DTYPES[benchmark.precision], dict(benchmark.dims))
        try:
            with torch.no_grad(), multiplying(benchmark.precision):
                with torch.enable_grad():
                    program = PROGRAMS[benchmark.program](maker)
                sample = time_call(
                    program.call,
                    self._clock,
                    seconds=float(request["seconds"]),
                    pacer=self._pacer,
                    on_lap=lambda: self._beat(PHASE),
                )
        except (RuntimeError, TypeError) as error:
            if not is_refused_type(error):
                raise
            return {"refused": str(error).splitlines()[0]}
        return {"sample": to_json(sample)}


@contextmanager
def multiplying(precision: str) -> Iterator[None]:
    """fp32 in full precision, or as TF32 where that is asked for; matmuls and convolutions.

    The old and the new switches of torch exclude each other; one that refuses is left alone.
    """
    wanted = precision == "tf32"
    before = torch.get_float32_matmul_precision()
    cudnn: Any = torch.backends.cudnn
    convolving = cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if wanted else "highest")
    cudnn.allow_tf32 = wanted
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        cudnn.allow_tf32 = convolving
