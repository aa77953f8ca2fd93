"""Predicts cases: one worker traces each workload once, and its sizes are replayed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bsprof.errors import BsprofError
from bsprof.hardware.catalogue import find_device
from bsprof.measure.crew import Trouble
from bsprof.predict.allocator import Verdict
from bsprof.predict.memory import MemoryModel, MemoryPrediction
from bsprof.predict.room import Conditions
from bsprof.predict.targets import trace_target
from bsprof.predict.traces import Traces
from bsprof.predict.worker import TraceWorker
from bsprof.records import DEFAULT_HEADROOM, DeviceSpec, Quantity, WorkloadSpec
from bsprof.records.codec import to_json
from bsprof.validate.cases import Bracket, Case
from bsprof.validate.outcomes import Outcome, Unpredicted, made_of, quantity_of
from bsprof.validate.scores import NEAR, BracketAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases that differ in nothing but the micro-batch and what is compared."""

    cases: tuple[Case, ...]

    @property
    def first(self) -> Case:
        """Any of them, for what they share."""
        return self.cases[0]

    @property
    def sizes(self) -> tuple[int, ...]:
        """All sizes that are asked about."""
        found = {case.micro_batch for case in self.cases}
        for case in self.cases:
            if case.bracket is not None and case.bracket.fails is not None:
                found.add(case.bracket.fails)
        return tuple(sorted(found))


def grouped(cases: Sequence[Case]) -> list[Group]:
    """Cases that share traces, in the order of their first ones."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        same = (case.spec, case.software, case.protocol, case.device, case.allocator_conf)
        key = json.dumps(to_json(same), sort_keys=True)
        groups.setdefault(key, []).append(case)
    return [Group(cases=tuple(found)) for found in groups.values()]


def predict(
    groups: Sequence[Group],
    worker: TraceWorker,
    on_group: Callable[[int, Group], None] = lambda _number, _group: None,
) -> Iterator[Outcome | Unpredicted]:
    """What comes of every case, group by group.

    Args:
        groups: From `grouped`.
        worker: Traces; it decides what is kept for the next run.
        on_group: Called before each group with its number, from 0.
    """
    for number, group in enumerate(groups):
        on_group(number, group)
        try:
            yield from _predicted(group, worker)
        except BsprofError as error:
            reason = f"{error.doing}: {error.found}" if error.found else error.doing
            for case in group.cases:
                yield Unpredicted(case=case, reason=reason)


def _predicted(group: Group, worker: TraceWorker) -> list[Outcome]:
    case = group.first
    device = _device(case)
    traces = Traces(
        worker,
        _possible_attention(case, device, worker, max(group.sizes)),
        trace_target(device, case.software),
        case.protocol,
    )
    brackets = any(c.bracket is not None for c in group.cases)
    traces.prepare(() if brackets else _traced_sizes(group.sizes))
    conditions = Conditions(
        device=device,
        software=case.software,
        allocator_conf=case.allocator_conf,
        cudnn_benchmark=case.spec.cudnn_benchmark,
        precision=case.spec.precision,
    )
    model = MemoryModel(traces.at, conditions)
    return [_outcome(case, model, traces) for case in group.cases]


def _traced_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes to prepare for: small ones stand for all where there are several."""
    return sizes if len(sizes) == 1 else ()


def _outcome(case: Case, model: MemoryModel, traces: Traces) -> Outcome:
    prediction = model.predict(case.micro_batch)
    answer = None
    if case.bracket is not None:
        answer = _bracket_answer(case, case.bracket, model, prediction, traces)
    modules = prediction.top_modules
    return Outcome(
        case=case,
        predicted=quantity_of(case, prediction),
        answer=answer,
        made_of=made_of(prediction),
        phase=prediction.peak_phase,
        top_module=modules[0][0] if modules else "",
    )


def _bracket_answer(
    case: Case,
    bracket: Bracket,
    model: MemoryModel,
    prediction: MemoryPrediction,
    traces: Traces,
) -> BracketAnswer:
    lower = upper = None
    lower_near = upper_near = False
    if bracket.fits:
        lower = prediction.verdict is not Verdict.OUT_OF_MEMORY
        if not lower:
            lower_near = _fits_with(model, bracket.fits, traces, +NEAR)
    if bracket.fails is not None:
        upper = model.verdict(bracket.fails) is not Verdict.OUT_OF_MEMORY
        if upper:
            upper_near = not _fits_with(model, bracket.fails, traces, -NEAR)
    return BracketAnswer(
        name=case.row,
        lower_fits=lower,
        upper_fits=upper,
        lower_near=lower_near,
        upper_near=upper_near,
        recommended=_recommended(model, bracket) if bracket.fits else None,
        fits=bracket.fits,
        fails=bracket.fails,
    )


def _fits_with(model: MemoryModel, size: int, traces: Traces, share: float) -> bool:
    """Whether a size runs on a device that has a share of its peak more, or less."""
    given = model.conditions
    extra = share * model.needed_bytes(size)
    device = _with_capacity(given.device, given.device.capacity_bytes.value + extra)
    other = MemoryModel(traces.at, replace(given, device=device))
    return other.verdict(size) is not Verdict.OUT_OF_MEMORY


def _recommended(model: MemoryModel, bracket: Bracket) -> int:
    """Of the bracket's ends and half of the lower one, the largest that would be recommended.

    A size is recommended where its upper end leaves the usual headroom; 0 where none of them is.
    """
    limit = model.conditions.usable_bytes() * (1 - DEFAULT_HEADROOM)
    sizes = (bracket.fails or 0, bracket.fits, -(-bracket.fits // 2))
    for size in sizes:
        if size and model.predict(size).device_used_bytes.high <= limit:
            return size
    return 0


def _device(case: Case) -> DeviceSpec:
    """The catalogue's device, with the capacity that the source reports."""
    device = find_device(case.device)
    capacity = case.bracket.capacity_bytes if case.bracket is not None else None
    return device if capacity is None else _with_capacity(device, capacity)


def _with_capacity(device: DeviceSpec, capacity_bytes: float) -> DeviceSpec:
    return replace(device, capacity_bytes=Quantity.exact(float(round(capacity_bytes))))


def _possible_attention(
    case: Case, device: DeviceSpec, worker: TraceWorker, size: int
) -> WorkloadSpec:
    """The case's workload, without a kind of attention that its model does not know.

    A model whose attention follows no switch has the attention that its authors wrote.
    """
    spec = case.spec
    if spec.attention is None:
        return spec
    first = min(size, 16)
    found = worker.trace(spec, first, trace_target(device, case.software), case.protocol)
    problem = found.error if isinstance(found, Trouble) else None
    if problem is not None and "--attention" in problem.doing:
        return replace(spec, attention=None)
    return spec
