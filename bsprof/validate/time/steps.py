"""Whole steps with their works, for fits that have no measurements of single kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bsprof.accounting.work import Work
from bsprof.errors import BsprofError
from bsprof.predict.cost import steady_costs
from bsprof.predict.traces import Traces
from bsprof.predict.worker import TraceWorker
from bsprof.validate.kept import KeptTraces
from bsprof.validate.time.collect import collect
from bsprof.validate.time.gmacs import other_network
from bsprof.validate.time.groups import Group, device_of, grouped
from bsprof.validate.time.predict import costs_of, spec_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A step that was measured.

    Attributes:
        works: Of all its parts, each with how often it comes.
        seconds: That it took.
        device: Name in the catalogue.
        source: Rows of one source share a machine.
        name: Of the row.
        model: As published.
    """

    works: tuple[tuple[Work, int], ...]
    seconds: float
    device: str
    source: str
    name: str
    model: str


def step_rows(
    folder: Path,
    cache: Path,
    limit: int | None = None,
    on_group: Callable[[int, int, Group], None] = lambda _number, _count, _group: None,
) -> list[MeasuredStep]:
    """The steps that may fit coefficients: timm's training on an RTX 3090, one half of the models.

    Args:
        folder: Of the measurements.
        cache: Of kept traces.
        limit: Models at most, both halves counted; the same ones as a validation draws.
        on_group: Called before each group of rows, with its number from 0 and how many there are.

    Raises:
        UsageError: the folder has no such file.
    """
    collected = collect(folder, source="timm-3090", limit=limit)
    groups = grouped([case for case in collected.cases if case.training_row])
    found: list[MeasuredStep] = []
    with KeptTraces(cache) as worker:
        for number, group in enumerate(groups):
            on_group(number, len(groups), group)
            try:
                found += _steps(group, worker)
            except BsprofError:
                continue  # a validation says which rows cannot be traced, and why
    return found


def _steps(group: Group, worker: TraceWorker) -> list[MeasuredStep]:
    first = group.first
    traces = Traces(worker, spec_of(group, worker), group.target, first.protocol)
    traces.prepare(group.sizes if len(group.sizes) == 1 else ())
    steps = []
    for case in group.cases:
        capability = device_of(case).compute_capability
        whole = steady_costs(traces.at(case.micro_batch), capability, case.spec.precision)
        if other_network(case, whole.forward) is not None:
            continue
        costs = costs_of(case, whole)
        steps.append(
            MeasuredStep(
                works=(*costs.forward, *costs.backward, *costs.optimizer),
                seconds=case.seconds,
                device=case.device,
                source=case.machine,
                name=case.row,
                model=case.model,
            )
        )
    return steps
