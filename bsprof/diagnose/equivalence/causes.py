"""Why two gradients differ: each cause is named by an experiment that takes it out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bsprof.diagnose.equivalence import texts
from bsprof.diagnose.equivalence.gradients import (
    SEED,
    Bench,
    Gradient,
    best_weights,
    combined,
    difference,
    sow,
)
from bsprof.diagnose.equivalence.mixing import first_mixing
from bsprof.diagnose.equivalence.peeling import Peel, counting, dropping, normalising
from bsprof.diagnose.findings import Finding

SHOWN = 4
"""Module names in a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A whole batch and its pieces.

    Attributes:
        sizes: Samples of each piece.
        counts: What the workload's `count` says of each piece; None without one.
        weigh: What the weights follow: `samples`, `tokens` or `equal`.
        tolerance: Relative difference above which gradients differ.
    """

    whole: Any
    pieces: Sequence[Any]
    sizes: Sequence[int]
    counts: Sequence[int] | None
    weigh: str
    weights: Sequence[float]
    tolerance: float


def causes(bench: Bench, case: Case) -> list[Finding]:
    """All causes that could be told apart; `unknown` where none explains the difference."""
    found: list[Finding] = []
    peel = Peel()
    if not _repeats(bench, case):
        return [texts.state(in_model=False)]
    if _random(bench, case, peel):
        modules = dropping(bench.model)
        peel = replace(peel, dropout=True)
        quiet = not _random(bench, case, peel)
        found.append(texts.dropout(_first(modules), separable=quiet))
        if not quiet:
            return found
    if _state(bench, case, peel):
        found.append(texts.state(in_model=True))
    parts = _Parts.of(bench, case, peel)
    if counting(bench.model):
        without = replace(peel, frequency=True)
        changed = _Parts.of(bench, case, without)
        if difference(changed.whole, parts.whole) > case.tolerance:
            found.append(texts.frequency(_first(counting(bench.model))))
        parts, peel = changed, without
    hypothesis = _weights_of_loss(parts, case)
    if hypothesis is None:
        without = replace(peel, batch_norm=True)
        changed = _Parts.of(bench, case, without)
        if difference(changed.whole, parts.whole) > case.tolerance:
            found.append(texts.batch_norm(_first(normalising(bench.model))))
            parts, peel = changed, without
            hypothesis = _weights_of_loss(parts, case)
    if hypothesis is None:
        place = first_mixing(bench, case.whole, case.pieces, peel)
        found.append(texts.in_batch(place))
    elif not _same(hypothesis, case.weights, parts, case.tolerance):
        found.append(_wrong_weights(hypothesis, case))
    return found or [texts.unknown()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Gradients of the whole batch and of every piece, each from the same state."""

    whole: Gradient
    pieces: list[Gradient]

    @classmethod
    def of(cls, bench: Bench, case: Case, peel: Peel) -> _Parts:
        return cls(
            whole=bench.gradient([case.whole], peel=peel),
            pieces=[bench.gradient([piece], peel=peel) for piece in case.pieces],
        )


def _random(bench: Bench, case: Case, peel: Peel) -> bool:
    """Whether the seed changes the gradient of one and the same batch."""
    first = bench.gradient([case.whole], peel=peel, seed=SEED)
    other = bench.gradient([case.whole], peel=peel, seed=SEED + 1)
    return difference(other, first) > case.tolerance


def _repeats(bench: Bench, case: Case) -> bool:
    """Whether a fresh copy and the same seed give the same gradient again."""
    first, again = (bench.gradient([case.whole]) for _ in range(2))
    return difference(again, first) <= case.tolerance


def _state(bench: Bench, case: Case, peel: Peel) -> bool:
    """Whether a pass over a piece changes the next one on the same model."""
    model = bench.fresh()
    passes = []
    for _ in range(2):
        sow(SEED)
        passes.append(bench.run(model, case.pieces[0], peel))
    return difference(passes[1], passes[0]) > case.tolerance


def _weights_of_loss(parts: _Parts, case: Case) -> Sequence[float] | None:
    """By which the pieces' gradients add up to the whole's; None where no weights do.

    Those that a loss is likely to have are tried first: pieces whose gradients are alike leave
    the least-squares weights open.
    """
    total = sum(case.sizes)
    likely: list[Sequence[float]] = [
        case.weights,
        [size / total for size in case.sizes],
        [1.0] * len(case.sizes),
    ]
    counted = sum(case.counts or ())
    if case.counts is not None and counted:
        likely.append([count / counted for count in case.counts])
    for weights in likely:
        if difference(combined(parts.pieces, weights), parts.whole) <= case.tolerance:
            return weights
    weights, remains = best_weights(parts.pieces, parts.whole)
    # The Gram matrix squares the condition number: half of the digits are left.
    return weights if remains <= max(case.tolerance, 1e-6) else None


def _same(
    found: Sequence[float], weights: Sequence[float], parts: _Parts, tolerance: float
) -> bool:
    return difference(combined(parts.pieces, weights), parts.whole) <= tolerance or (
        list(found) == list(weights)
    )


def _wrong_weights(found: Sequence[float], case: Case) -> Finding:
    total = sum(case.sizes)
    by_samples = [size / total for size in case.sizes]
    if _near(found, by_samples):
        if case.weigh == "equal":
            return texts.unequal_pieces(case.sizes)
        return texts.samples_not_tokens()
    if max(found) - min(found) <= 1e-5 * max(map(abs, found)) and abs(sum(found) - 1) > 1e-5:
        return texts.sum_loss(found[0])
    if abs(sum(found) - 1) <= 1e-4:
        return texts.token_mean(found, case.weights, has_count=case.counts is not None)
    return texts.sum_loss(None)


def _near(found: Iterable[float], wanted: Iterable[float]) -> bool:
    return all(abs(a - b) <= 1e-5 for a, b in zip(found, wanted, strict=True))


def _first(modules: dict[str, Any]) -> tuple[str, ...]:
    return tuple(modules)[:SHOWN]
