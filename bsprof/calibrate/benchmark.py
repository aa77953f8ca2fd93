"""One micro-benchmark, as data: which program, on what shape, in which numbers. Loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CPU, CUDA = "cpu", "cuda"
"""Kinds of devices that are calibrated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A program of `bsprof.calibrate.programs` on one shape.

    Attributes:
        program: Its name: `product.forward`.
        dims: Its lengths, by the names that the program gives them.
        precision: How numbers are held and multiplied: `fp32`, `tf32`, `bf16`, `fp16`.
        kinds: Devices that it is run on.
    """

    program: str
    dims: Mapping[str, int] = field(default_factory=dict)
    precision: str = "fp32"
    kinds: tuple[str, ...] = (CPU, CUDA)

    @property
    def name(self) -> str:
        """For people, and unique: `product.forward m=104 n=88 k=136 fp32`."""
        dims = " ".join(f"{key}={value}" for key, value in self.dims.items())
        return f"{self.program} {dims} {self.precision}"
