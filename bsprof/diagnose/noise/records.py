"""What `bsprof noise` asks and answers: frozen records, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from bsprof.records import Note, Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """How the noise is measured.

    Attributes:
        micro_batch_size: Samples of a piece.
        accumulation_steps: Pieces of an update, all at the same weights.
        updates: Optimizer steps, and so places along the training where the noise is measured.
    """

    micro_batch_size: int
    accumulation_steps: int
    updates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseEstimate:
    """One noise scale, or why there is none.

    Attributes:
        noise_scale: tr(S) / |G|^2 in samples with its 90 % interval; None when not enough is known.
        variance: tr(S): variance of one sample's gradient, all elements together.
        signal: |G|^2 of the true gradient, unbiased: may be negative.
        pieces: From which it was made.
        reason: Why there is no noise scale; empty when there is one.
    """

    noise_scale: Quantity | None
    variance: float
    signal: float
    pieces: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseAtStep:
    """The noise at one place of the training.

    Attributes:
        step: Optimizer steps that were taken before.
        preconditioned: As the optimizer's second moments see it; None without such.
    """

    step: int
    plain: NoiseEstimate
    preconditioned: NoiseEstimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The answer of `bsprof noise`.

    Attributes:
        micro_batch_size: Samples of a piece.
        plain: Over all updates together.
        preconditioned: The same with every gradient divided by sqrt(v) + eps, v the second
            moments of the optimizer before the update; None where it keeps none.
        steps: One by one: how the noise moves as training goes on.
        says: Sentences: what follows for the target, and what does not.
    """

    model: str
    micro_batch_size: int
    accumulation_steps: int
    plain: NoiseEstimate
    preconditioned: NoiseEstimate | None
    steps: tuple[NoiseAtStep, ...]
    says: tuple[str, ...]
    notes: tuple[Note, ...] = ()
