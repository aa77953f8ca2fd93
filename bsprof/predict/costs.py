"""Works of one traced workload at any size, kept: devices of one kind share them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.cost import Part, StepCosts, steady_costs
from bsprof.predict.pages import fresh_bytes
from bsprof.predict.roofline.processor_laws import PAGES
from bsprof.predict.stream import Stream
from bsprof.records import Precision


class Costs:
    """What the steps of a workload ask of a device.

    Args:
        stream_at: The traced stream of a size, of one process alone.
        compute_capability: Decides which multipliers and kernels there are; None off CUDA.
        precision: Decides which of them are used.
        cache_bytes: Last cache of a processor; None off processors.
    """

    def __init__(
        self,
        stream_at: Callable[[int], Stream],
        compute_capability: tuple[int, int] | None,
        precision: Precision,
        *,
        cache_bytes: float | None = None,
    ) -> None:
        self._stream_at = stream_at
        self._capability = compute_capability
        self._precision = precision
        self._cache_bytes = cache_bytes
        self._kept: dict[int, StepCosts] = {}

    def at(self, micro_batch_size: int) -> StepCosts:
        """Of a steady update at a size."""
        if micro_batch_size not in self._kept:
            stream = self._stream_at(micro_batch_size)
            found = steady_costs(
                stream, self._capability, self._precision, cache_bytes=self._cache_bytes
            )
            if self._cache_bytes is not None:
                fresh = fresh_bytes(stream)
                found = replace(
                    found,
                    forward=_with_pages(found.forward, fresh.micro_step),
                    optimizer=_with_pages(found.optimizer, fresh.optimizer),
                )
            self._kept[micro_batch_size] = found
        return self._kept[micro_batch_size]


def _with_pages(part: Part, fresh: int) -> Part:
    """A part with what the system hands out anew: no operator's, so of no module."""
    if not fresh:
        return part
    pages = Work(
        work_class=WorkClass.OTHER,
        compute="fp32",
        launches=0,
        calls=0,
        name=PAGES,
        memory_bytes=fresh,
    )
    own = part.groups.get("", ())
    return Part(works=(*part.works, (pages, 1)), groups={**part.groups, "": (*own, (pages, 1))})
