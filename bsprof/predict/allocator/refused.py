"""The outcome of a request that finds no memory."""

from __future__ import annotations


class DeviceOutOfMemory(Exception):
    """The allocator gave up on a request: an outcome of a replay, not an error of bsprof.

    Attributes:
        requested_bytes: As asked.
        segment_bytes: What the driver was asked for.
        free_bytes: What the driver had left; None without a limit.
        allocated_bytes, reserved_bytes: When it gave up, after the flush.
    """

    def __init__(
        self,
        *,
        requested_bytes: int,
        segment_bytes: int,
        free_bytes: int | None,
        allocated_bytes: int,
        reserved_bytes: int,
    ) -> None:
        super().__init__(f"{requested_bytes} bytes requested, {free_bytes} free")
        self.requested_bytes = requested_bytes
        self.segment_bytes = segment_bytes
        self.free_bytes = free_bytes
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes
