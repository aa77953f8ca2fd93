"""The device's memory as its driver hands it out: an amount that runs out, and addresses."""

from __future__ import annotations

from bsprof.predict.allocator.rules import DRIVER_PAGE_BYTES

FIRST_ADDRESS = 1 << 40


class Driver:
    """Grants memory up to a capacity, in whole pages.

    Addresses rise and are not used twice; a gap keeps segments apart. Where blocks lie decides
    only between free blocks of equal size.

    Attributes:
        capacity_bytes: What there is for the allocator; None: no limit.
        used_bytes: Granted and not given back.
    """

    __slots__ = ("_next_address", "capacity_bytes", "used_bytes")

    def __init__(self, capacity_bytes: int | None) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._next_address = FIRST_ADDRESS

    def take(self, size: int) -> bool:
        """Takes memory without saying where (pages of an expandable segment); False: refused."""
        size = _whole_pages(size)
        if self.capacity_bytes is not None and self.used_bytes + size > self.capacity_bytes:
            return False
        self.used_bytes += size
        return True

    def give(self, size: int) -> None:
        """Gives memory back."""
        self.used_bytes -= _whole_pages(size)

    def reserve_addresses(self, size: int) -> int:
        """First of a range of addresses that nothing else gets."""
        address = self._next_address
        self._next_address = address + _whole_pages(size) + DRIVER_PAGE_BYTES
        return address

    def allocate(self, size: int) -> int | None:
        """Address of a new segment; None: refused."""
        return self.reserve_addresses(size) if self.take(size) else None

    @property
    def free_bytes(self) -> int | None:
        """What is left; None without a limit."""
        return None if self.capacity_bytes is None else self.capacity_bytes - self.used_bytes


def _whole_pages(size: int) -> int:
    return (size + DRIVER_PAGE_BYTES - 1) & -DRIVER_PAGE_BYTES
