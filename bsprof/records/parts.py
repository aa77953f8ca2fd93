"""The parts of an update, and whose bytes there are: how memory is divided."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Phase(StrEnum):
    """A part of an update, for memory peaks.

    `forward_backward`: the first micro-step of an update, optimizer state resident.
    `accumulation`: a later micro-step of the same window, full gradients resident as well.
    `optimizer_step`: clipping, unscaling and the optimizer. `forward`: inference.
    """

    FORWARD_BACKWARD = "forward_backward"
    ACCUMULATION = "accumulation"
    OPTIMIZER_STEP = "optimizer_step"
    FORWARD = "forward"


class Category(StrEnum):
    """Whose bytes they are at a peak.

    `weights` are parameters, trained or frozen, with adapters, buffers and a moving average of
    them; `optimizer_state` is what the optimizer keeps, and goes with it. `libraries` is what
    cuBLAS, cuDNN and collectives take from the allocator.
    """

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer_state"
    ACTIVATIONS = "activations"
    TEMPORARIES = "temporaries"
    LIBRARIES = "libraries"

    @property
    def words(self) -> str:
        """For people: `optimizer state`."""
        return self.value.replace("_", " ")


def ranked_shares(held: Mapping[Category, int]) -> list[tuple[Category, float]]:
    """Who holds which share of the bytes, largest first; nobody where there are none."""
    total = sum(held.values())
    ranked = sorted(held.items(), key=lambda item: -item[1])
    return [(category, amount / total) for category, amount in ranked if amount]


class Regime(StrEnum):
    """Which resource binds at a point; `unknown` without peaks, never guessed."""

    LAUNCH = "launch"
    BANDWIDTH = "bandwidth"
    COMPUTE = "compute"
    UNKNOWN = "unknown"
