"""What is known of a training run beyond its profile, for the advice on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bsprof.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the user says of the run.

    Attributes:
        current_batch: Samples per update that the hyperparameters were tuned at.
        noise_scale: Gradient noise scale in samples, as `bsprof noise` measures it.
        dataset_size: Samples of an epoch; None takes what the profile knows.
        epochs: Epochs of the schedule.
        warmup_share: Part of the schedule that warms up, 0 to 1.

    Raises:
        UsageError: a number that cannot be.
    """

    current_batch: int | None = None
    noise_scale: float | None = None
    dataset_size: int | None = None
    epochs: int = 1
    warmup_share: float | None = None

    def __post_init__(self) -> None:
        if self.current_batch is not None and self.current_batch < 1:
            raise UsageError(
                f"the current batch must be at least 1 sample, not {self.current_batch}",
                next_step="give the samples per update that the learning rate was tuned at",
            )
        if self.noise_scale is not None and not 0 < self.noise_scale < math.inf:
            raise UsageError(
                f"the noise scale must be a number of samples above 0, not {self.noise_scale}",
                next_step="give what `bsprof noise` measured",
            )
