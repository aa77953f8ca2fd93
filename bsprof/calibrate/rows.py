"""What benchmarks found, as rows for the fits: works with their seconds, and the host's costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bsprof.accounting.work import Work
from bsprof.calibrate.benchmark import CPU
from bsprof.calibrate.fit.processor import ProcessorRow
from bsprof.calibrate.fit.rows import KernelRow
from bsprof.calibrate.measured import Measured, Timed
from bsprof.calibrate.run import capability_of
from bsprof.predict.cost import works_of
from bsprof.predict.cost.caches import footprint_bytes
from bsprof.predict.cost.multipliers import Multipliers
from bsprof.predict.roofline.processor_laws import is_free
from bsprof.records import Precision
from bsprof.records.calibration import Coefficient

OPERATOR, ENGINE = "host.operator", "host.engine"
FORWARD, BACKWARD, STEP = "host.forward", "host.backward", "step.adamw"
_ASIDE = ("host.", "step.", "copy.made")
"""Programs that say something of the host or of the system, not of a kernel."""
_DISTURBED = 0.1
"""Standard error of a cost of the host, as a share of it (heuristic)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCosts:
    """Seconds of the host; None where the benchmark did not run.

    Attributes:
        launch_s: Of the device, for the smallest kernel.
        operator_s: To call the smallest operator, without gradients, from Python.
        engine_s: To enter the autograd engine and leave it, with one small operator.
        call_s: To dispatch an operator in a forward pass, modules included.
        backward_call_s: In a backward pass.
        optimizer_call_s: In an optimizer's step.
    """

    launch_s: Coefficient | None = None
    operator_s: Coefficient | None = None
    engine_s: Coefficient | None = None
    call_s: Coefficient | None = None
    backward_call_s: Coefficient | None = None
    optimizer_call_s: Coefficient | None = None


def host_costs(measured: Measured) -> HostCosts:
    """What the smallest benchmarks say of the host, and of launches."""
    by_program = {timed.benchmark.program: timed for timed in measured.timed}

    def each(program: str, *, shared: bool) -> Coefficient | None:
        timed = by_program.get(program)
        if timed is None:
            return None
        calls = len(timed.operators) if shared else 1
        value = measured.host_seconds(timed) / max(1, calls)
        return Coefficient(value=value, error=_DISTURBED * value)

    smallest = by_program.get(OPERATOR)
    launch = measured.seconds(smallest) if smallest is not None else None
    return HostCosts(
        launch_s=None if launch is None else Coefficient(value=launch, error=_DISTURBED * launch),
        operator_s=each(OPERATOR, shared=False),
        engine_s=each(ENGINE, shared=False),
        call_s=each(FORWARD, shared=True),
        backward_call_s=each(BACKWARD, shared=True),
        optimizer_call_s=each(STEP, shared=True),
    )


def kernel_rows(measured: Measured, device: str) -> list[KernelRow]:
    """One row for each benchmark of a GPU whose call is one work; launches are in its seconds.

    Args:
        measured: What was timed.
        device: Name that rows bear.
    """
    return [
        KernelRow(work=work, seconds=measured.seconds(timed), device=device, source=device)
        for timed, work in _works(measured)
    ]


def processor_rows(measured: Measured) -> list[ProcessorRow]:
    """One row for each benchmark of a processor whose call is one work.

    Seconds are what a call takes beyond the smallest operator, or beyond entering the autograd
    engine where it does.
    """
    costs = host_costs(measured)
    rows = []
    for timed, work in _works(measured):
        seconds = measured.seconds(timed) - _floor(timed, costs)
        if seconds > 0:
            footprint = footprint_bytes(timed.operators)
            rows.append(ProcessorRow(work=work, seconds=seconds, footprint_bytes=footprint))
    return rows


def _works(measured: Measured) -> Iterator[tuple[Timed, Work]]:
    """Benchmarks of a single work each."""
    for timed in measured.timed:
        if not timed.benchmark.program.startswith(_ASIDE):
            work = only_work(timed, measured)
            if work is not None:
                yield timed, work


def only_work(timed: Timed, measured: Measured) -> Work | None:
    """The work of a benchmark; None where it is not just one."""
    precision = Precision.TF32 if timed.benchmark.precision == "tf32" else Precision.FP32_STRICT
    multipliers = Multipliers(
        compute_capability=capability_of(measured.device), precision=precision
    )
    works: Sequence[Work] = works_of(timed.operators, multipliers)
    if measured.device.kind == CPU:
        works = [work for work in works if not is_free(work)]
    return works[0] if len(works) == 1 else None


def _floor(timed: Timed, costs: HostCosts) -> float:
    """What the call itself takes of the time of a benchmark on a processor."""
    entered = any(operator.backward for operator in timed.operators)
    floor = costs.engine_s if entered else costs.operator_s
    return floor.value if floor is not None else 0.0
