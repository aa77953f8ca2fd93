"""bsprof: which micro-batch, and how many accumulation steps, on this device, and why."""

__version__ = "0.1.0"
