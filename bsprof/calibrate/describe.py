"""Which operators a benchmark runs, read from a run on fake tensors. Worker side; loads torch.

The same tracer reads them as reads a model's step, so that work is counted alike where the laws of
time are fitted and where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from bsprof.calibrate.benchmark import Benchmark
from bsprof.calibrate.programs import PROGRAMS, Maker
from bsprof.predict.cuda.semantics import cuda_semantics
from bsprof.predict.stream import Stream
from bsprof.predict.target import TraceTarget
from bsprof.predict.trace.convert import Fakes
from bsprof.predict.trace.known import KnownResults
from bsprof.predict.trace.modules import ModuleStack
from bsprof.predict.trace.recorder import Recorder
from bsprof.predict.trace.tracker import StreamTracker
from bsprof.records import Phase

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
"""From the precision of a benchmark to what its tensors hold."""


def described(
    benchmarks: Sequence[Benchmark], target: TraceTarget, on_benchmark: Callable[[], None]
) -> list[Stream]:
    """The operators of one call of each, as streams of nothing else.

    Args:
        benchmarks: What is run.
        target: The device, as far as it decides which operators run.
        on_benchmark: Called before each (the worker's heartbeat).
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode.cache_enabled = False  # `KnownResults` has it
    known = KnownResults(Fakes(mode).template())
    modules = ModuleStack(nn.Identity())
    found = []
    with cuda_semantics(target), mode:
        for benchmark in benchmarks:
            on_benchmark()
            recorder = Recorder()
            tracker = StreamTracker(known, modules, recorder)
            maker = Maker("cpu", DTYPES[benchmark.precision], dict(benchmark.dims))
            with tracker:
                tracker.mark(-1, -1, None)
                program = PROGRAMS[benchmark.program](maker)
                tracker.mark(0, 0, Phase.FORWARD_BACKWARD)
                before = len(recorder.operators)
                program.call()
            del recorder.operators[:before]
            tracker.stop()
            found.append(recorder.stream(1, [""]))
    return found
