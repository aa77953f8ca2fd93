"""What one micro-batch size needs on one device: replays of a traced stream, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bsprof.predict.allocator import AllocatorRules, Replay, Verdict
from bsprof.predict.allocator import replay as replay_stream
from bsprof.predict.intervals import ALLOCATED_SHARE, RESERVED_SHARE, spanned
from bsprof.predict.replays import Insertions, Replays
from bsprof.predict.room import Conditions
from bsprof.predict.stream import Stream
from bsprof.predict.terms import (
    NOMINAL,
    SMALLEST,
    VARIANTS,
    End,
    Variant,
    library_insertions,
    outside_bytes,
    outside_terms,
    parallelise,
    reserve_storages,
    terms_of,
    with_reserve,
)
from bsprof.records import Category, Phase, Quantity, Term

StreamAt = Callable[[int], Stream]
"""The stream of a micro-batch size."""

KEPT_STREAMS = 4
"""Streams of one rank that are kept at a time: those of one size are asked for several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPrediction:
    """What one size needs on one device.

    Peaks are those of steady updates. Where the size is out of memory they say what it would
    need; where it fits only after a cache flush, what is left of them within the capacity.

    Attributes:
        verdict: Of the nominal variant.
        worst, best: Of the least and most favourable plausible variant and capacity.
        allocated_bytes, reserved_bytes, device_used_bytes: Peaks with 90 % intervals.
        first_step_reserved_bytes: Peak of the first update, autotuning included.
        alloc_retries: Cache flushes.
        resident_bytes: Allocated between two updates.
        allocated_by_phase_bytes, device_used_by_phase_bytes: Nominal peaks of each phase.
        first_step_allocated_bytes: Nominal peak of the first update.
        peak_phase: In which the allocated peak lies.
        by_category_bytes: Whose bytes it is made of.
        top_modules: The same by module, largest first, all of them.
        requested_bytes: Of the request that was refused; None where none was.
        refused_in: The phase that it was in; None outside of phases.
        terms: Amounts at this size that are no tensors of the model.
        replay: The nominal replay without a limit.
    """

    micro_batch_size: int
    verdict: Verdict
    worst: Verdict
    best: Verdict
    allocated_bytes: Quantity
    reserved_bytes: Quantity
    device_used_bytes: Quantity
    first_step_reserved_bytes: Quantity
    alloc_retries: int
    resident_bytes: int
    allocated_by_phase_bytes: Mapping[Phase, int]
    device_used_by_phase_bytes: Mapping[Phase, int]
    first_step_allocated_bytes: int
    peak_phase: Phase | None
    by_category_bytes: Mapping[Category, int]
    top_modules: tuple[tuple[str, int], ...]
    requested_bytes: int | None
    refused_in: Phase | None
    terms: tuple[Term, ...]
    replay: Replay


class MemoryModel:
    """The memory of one traced workload under given conditions, at any size.

    Args:
        stream_at: The traced stream of a size, of one process alone.
        conditions: Under what it would run.
        replays: Kept replays of this workload with these ranks, shared between devices; None for
            own ones.
    """

    def __init__(
        self, stream_at: StreamAt, conditions: Conditions, replays: Replays | None = None
    ) -> None:
        self.conditions = conditions
        rules = AllocatorRules.of(conditions.software, conditions.allocator_conf)
        self._replays = replays or Replays(rules)
        self._stream_at = stream_at
        self._streams: dict[int, tuple[Stream, Insertions]] = {}
        self._reserves: dict[int, frozenset[int]] = {}
        self._inserted: dict[tuple[int, Variant, bool], Insertions] = {}
        self.outside = outside_terms(
            conditions.device, conditions.software, world_size=conditions.world_size
        )

    def predict(self, micro_batch_size: int) -> MemoryPrediction:
        """Peaks, verdict and owner of the peak at one size."""
        nominal = self._unlimited(micro_batch_size, NOMINAL)
        others = [(v, self._unlimited(micro_batch_size, v)) for v in VARIANTS]
        limited = nominal
        verdict = self.verdict(micro_batch_size)
        flushes = verdict is Verdict.FITS_AFTER_FLUSH
        left = self._capacity(NOMINAL, End.NOMINAL)
        # What is unused may be given back before it comes to a flush.
        rules = self._replays.rules
        releases = None not in (rules.garbage_collection_threshold, rules.memory_fraction)
        bounded = flushes or (
            verdict is Verdict.FITS and (releases or nominal.peak_reserved_bytes > left)
        )
        if bounded:
            limited = self._limited(micro_batch_size, NOMINAL, End.NOMINAL)
            if limited.verdict is Verdict.OUT_OF_MEMORY:  # it runs with smaller plans
                limited = self._limited(micro_batch_size, SMALLEST, End.NOMINAL)
        refused = None
        if verdict is Verdict.OUT_OF_MEMORY:
            refused = self._limited(micro_batch_size, SMALLEST, End.NOMINAL).refusal
        usable = self.conditions.usable_bytes()
        outside = outside_bytes(self.outside, NOMINAL)
        most = float(usable) if bounded else float("inf")
        tuning = self.conditions.cudnn_benchmark
        first = self._unlimited(micro_batch_size, NOMINAL, tuning=tuning)
        return MemoryPrediction(
            micro_batch_size=micro_batch_size,
            verdict=verdict,
            worst=self.verdict(micro_batch_size, End.HIGH),
            best=self.verdict(micro_batch_size, End.LOW),
            allocated_bytes=spanned(
                limited.steady_allocated_bytes,
                (r.steady_allocated_bytes for _, r in others),
                ALLOCATED_SHARE,
            ),
            reserved_bytes=_at_most(
                spanned(
                    limited.steady_reserved_bytes,
                    (r.steady_reserved_bytes for _, r in others),
                    RESERVED_SHARE,
                ),
                float(left) if bounded else float("inf"),
            ),
            device_used_bytes=_at_most(
                spanned(
                    outside + limited.steady_reserved_bytes,
                    (self._used(v, r.steady_reserved_bytes) for v, r in others),
                    RESERVED_SHARE,
                ),
                most,
            ),
            first_step_reserved_bytes=spanned(
                min(first.first_update_reserved_bytes, left),
                (),
                RESERVED_SHARE,
            ),
            alloc_retries=max(1, limited.alloc_retries) if flushes else 0,
            resident_bytes=nominal.resident_bytes,
            allocated_by_phase_bytes=limited.allocated_by_phase(),
            device_used_by_phase_bytes={
                phase: outside + amount for phase, amount in limited.reserved_by_phase().items()
            },
            first_step_allocated_bytes=nominal.first_update_allocated_bytes,
            peak_phase=nominal.peak.mark.phase if nominal.peak.mark is not None else None,
            by_category_bytes=nominal.peak.by_category,
            top_modules=nominal.peak.by_module,
            requested_bytes=refused.requested_bytes if refused else None,
            refused_in=refused.mark.phase if refused and refused.mark else None,
            terms=(*self.outside, *self._library_terms(micro_batch_size)),
            replay=nominal,
        )

    def verdict(self, micro_batch_size: int, need: End = End.NOMINAL) -> Verdict:
        """Whether a size fits.

        A convolution whose workspace is refused runs by a smaller plan, after a flush of the
        cache: that alone is never out of memory.

        Args:
            need: `NOMINAL`; `HIGH` for the least favourable variant and the least capacity, `LOW`
                for the most favourable ones.
        """
        if self.fits(micro_batch_size, need):
            return Verdict.FITS
        smallest = _at_end(SMALLEST, need)
        least = self._unlimited(micro_batch_size, smallest).peak_allocated_bytes
        if least > self._capacity(smallest, need):
            return Verdict.OUT_OF_MEMORY  # not even what is live together fits
        if self._limited(micro_batch_size, smallest, need).verdict is Verdict.OUT_OF_MEMORY:
            return Verdict.OUT_OF_MEMORY
        return Verdict.FITS_AFTER_FLUSH

    def fits(self, micro_batch_size: int, need: End = End.NOMINAL) -> bool:
        """Whether a size fits without a cache flush; cheaper than `verdict`."""
        if need is End.NOMINAL:
            return self._fits(micro_batch_size, NOMINAL, need)
        decide = all if need is End.HIGH else any
        return decide(self._fits(micro_batch_size, v, need) for v in self._distinct(need))

    def fits_like(self, near: int, need: End) -> Callable[[int], bool]:
        """What `fits` says of sizes near one, asked of the one variant that decides there."""
        if need is End.NOMINAL:
            return self.fits
        decides = max if need is End.HIGH else min
        variant = decides(
            self._distinct(need), key=lambda v: self._unlimited(near, v).peak_reserved_bytes
        )
        return lambda size: self._fits(size, variant, need)

    def needed_bytes(self, micro_batch_size: int) -> float:
        """What a size uses in all where there is no limit, nominally."""
        return self._used(NOMINAL, self._unlimited(micro_batch_size, NOMINAL).peak_reserved_bytes)

    def timeline(self, micro_batch_size: int) -> Replay:
        """The nominal replay without a limit, with its timeline."""
        stream, insertions = self._run(micro_batch_size, NOMINAL)
        return replay_stream(stream, insertions, self._replays.rules, None, timeline=True)

    def stream(self, micro_batch_size: int) -> Stream:
        """The stream that is replayed: of one rank."""
        return self._parallelised(micro_batch_size)[0]

    def _distinct(self, need: End) -> tuple[Variant, ...]:
        """The variants with everything else at one end."""
        return tuple(dict.fromkeys(_at_end(v, need) for v in VARIANTS))

    def _fits(self, micro_batch_size: int, variant: Variant, need: End) -> bool:
        needed = self._unlimited(micro_batch_size, variant)
        capacity = self._capacity(variant, need)
        if needed.peak_reserved_bytes <= capacity:
            return True
        if needed.peak_allocated_bytes > capacity:
            return False
        return self._limited(micro_batch_size, variant, need).verdict is Verdict.FITS

    def _capacity(self, variant: Variant, need: End) -> int:
        fraction = self._replays.rules.memory_fraction
        return self.conditions.allocator_bytes(self.outside, variant, need, fraction)

    def _used(self, variant: Variant, reserved_bytes: int) -> float:
        return outside_bytes(self.outside, variant) + reserved_bytes * (1 + variant.slack)

    def _unlimited(
        self, micro_batch_size: int, variant: Variant, *, tuning: bool = False
    ) -> Replay:
        return self._replays.unlimited(*self._run(micro_batch_size, variant, tuning=tuning))

    def _limited(self, micro_batch_size: int, variant: Variant, need: End) -> Replay:
        stream, insertions = self._run(micro_batch_size, variant)
        capacity = self._capacity(variant, need)
        whole = round(self.conditions.device.capacity_bytes.value)
        return replay_stream(stream, insertions, self._replays.rules, capacity, device_bytes=whole)

    def _run(
        self, micro_batch_size: int, variant: Variant, *, tuning: bool = False
    ) -> tuple[Stream, Insertions]:
        """A size's stream, and all that is inserted into it."""
        stream, own = self._parallelised(micro_batch_size)
        reserves = self._reserves.get(micro_batch_size)
        if reserves is None:
            reserves = self._reserves[micro_batch_size] = reserve_storages(stream)
        stream = with_reserve(stream, reserves, variant.reserve)
        return stream, (*own, *self._libraries(micro_batch_size, variant, tuning=tuning))

    def _libraries(
        self, micro_batch_size: int, variant: Variant, *, tuning: bool = False
    ) -> Insertions:
        """What libraries insert into a size's stream."""
        given = self.conditions
        key = (micro_batch_size, _without_outside(variant), tuning)
        inserted = self._inserted.get(key)
        if inserted is None:
            found = library_insertions(
                self._parallelised(micro_batch_size)[0],
                given.device,
                given.software,
                variant,
                cudnn_benchmark=tuning,
                precision=given.precision,
            )
            inserted = self._inserted[key] = tuple(found)
        return inserted

    def _library_terms(self, micro_batch_size: int) -> tuple[Term, ...]:
        nominal, *others = (self._libraries(micro_batch_size, v) for v in VARIANTS)
        return terms_of(nominal, others)

    def _parallelised(self, micro_batch_size: int) -> tuple[Stream, Insertions]:
        """The stream of one rank, and what communication adds to it."""
        kept = self._streams.get(micro_batch_size)
        if kept is None:
            stream = self._stream_at(micro_batch_size)
            own: Insertions = ()
            given = self.conditions
            if given.world_size > 1:
                stream, found = parallelise(stream, given.parallel, given.world_size)
                own = tuple(found)
            if len(self._streams) >= KEPT_STREAMS:
                del self._streams[next(iter(self._streams))]
            kept = self._streams[micro_batch_size] = (stream, own)
        return kept


def predict_memory(
    stream: Stream, conditions: Conditions, replays: Replays | None = None
) -> MemoryPrediction:
    """What the traced size of a stream needs under given conditions."""
    model = MemoryModel(lambda _size: stream, conditions, replays)
    return model.predict(stream.micro_batch_size)


def _without_outside(variant: Variant) -> Variant:
    """The variant as far as what it inserts goes."""
    return replace(variant, name="", outside=End.NOMINAL, slack=0.0, reserve=1.0)


def _at_end(variant: Variant, need: End) -> Variant:
    """The variant with what lies outside, the unexplained share and the reserve at one end."""
    if need is End.NOMINAL:
        return variant
    end = max if need is End.HIGH else min
    slack, reserve = (end(v.slack for v in VARIANTS), end(v.reserve for v in VARIANTS))
    return replace(variant, name="", outside=need, slack=slack, reserve=reserve)


def _at_most(quantity: Quantity, most: float) -> Quantity:
    return Quantity.ordered(quantity.value, quantity.low, min(quantity.high, most))
