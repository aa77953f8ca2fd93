"""The one seam where a device is touched: a protocol, the CPU, accelerators, and the choice."""
