"""Works of one traced workload at any size, kept: devices of one kind share them."""

from __future__ import annotations

from collections.abc import Callable

from bsprof.predict.cost import StepCosts, steady_costs
from bsprof.predict.stream import Stream
from bsprof.records import Precision


class Costs:
    """What the steps of a workload ask of a device.

    Args:
        stream_at: The traced stream of a size, of one process alone.
        compute_capability: Decides which multipliers and kernels there are; None off CUDA.
        precision: Decides which of them are used.
    """

    def __init__(
        self,
        stream_at: Callable[[int], Stream],
        compute_capability: tuple[int, int] | None,
        precision: Precision,
    ) -> None:
        self._stream_at = stream_at
        self._capability = compute_capability
        self._precision = precision
        self._kept: dict[int, StepCosts] = {}

    def at(self, micro_batch_size: int) -> StepCosts:
        """Of a steady update at a size."""
        if micro_batch_size not in self._kept:
            self._kept[micro_batch_size] = steady_costs(
                self._stream_at(micro_batch_size), self._capability, self._precision
            )
        return self._kept[micro_batch_size]
