"""Measuring: worker processes, clocks, memory, and the seam where the device is touched."""
