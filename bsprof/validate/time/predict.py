"""Predicts cases: one worker traces each workload once, and its rows are priced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bsprof.accounting.work import WorkClass
from bsprof.errors import BsprofError
from bsprof.measure.crew import Trouble
from bsprof.predict.correction import NO_CORRECTION, Correction
from bsprof.predict.cost import Part, StepCosts, steady_costs
from bsprof.predict.roofline import Roofline
from bsprof.predict.room import Conditions
from bsprof.predict.stream import Stream
from bsprof.predict.timing import PartTime, TimeModel, TimePrediction
from bsprof.predict.traces import Traces
from bsprof.predict.worker import TraceWorker
from bsprof.records import DeviceSpec, Quantity, WorkloadSpec
from bsprof.validate.time.cases import Calibrates, TimeCase, TimeQuantity
from bsprof.validate.time.corrections import correction_of, shared_by
from bsprof.validate.time.datasheet import sheet_of_part, sheet_of_update
from bsprof.validate.time.gmacs import other_network
from bsprof.validate.time.groups import Group, device_of
from bsprof.validate.time.outcomes import TimeOutcome, TimeUnpredicted

RooflineOf = Callable[[DeviceSpec, Mapping[str, float]], Roofline]

_ATTENTION = (WorkClass.ATTENTION_FORWARD, WorkClass.ATTENTION_BACKWARD)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A case whose correction another row may give.

    Attributes:
        costs: Of its quantity.
        first: Its prediction without a correction.
    """

    case: TimeCase
    costs: StepCosts
    first: TimePrediction


class TimePredictor:
    """Predicts groups of cases.

    Args:
        worker: Traces; it decides what is kept for the next run.
        roofline_of: The roofline of a device, or of one whose ceilings were measured.
    """

    def __init__(self, worker: TraceWorker, roofline_of: RooflineOf) -> None:
        self._worker = worker
        self._roofline_of = roofline_of
        self._rooflines: dict[tuple[str, str], Roofline] = {}

    def predict(
        self,
        groups: Sequence[Group],
        on_group: Callable[[int, Group], None] = lambda _number, _group: None,
    ) -> Iterator[TimeOutcome | TimeUnpredicted]:
        """What comes of every case; those that others correct come last.

        Args:
            groups: From `grouped`.
            on_group: Called before each group with its number, from 0.
        """
        corrected = {
            name for group in groups for case in group.cases for name in _corrected_by(case)
        }
        waiting: list[_Waiting] = []
        corrections: dict[str, Correction] = {}
        for number, group in enumerate(groups):
            on_group(number, group)
            try:
                for found in self._predicted(group):
                    if isinstance(found, TimeUnpredicted):
                        yield found
                        continue
                    case = found.case
                    if case.calibrates is not Calibrates.NOTHING:
                        corrections[shared_by(case)] = correction_of(case, found.first)
                    if corrected & {case.machine, case.sweep}:
                        waiting.append(found)
                    else:
                        yield self._outcome(found, found.first)
            except BsprofError as error:
                reason = f"{error.doing}: {error.found}" if error.found else error.doing
                for case in group.cases:
                    yield TimeUnpredicted(case=case, reason=reason)
        for found in waiting:
            case = found.case
            known = [corrections[n] for n in (case.sweep, case.machine) if n in corrections]
            correction = known[0] if known else NO_CORRECTION
            model = self._model(case, found.costs, None, correction)
            yield self._outcome(found, model.predict(case.micro_batch))

    def _predicted(self, group: Group) -> Iterator[_Waiting | TimeUnpredicted]:
        """Each case of a group with its works; corrections are not known yet."""
        case = group.first
        traces = Traces(self._worker, spec_of(group, self._worker), group.target, case.protocol)
        sizes = group.sizes
        traces.prepare(sizes if len(sizes) == 1 else ())
        known: dict[int, StepCosts] = {}
        for case in group.cases:
            size = case.micro_batch
            if size not in known:
                capability = device_of(case).compute_capability
                known[size] = steady_costs(traces.at(size), capability, case.spec.precision)
            whole = known[size]
            problem = other_network(case, whole.forward)
            if problem is not None:
                yield TimeUnpredicted(case=case, reason=problem, counts=False)
                continue
            costs = costs_of(case, whole)
            stream_at = traces.at if case.world_size > 1 else None
            first = self._model(case, costs, stream_at, NO_CORRECTION).predict(size)
            yield _Waiting(case=case, costs=costs, first=first)

    def _model(
        self,
        case: TimeCase,
        costs: StepCosts,
        stream_at: Callable[[int], Stream] | None,
        correction: Correction,
    ) -> TimeModel:
        device = device_of(case)
        conditions = Conditions(
            device=device,
            software=case.software,
            world_size=case.world_size,
            parallel=case.parallel,
            cudnn_benchmark=case.spec.cudnn_benchmark,
            precision=case.spec.precision,
        )
        machine = device.name, case.machine if case.ceilings else ""
        roofline = self._rooflines.get(machine)
        if roofline is None:
            roofline = self._rooflines[machine] = self._roofline_of(device, case.ceilings)
        return TimeModel(
            lambda _size: costs,
            stream_at or _no_stream,
            conditions,
            roofline,
            correction=correction,
        )

    def _outcome(self, found: _Waiting, prediction: TimePrediction) -> TimeOutcome:
        case, costs = found.case, found.costs
        device = device_of(case)
        if case.quantity is TimeQuantity.UPDATE:
            sheet_s = sheet_of_update(
                costs,
                device,
                accumulation_steps=case.accumulation_steps,
                world_size=case.world_size if case.parallel not in ("none", "ddp") else 1,
            )
        else:
            sheet_s = sheet_of_part(costs.forward, device) + sheet_of_part(costs.backward, device)
        steps = case.accumulation_steps
        by_class = dict(_times(prediction.micro_step, steps))
        for name, seconds in _times(prediction.optimizer, 1).items():
            by_class[name] = by_class.get(name, 0.0) + seconds
        return TimeOutcome(
            case=case,
            predicted=_quantity(case, prediction),
            sheet_s=sheet_s,
            by_class_s=by_class,
            host_s=steps * prediction.micro_step.host_s + prediction.optimizer.host_s,
            regime=prediction.regime,
            set_name=set_name_of(case, costs.forward),
        )


def spec_of(group: Group, worker: TraceWorker) -> WorkloadSpec:
    """The workload of a group, without a kind of attention that its model does not know.

    A model whose attention follows no switch has the attention that its authors wrote.
    """
    case = group.first
    spec = case.spec
    if spec.attention is None:
        return spec
    found = worker.trace(spec, max(group.sizes), group.target, case.protocol)
    problem = found.error if isinstance(found, Trouble) else None
    if problem is not None and "--attention" in problem.doing:
        return replace(spec, attention=None)
    return spec


def costs_of(case: TimeCase, whole: StepCosts) -> StepCosts:
    """The works of what was timed, attention by the kernels that the source declares."""
    if case.attention_kernel:
        whole = replace(
            whole,
            forward=_with_attention(whole.forward, case.attention_kernel),
            backward=_with_attention(whole.backward, case.attention_kernel),
        )
    if case.quantity is TimeQuantity.FORWARD:
        return StepCosts(forward=whole.forward)
    if case.quantity is TimeQuantity.MICRO_STEP:
        return replace(whole, optimizer=Part(), accumulation=Part())
    return whole


def set_name_of(case: TimeCase, forward: Part) -> str:
    """The scored set: models with grouped convolutions, depthwise ones aside, are apart."""
    if not case.set_name or not case.grouped_apart:
        return case.set_name
    for work, _count in forward:
        if work.work_class is WorkClass.CONVOLUTION_FORWARD and work.batch > 1:
            inputs = work.k // max(1, work.kernel_area)
            if min(work.n, inputs) > 1:
                return f"{case.set_name}-grouped"
    return case.set_name


def _quantity(case: TimeCase, prediction: TimePrediction) -> Quantity:
    if case.quantity is TimeQuantity.UPDATE:
        return prediction.update_of(case.accumulation_steps)
    return prediction.micro_step_s


def _times(part: PartTime, times: int) -> dict[WorkClass, float]:
    return {name: times * seconds for name, seconds in part.by_class_s.items()}


def _with_attention(part: Part, kernel: str) -> Part:
    return Part(
        works=tuple(
            (replace(work, implementation=kernel), count)
            if work.work_class in _ATTENTION
            else (work, count)
            for work, count in part
        )
    )


def _corrected_by(case: TimeCase) -> tuple[str, ...]:
    return () if case.calibrates is Calibrates.NOTHING else (shared_by(case),)


def _no_stream(_size: int) -> Stream:
    raise AssertionError("one rank exchanges nothing")
