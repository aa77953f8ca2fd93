"""What of a device and its software decides which operators run, and how a run is put together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """The generation of software whose rules apply.

    Attributes:
        torch: Major and minor version.
        cudnn: Major version.
        cuda: Major and minor version.
    """

    torch: tuple[int, int] = (2, 13)
    cudnn: int = 9
    cuda: tuple[int, int] = (12, 8)


class Semantics(StrEnum):
    """Whose operators a trace shows: those of a CUDA device, or of the CPU (to check it)."""

    CUDA = "cuda"
    CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTarget:
    """The device as far as it decides which operators run; devices that agree share a trace.

    Attributes:
        semantics: See `Semantics`.
        compute_capability: Major and minor; attention backends and bf16 follow from it.
        software: Whose defaults apply (foreach, `zero_grad`, fused operators).
    """

    semantics: Semantics = Semantics.CUDA
    compute_capability: tuple[int, int] = (8, 0)
    software: Software = Software()


class ZeroGrad(StrEnum):
    """Where gradients are dropped or zeroed."""

    AFTER_STEP = "after_step"
    BEFORE_FORWARD = "before_forward"
    BEFORE_BACKWARD = "before_backward"


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How the traced run is put together.

    Attributes:
        windows: Micro-steps of each update, in order. The default has a first update, which makes
            optimizer state, and a steady one with an accumulation window of two: what
            `bsprof sweep` watches on a real device.
        zero_grad: Where gradients go.
        set_to_none: Dropped, or kept and zeroed (the default of torch before 2.0).
        fresh_batch: Whether each micro-step has a batch of its own, allocated while the one
            before is still held, as a loop over a loader does; else one batch serves all.
    """

    windows: tuple[int, ...] = (1, 2)
    zero_grad: ZeroGrad = ZeroGrad.AFTER_STEP
    set_to_none: bool = True
    fresh_batch: bool = False
