"""Measures the noise scale along a few real updates. Worker side.

Every update runs its pieces twice with the same seeds: first for the squares and the mean, then
for each piece's product with that mean. So two gradients are held, however many pieces there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bsprof.diagnose.equivalence.gradients import sow
from bsprof.diagnose.noise.interval import Window, estimate
from bsprof.diagnose.noise.records import Noise, NoiseAtStep, Question
from bsprof.diagnose.noise.texts import sentences
from bsprof.records import Note, WorkloadSpec
from bsprof.workloads.names import BUILTINS, parse_model
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload

Gradients = list[Tensor]
"""One for each trained parameter, in order; zeros where a pass gave none."""


def measure(
    spec: WorkloadSpec,
    workload: Workload,
    device: str,
    question: Question,
    *,
    beat: Callable[[], None],
) -> Noise:
    """The noise scale of the workload at the weights it starts from, and along its first updates.

    Args:
        beat: Called before each pass.

    Raises:
        WorkloadError: the user's code raised.
    """
    training = build_training(spec, workload, device)
    notes = [*training.notes, *_notes(spec, training)]
    plain: list[Window] = []
    preconditioned: list[Window] = []
    steps = []
    for update in range(question.updates):
        pieces = [
            training.make_batch(question.micro_batch_size)
            for _ in range(question.accumulation_steps)
        ]
        if update == 0 and workload.count is not None:
            notes += _unequal_counts([workload.count(piece) for piece in pieces])
        factors = _preconditioner(training)
        seen = _window(training, pieces, factors, question.micro_batch_size, update, beat)
        plain.append(seen.plain)
        if seen.preconditioned is not None:
            preconditioned.append(seen.preconditioned)
        steps.append(
            NoiseAtStep(
                step=update,
                plain=estimate([seen.plain]),
                preconditioned=None
                if seen.preconditioned is None
                else estimate([seen.preconditioned]),
            )
        )
        _step(training, seen.mean)
    whole = estimate(plain)
    as_seen = estimate(preconditioned) if preconditioned else None
    return Noise(
        model=spec.model,
        micro_batch_size=question.micro_batch_size,
        accumulation_steps=question.accumulation_steps,
        plain=whole,
        preconditioned=as_seen,
        steps=tuple(steps),
        says=sentences(whole, as_seen, tuple(steps)),
        notes=tuple(notes),
    )


@dataclass(slots=True, kw_only=True)
class _Sums:
    """Of one update, for one way to look at gradients."""

    squares: list[float] = field(default_factory=list)
    products: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    plain: Window
    preconditioned: Window | None
    mean: Gradients


def _window(
    training: Training,
    pieces: Sequence[Any],
    factors: Gradients | None,
    samples: int,
    update: int,
    beat: Callable[[], None],
) -> _Seen:
    count = len(pieces)
    sums, seen_by_optimizer = _Sums(), _Sums()
    mean: Gradients | None = None
    for place, piece in enumerate(pieces):
        gradient = _gradient(training, piece, update * count + place, beat)
        sums.squares.append(_dot(gradient, gradient))
        if factors is not None:
            scaled = _scaled(gradient, factors)
            seen_by_optimizer.squares.append(_dot(scaled, scaled))
        if mean is None:
            mean = [g / count for g in gradient]
        else:
            for total, g in zip(mean, gradient, strict=True):
                total.add_(g, alpha=1 / count)
    assert mean is not None
    scaled_mean = None if factors is None else _scaled(mean, factors)
    for place, piece in enumerate(pieces):
        gradient = _gradient(training, piece, update * count + place, beat)
        sums.products.append(_dot(gradient, mean))
        if factors is not None and scaled_mean is not None:
            seen_by_optimizer.products.append(_dot(_scaled(gradient, factors), scaled_mean))
    return _Seen(
        plain=_as_window(sums, samples, _dot(mean, mean)),
        preconditioned=None
        if scaled_mean is None
        else _as_window(seen_by_optimizer, samples, _dot(scaled_mean, scaled_mean)),
        mean=mean,
    )


def _as_window(sums: _Sums, samples: int, total: float) -> Window:
    return Window(
        samples=samples,
        squares=tuple(sums.squares),
        products=tuple(sums.products),
        total=total,
    )


def _trained(training: Training) -> list[torch.nn.Parameter]:
    return [p for p in training.model.parameters() if p.requires_grad]


def _gradient(training: Training, piece: Any, seed: int, beat: Callable[[], None]) -> Gradients:
    """Of one piece, taken off the parameters; the seed makes a second pass the same."""
    beat()
    sow(training.spec.seed + 1 + seed)
    training.zero_grad()
    training.micro_step(piece, 1.0)
    found = []
    for parameter in _trained(training):
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            gradient = torch.zeros_like(parameter)
        found.append(gradient.detach().to_dense())
    return found


def _step(training: Training, mean: Gradients) -> None:
    """The optimizer's step with the mean over all pieces: the update that accumulation makes."""
    for parameter, gradient in zip(_trained(training), mean, strict=True):
        parameter.grad = gradient
    training.optimizer_step()
    training.zero_grad()


def _preconditioner(training: Training) -> Gradients | None:
    """1 / (sqrt(v) + eps) of every parameter; None where the optimizer keeps no such v."""
    optimizer = training.optimizer
    if optimizer is None:
        return None
    found: dict[int, Tensor] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if "exp_avg_sq" not in state or "betas" not in group or "step" not in state:
                return None
            decay = float(group["betas"][1]) ** float(state["step"])
            moment = state["exp_avg_sq"] / max(1 - decay, 1e-12)
            found[id(parameter)] = 1 / (moment.sqrt() + group["eps"])
    trained = _trained(training)
    if any(id(p) not in found for p in trained):
        return None
    return [found[id(p)] for p in trained]


def _scaled(gradient: Gradients, factors: Gradients) -> Gradients:
    return [g * f for g, f in zip(gradient, factors, strict=True)]


def _dot(first: Gradients, second: Gradients) -> float:
    """One number for all parameters; the host waits once."""
    dots = [(a * b).sum(dtype=_wide(a)) for a, b in zip(first, second, strict=True)]
    return float(torch.stack([d.to(dots[0].device) for d in dots]).sum())


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def _notes(spec: WorkloadSpec, training: Training) -> list[Note]:
    notes = []
    if spec.model in BUILTINS or parse_model(spec.model).kind not in ("file", "module"):
        notes.append(
            Note(
                code="random-data",
                message=f"{spec.model} has random data: its noise scale is not that of a real task",
                hint="measure a workload of your own, file.py:factory, with your data",
            )
        )
    if training.facts.batch_norm_modules:
        notes.append(
            Note(
                code="batch-norm-noise",
                message="BatchNorm: a piece's gradient depends on its size beyond averaging, so "
                "the noise scale is approximate",
            )
        )
    return notes


def _unequal_counts(counts: Sequence[int]) -> list[Note]:
    if len(set(counts)) < 2:
        return []
    return [
        Note(
            code="unequal-tokens",
            message=f"pieces count from {min(counts)} to {max(counts)} tokens: they are taken as "
            "equal, and the noise scale is in samples",
        )
    ]
