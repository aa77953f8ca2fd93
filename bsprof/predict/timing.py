"""How long one micro-batch size takes on one device: work through a roofline, with intervals.

The host dispatches operators ahead of the device, so a part of an update takes what the slower of
the two needs. Device seconds are a sum over classes of work, whose laws err each on their own and
alike at all sizes; the machine as a whole may be faster or slower than others of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bsprof.accounting.work import Work, WorkClass
from bsprof.fit.samples import spread_of_outcomes
from bsprof.predict.communication import Link, Traffic, link_of, traffic
from bsprof.predict.correction import NO_CORRECTION, Correction
from bsprof.predict.cost import Part, StepCosts
from bsprof.predict.roofline import Roofline
from bsprof.predict.room import Conditions
from bsprof.predict.scenarios import WORLDS, factors
from bsprof.predict.stream import Stream
from bsprof.records import HeavyOperator, Quantity, Regime, TimeWorlds
from bsprof.units import format_bytes, format_rate

_Key = TypeVar("_Key")

HEAVIEST = 12
"""Operators that a point keeps: those that take most of the device's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTime:
    """A part of an update, on the device and on the host, in seconds.

    Attributes:
        by_class_s: Seconds of the device.
        host_s: Seconds of the host to dispatch it.
        by_regime_s: Seconds of the device by what binds them.
    """

    by_class_s: Mapping[WorkClass, float]
    host_s: float
    by_regime_s: Mapping[Regime, float]

    @property
    def device_s(self) -> float:
        """Of all classes."""
        return sum(self.by_class_s.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePrediction:
    """What one size takes.

    Attributes:
        micro_step_s: Forward and backward of one micro-batch (forward alone in inference).
        micro_step_sync_s: The same where gradients are reduced; None with one rank.
        optimizer_step_s: None in inference.
        update_s: Of an update without accumulation, what a rank waits for others included.
        accumulation_s: Nominal seconds that a later micro-step of a window takes on top: gradients
            are added up.
        forward: Of the micro-step.
        micro_step: Forward and backward.
        optimizer: Clipping, optimizer step and zeroing; empty in inference.
        regime: What binds most of the micro-step.
        worlds: Seconds in each world, the same worlds at every size.
        heaviest: Operators of the micro-step that take longest.
        model_flops, hardware_flops, bytes_moved, launches: Of a micro-step.
    """

    micro_batch_size: int
    micro_step_s: Quantity
    micro_step_sync_s: Quantity | None
    optimizer_step_s: Quantity | None
    update_s: Quantity
    accumulation_s: float
    forward: PartTime
    micro_step: PartTime
    optimizer: PartTime
    regime: Regime
    worlds: TimeWorlds
    heaviest: tuple[HeavyOperator, ...]
    model_flops: int
    hardware_flops: int
    bytes_moved: int
    launches: int

    def update_of(self, accumulation_steps: int) -> Quantity:
        """Seconds of an update with so many micro-steps, of which the last synchronises."""
        more = accumulation_steps - 1
        worlds = self.worlds
        steps = worlds.micro_step_s
        last = worlds.micro_step_sync_s or steps
        ends = worlds.optimizer_step_s or (0.0,) * len(steps)
        adding = more * self.accumulation_s
        totals = [
            more * step + adding + sync + end
            for step, sync, end in zip(steps, last, ends, strict=True)
        ]
        nominal = more * self.micro_step_s.value + adding + self.update_s.value
        return spread_of_outcomes(nominal, totals)


class TimeModel:
    """The time of one traced workload under given conditions, at any size.

    Args:
        costs_at: The works of a size, of one device alone; see `bsprof.predict.cost`.
        stream_at: The stream of a size; asked only where ranks exchange something.
        conditions: Under what it runs.
        roofline: Of the device.
        correction: What a measured profile says of the prediction.
        bus_bytes_per_s: Between ranks, where the user knows it.
    """

    def __init__(
        self,
        costs_at: Callable[[int], StepCosts],
        stream_at: Callable[[int], Stream],
        conditions: Conditions,
        roofline: Roofline,
        *,
        correction: Correction = NO_CORRECTION,
        bus_bytes_per_s: float | None = None,
    ) -> None:
        self._costs_at = costs_at
        self._stream_at = stream_at
        self._conditions = conditions
        self.roofline = roofline
        self.correction = correction
        self._seconds: dict[object, tuple[float, Regime]] = {}
        self._laws: dict[WorkClass, tuple[float, ...]] = {}
        self._computes: dict[WorkClass, str] = {}
        device, several = conditions.device, conditions.world_size > 1
        self._link: Link | None = link_of(device, bus_bytes_per_s) if several else None
        machine = (
            roofline.machine_spread
            if correction.machine_spread is None
            else (correction.machine_spread)
        )
        host = roofline.host_spread if correction.host_spread is None else correction.host_spread
        self._tables = {
            "machine": factors(f"machine {device.name}", machine),
            "host": factors(f"host {device.name}", host),
            "constant": factors(f"constant {device.name}", correction.constant_spread),
            "link": factors(f"link {device.name}", self._link.spread if self._link else 0.0),
        }

    @property
    def provenance(self) -> tuple[str, ...]:
        """Where the times come from, sentence by sentence."""
        found = list(self.roofline.provenance)
        if self._link is not None:
            rate = format_rate(self._link.bus_bytes_per_s, "B/s")
            found.append(f"Collectives between ranks: {rate}, {self._link.source}.")
        if self.correction.source:
            found.append(f"Corrected by {self.correction.source}.")
        return tuple(found)

    def predict(self, micro_batch_size: int) -> TimePrediction:
        """Times, what they are made of, and their worlds."""
        costs = self._costs_at(micro_batch_size)
        forward, backward = self._part(costs.forward), self._part(costs.backward)
        micro, optimizer = _together(forward, backward), self._part(costs.optimizer)
        exchanged = self._traffic(micro_batch_size)
        nominal = self._world(micro, backward, optimizer, exchanged, None)
        worlds = [
            self._world(micro, backward, optimizer, exchanged, world) for world in range(WORLDS)
        ]
        trains = len(costs.optimizer) > 0
        steps, syncs, updates = zip(*worlds, strict=True)
        several = self._link is not None
        return TimePrediction(
            micro_batch_size=micro_batch_size,
            micro_step_s=spread_of_outcomes(nominal[0], steps),
            micro_step_sync_s=spread_of_outcomes(nominal[1], syncs) if several else None,
            optimizer_step_s=spread_of_outcomes(nominal[2], updates) if trains else None,
            update_s=spread_of_outcomes(nominal[1] + nominal[2], [s + u for _, s, u in worlds]),
            accumulation_s=self._part(costs.accumulation).device_s * self.correction.scale,
            forward=self._corrected(forward),
            micro_step=self._corrected(micro),
            optimizer=self._corrected(optimizer, self.correction.optimizer_scale),
            regime=self._regime(micro, nominal[0]),
            worlds=TimeWorlds(
                micro_step_s=_kept(steps),
                micro_step_sync_s=_kept(syncs) if several else (),
                optimizer_step_s=_kept(updates) if trains else (),
            ),
            heaviest=self._heaviest(costs),
            model_flops=costs.model_flops,
            hardware_flops=costs.hardware_flops,
            bytes_moved=costs.bytes_moved,
            launches=costs.launches,
        )

    def _part(self, part: Part) -> PartTime:
        by_class: dict[WorkClass, float] = {}
        by_regime: dict[Regime, float] = {}
        for work, count in part:
            seconds, regime = self._of(work)
            self._computes.setdefault(work.work_class, work.compute)
            by_class[work.work_class] = by_class.get(work.work_class, 0.0) + count * seconds
            by_regime[regime] = by_regime.get(regime, 0.0) + count * seconds
        host = sum(count * self.roofline.host_seconds((work,)) for work, count in part)
        return PartTime(by_class_s=by_class, host_s=host, by_regime_s=by_regime)

    def _corrected(self, part: PartTime, more: float = 1.0) -> PartTime:
        """A part with what a measurement said of device and host."""
        device = self.correction.scale * more
        return PartTime(
            by_class_s={key: device * s for key, s in part.by_class_s.items()},
            host_s=self.correction.host_scale * part.host_s,
            by_regime_s={key: device * s for key, s in part.by_regime_s.items()},
        )

    def _of(self, work: Work) -> tuple[float, Regime]:
        """Seconds of the device for one work, and what binds them; works repeat over sizes."""
        known = self._seconds.get(work)
        if known is None:
            known = self.roofline.seconds(work), self.roofline.bound(work)
            self._seconds[work] = known
        return known

    def _world(
        self,
        micro: PartTime,
        backward: PartTime,
        optimizer: PartTime,
        exchanged: Traffic,
        world: int | None,
    ) -> tuple[float, float, float]:
        """Seconds of micro-step, synchronising micro-step and optimizer step in one world.

        None is the nominal world, in which every factor is 1.
        """
        given = self.correction
        device = given.scale * self._factor("machine", world)
        host = given.host_scale * self._factor("host", world)
        work, after = (
            device * sum(s * self._law_factor(c, world) for c, s in part.by_class_s.items())
            for part in (micro, optimizer)
        )
        after *= exchanged.optimizer_share * given.optimizer_scale
        enqueued, later = host * micro.host_s, host * optimizer.host_s
        # The host runs ahead of the device over both parts of an update.
        added = self._factor("constant", world)
        alone = max(work, enqueued) + added * given.micro_step_s
        total = max(work + after, enqueued + later) + added * given.micro_step_s
        constant = added * given.update_s + host * self.roofline.step_seconds
        slower = self._factor("link", world)
        behind = device * backward.device_s
        step = exchanged.micro_step_s(alone, slower)
        sync = exchanged.synchronising_s(alone, min(behind, alone), slower)
        return step, sync, total - alone + constant + exchanged.update_s * slower

    def _factor(self, name: str, world: int | None) -> float:
        return 1.0 if world is None else self._tables[name][world]

    def _law_factor(self, work_class: WorkClass, world: int | None) -> float:
        if world is None:
            return 1.0
        table = self._laws.get(work_class)
        if table is None:
            # Devices of one architecture have the same laws, and err alike in one precision.
            given = self._conditions
            name = f"{work_class} {given.precision} {given.device.architecture}"
            spread = self.roofline.spread(work_class, self._computes.get(work_class))
            spread *= self.correction.law_share
            table = self._laws[work_class] = factors(name, spread)
        return table[world]

    def _traffic(self, micro_batch_size: int) -> Traffic:
        if self._link is None:
            return Traffic()
        given = self._conditions
        return traffic(
            self._stream_at(micro_batch_size),
            given.parallel,
            given.world_size,
            self._link,
            given.precision,
        )

    def _regime(self, micro: PartTime, nominal_s: float) -> Regime:
        """What binds most of a micro-step; the host counts as launches."""
        if self.correction.host_scale * micro.host_s >= nominal_s:
            return Regime.LAUNCH
        found = micro.by_regime_s
        return max(found, key=found.__getitem__) if found else Regime.UNKNOWN

    def _heaviest(self, costs: StepCosts) -> tuple[HeavyOperator, ...]:
        found = []
        for work, count in (*costs.forward, *costs.backward):
            seconds, regime = self._of(work)
            found.append(
                HeavyOperator(
                    name=work.name,
                    work_class=work.work_class.value,
                    shape=shape_words(work),
                    count=count,
                    seconds=self.correction.scale * count * seconds,
                    flops=count * work.flops,
                    bytes=count * work.bytes,
                    regime=regime,
                )
            )
        return tuple(sorted(found, key=lambda o: -o.seconds)[:HEAVIEST])


def shape_words(work: Work) -> str:
    """The shape of a work and its type of numbers, in a few words."""
    if work.flops:
        times = f"{work.batch} x " if work.batch > 1 else ""
        return f"{times}({work.m}, {work.k}) by ({work.k}, {work.n}), {work.compute}"
    if work.rows and work.columns:
        return f"{work.rows} x {work.columns}, {work.compute}"
    return f"{format_bytes(work.bytes)}, {work.compute}"


def _kept(seconds: Sequence[float]) -> tuple[float, ...]:
    """To six digits, which is more than they are worth: they fill a profile's file."""
    return tuple(float(f"{s:.6g}") for s in seconds)


def _together(a: PartTime, b: PartTime) -> PartTime:
    return PartTime(
        by_class_s=_sums(a.by_class_s, b.by_class_s),
        host_s=a.host_s + b.host_s,
        by_regime_s=_sums(a.by_regime_s, b.by_regime_s),
    )


def _sums(a: Mapping[_Key, float], b: Mapping[_Key, float]) -> dict[_Key, float]:
    return {key: a.get(key, 0.0) + b.get(key, 0.0) for key in (*a, *b)}
