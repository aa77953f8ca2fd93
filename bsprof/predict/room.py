"""How much of a device's memory a training process may use, and its caching allocator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bsprof.predict.target import Software
from bsprof.predict.terms.outside import outside_bytes
from bsprof.predict.terms.variant import End, Variant
from bsprof.records import DeviceSpec, Precision, Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Under what a traced workload would run.

    Attributes:
        device: Where.
        software: Whose rules apply.
        world_size: Data-parallel ranks.
        parallel: How they share the work: `none`, `ddp`, `fsdp`, `zero1`, `zero2`, `zero3`.
        allocator_conf: As in `PYTORCH_CUDA_ALLOC_CONF`; None is unset.
        memory_limit_bytes: The user's own limit on what the process uses, context included.
        other_bytes: What a desktop or other processes use of the device.
        cudnn_benchmark: Whether convolutions are autotuned, which shows in the first step.
        precision: How numbers are multiplied.
    """

    device: DeviceSpec
    software: Software = field(default_factory=Software)
    world_size: int = 1
    parallel: str = "none"
    allocator_conf: str | None = None
    memory_limit_bytes: int | None = None
    other_bytes: int = 0
    cudnn_benchmark: bool = False
    precision: Precision = Precision.FP32

    def usable_bytes(self, need: End = End.NOMINAL) -> int:
        """What the process may use, context included.

        Args:
            need: Which end of the memory *needed* is asked about: for the high end of what is
                needed, the low end of what drivers leave is what counts.
        """
        opposite = {End.LOW: End.HIGH, End.NOMINAL: End.NOMINAL, End.HIGH: End.LOW}[need]
        free = max(0, opposite.of(self.device.capacity_bytes) - self.other_bytes)
        limit = self.memory_limit_bytes
        return free if limit is None else min(free, limit)

    @property
    def is_limited(self) -> bool:
        """Whether the user's limit, not the device, decides."""
        limit = self.memory_limit_bytes
        return limit is not None and limit < self.device.capacity_bytes.value - self.other_bytes

    def allocator_bytes(
        self, outside: Sequence[Term], variant: Variant, need: End, fraction: float | None
    ) -> int:
        """What the caching allocator may take from the driver.

        Args:
            outside: What lies outside it.
            variant: Whose end of the terms outside, and whose unexplained share of the reserved
                bytes, are taken.
            need: As in `usable_bytes`.
            fraction: Of the whole device, what reserved bytes alone may be (the allocator's own
                setting); None is unset.
        """
        left = self.usable_bytes(need) - outside_bytes(outside, variant)
        most = max(0, int(left / (1 + variant.slack)))
        if fraction is None:
            return most
        return min(most, int(fraction * self.device.capacity_bytes.value))
